"""`grpoctl gc`: nothing without --yes, and what it frees in plain units."""

from __future__ import annotations

import json

import pytest

from grpoctl.cli.gc import size_text
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl
from tests.grpoctl.runs.test_garbage import checkpoint


def test_nothing_is_removed_without_yes(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded()
    for step in (1, 5, 10):
        checkpoint(run, step, best=1, size=2_500_000)
    said = grpoctl("gc")
    assert said.code == 0
    assert "2.5 MB" in said.out
    assert "--yes" in said.out
    assert (run.checkpoints / "step-000005").is_dir()
    document = json.loads(grpoctl("gc", "--json").out)
    (entry,) = document["found"]
    assert (entry["kind"], entry["of"], entry["removed"], document["freed"]) == ("checkpoint", run.id, False, 0)
    assert f"grpoctl gc {run.id} --yes" in grpoctl("gc", run.id).out  # what frees this much, and no more
    said = grpoctl("gc", run.id, "--yes")
    assert said.code == 0
    assert "1 item" in said.out
    assert not (run.checkpoints / "step-000005").exists()
    assert "nothing can go" in grpoctl("gc").out


def test_what_is_in_use_is_kept_and_said(grpoctl: Grpoctl, recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded()
    for step in (1, 5, 10):
        checkpoint(run, step, best=1)
    run.checkpoints.chmod(0o500)
    try:
        said = grpoctl("gc", "--yes", "--json")
        (entry,) = json.loads(said.out)["found"]
        removed = entry["removed"]  # by root it can be
        assert (said.code, entry["problem"] is None) == ((0, True) if removed else (3, False))
    finally:
        run.checkpoints.chmod(0o700)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000, "2.5 MB"), (3e12, "3.0 TB"), (9e15, "9000.0 TB")],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text
