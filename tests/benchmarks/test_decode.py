"""Our sampling beside `generate` on a tiny random llama: does it run, is greedy the same, what is written? No times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import decode
from benchmarks.decode import Took, examples, summed_up
from benchmarks.trl_step.weights import byte_tokenizer
from core.tasks.text import prompt_of

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by an old name
SMALL = ["--prompts", "2", "--prompt-tokens", "12", "--size", "2", "--new-tokens", "3", "--threads", "1"]


def test_it_writes_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    argv = ["--quick", *SMALL, "--rounds", "1", "--without", "inverse_cdf", "--json", str(file)]
    assert decode.main(argv) == 0
    found = json.loads(file.read_text(encoding="utf-8"))
    assert found["greedy_agreement"] == 1.0
    assert found["width"] == 10  # bytes: `the sum of` fits, `sum of all digits` would not
    assert found["shape"] == {"dtype": "float32", "prompts": 2, "prompt_tokens": 12, "size": 2, "new_tokens": 3}
    assert list(found["ways"]) == ["generate", "ours", "ours without inverse_cdf"]
    for row in found["ways"].values():
        assert set(row) == {"seconds", "cpu_seconds", "tokens_per_second", "speed", "cpu_speed", "samples"}
        assert len(row["samples"]) == 1
        assert row["seconds"] > 0
    assert found["ways"]["generate"]["speed"] == 1.0
    assert "greedy tokens that are the same: 100.0000%" in capsys.readouterr().out


def test_speed_is_of_generates_median() -> None:
    generate = [Took(clock=clock, cpu=2.0) for clock in (9.0, 6.0, 3.0)]
    ours = [Took(clock=clock, cpu=4.0) for clock in (1.0, 2.0, 7.0)]
    rows = summed_up({"generate": generate, "ours": ours}, tokens=60)
    assert rows["ours"]["tokens_per_second"] == 30.0  # 60 / 2
    assert (rows["ours"]["speed"], rows["ours"]["cpu_speed"]) == (3.0, 0.5)  # 6 / 2, 2 / 4


def test_prompts_have_as_many_words_as_fit() -> None:
    # A token a byte. The longest of the three first words is `the sum`: 7; `sum of` and `of all` are shorter.
    assert [prompt_of(one).text for one in examples(byte_tokenizer(), 3, 7)] == ["the sum", "sum of", "of all"]


def test_an_unknown_saving_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        decode.main(["--without", "sleep"])
    assert "allowed: shared_prefill" in capsys.readouterr().err
