"""The table of mistakes fits the code: what each replaces stands there once. benchmarks/mutations.py makes them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.mutations import ROOT, Mutation, is_seen, mutations


def test_every_mistake_of_the_table_can_be_made() -> None:
    for mutation in mutations():
        assert (ROOT / mutation.file).read_text(encoding="utf-8").count(mutation.before) == 1, mutation
        assert (ROOT / mutation.tests).exists(), mutation
        assert mutation.after != mutation.before
    assert len(mutations("core/algorithms")) > 20


def test_a_mistake_is_seen_by_a_test_that_fails_and_put_right_again(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text("def add(a, b):\n    return a + b\n", encoding="utf-8")
    (tmp_path / "test_sums.py").write_text(
        "from sums import add\n\n\ndef test(): assert add(2, 0) == 2\n", encoding="utf-8"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\nmarkers = process\n    slow\n", encoding="utf-8")
    wrong = Mutation(file="sums.py", before="a + b", after="a * b", tests="test_sums.py")
    equal = Mutation(file="sums.py", before="a + b", after="a - b", tests="test_sums.py")
    assert [is_seen(wrong, tmp_path), is_seen(equal, tmp_path)] == [True, False]
    assert "a + b" in (tmp_path / "sums.py").read_text(encoding="utf-8")
