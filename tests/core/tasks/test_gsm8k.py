"""Gsm8kTask: splits, prompts, scores, targets, and one line for each fault of its files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from core.config.task import Gsm8kTaskSpec
from core.errors import SpecError, TaskError
from core.tasks.gsm8k import Gsm8kTask
from core.tasks.registry import build
from core.tasks.text import prompt_of, text_example

EGGS = text_example(id="x", prompt="?", facts={"answer": "1080", "solution": "540 + 540 = 1080"})


def task(path: Path | None = None, **settings: Any) -> Gsm8kTask:
    where = {} if path is None else {"path": str(path)}
    return Gsm8kTask(Gsm8kTaskSpec.model_validate({"name": "gsm8k", **where, **settings}))


@pytest.mark.parametrize(
    ("text", "exact", "lenient", "form"),
    [
        ("540 + 540\n#### 1080", 1.0, 1.0, 1.0),
        ("#### $1,080.00", 1.0, 1.0, 1.0),
        ("It is 1080.", 0.0, 1.0, 0.0),
        ("\\boxed{1080}", 0.0, 1.0, 0.0),
        ("#### 1081", 0.0, 0.0, 1.0),
        ("#### 1080\n#### 1081", 0.0, 0.0, 1.0),  # the last counts
        ("#### 1079 1080", 0.0, 1.0, 0.0),
        ("no idea", 0.0, 0.0, 0.0),
        ("", 0.0, 0.0, 0.0),
    ],
)
def test_scores(text: str, exact: float, lenient: float, form: float) -> None:
    (strictly,) = task(format_reward=0.1).score([EGGS], [text])
    assert strictly.parts == {"exact": exact, "lenient": lenient, "format": form}
    assert strictly.reward == strictly.expected == (1.0 if exact else 0.1 * form)
    assert strictly.valid == (form > 0)
    (loosely,) = task(score="lenient").score([EGGS], [text])
    assert loosely.reward == lenient
    assert loosely.valid == any(character.isdigit() for character in text)


def test_the_other_form() -> None:
    boxed = task(answer_form="boxed")
    found = boxed.score([EGGS] * 2, ["\\boxed{1{,}080}", "#### 1080"])
    assert [(one.reward, one.parts["lenient"]) for one in found] == [(1.0, 1.0), (0.0, 1.0)]
    assert boxed.target(EGGS) == "540 + 540 = 1080\nThe answer is \\boxed{1080}."
    assert task().target(EGGS) == "540 + 540 = 1080\n#### 1080"


def test_problems_without_calculator_marks(folder: Path) -> None:
    (one,) = task(folder, train_prompts=2, eval_prompts=1).examples("test")
    assert (one.id, one.facts["answer"], one.facts["steps"]) == ("test-00000", "1002", 1)
    assert one.facts["solution"] == "501 + 501 = 1002"
    assert prompt_of(one).text.startswith("Ann has 501 eggs and buys 501 more. How many? Let's think step by step")
    boxed = task(folder, train_prompts=2, eval_prompts=1, answer_form="boxed").examples("test")[0]
    assert prompt_of(boxed).text.endswith("\\boxed{}.")


def test_splits_come_from_the_seed(folder: Path) -> None:
    subject = task(folder, train_prompts=2, eval_prompts=2)
    train, held_out = subject.examples("train"), subject.examples("eval")
    assert len({one.facts["question"] for one in (*train, *held_out)}) == 4
    assert [one.id for one in held_out] == ["eval-00000", "eval-00001"]
    assert task(folder, train_prompts=1, eval_prompts=2).examples("eval") == held_out  # held out first
    orders = {
        tuple(
            one.facts["answer"] for one in task(folder, train_prompts=2, eval_prompts=2, data_seed=n).examples("eval")
        )
        for n in range(8)
    }
    assert len(orders) > 1


def test_what_is_held_out_is_not_trained_on(folder: Path) -> None:
    file = folder / "train.jsonl"
    file.write_text(
        file.read_text() + file.read_text().replace("Ann has", "ann  HAS")
    )  # each problem twice, but for case
    for seed in range(4):
        subject = task(folder, train_prompts=5, eval_prompts=1, data_seed=seed)
        (held_out,) = subject.examples("eval")
        assert held_out.facts["answer"] not in {one.facts["answer"] for one in subject.examples("train")}


def test_one_problem_too_many_is_refused(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"train_prompts \+ eval_prompts = 5, but there are only 4 problems"):
        task(folder, train_prompts=3, eval_prompts=2).examples("train")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "got no problem in train.jsonl"),
        (b'{"question": "Q", "answer": "#### 1"}\n{"question": "Q"\n', "train.jsonl: line 2"),
        (b'{"question": "Q\xff", "answer": "#### 1"}\n', "line 1: is not UTF-8"),
        (b'{"question": "Q", "solution": "#### 1"}\n', "line 1: .*got question, solution; a problem has"),
        (b'{"question": "Q", "answer": 18}\n', "both text"),
        (b'{"question": "Q", "answer": "it is 18"}\n', "line 1: .*lacks a last line `#### N`"),
        (b'{"question": " ", "answer": "#### 18"}\n', "line 1: .*lacks a question"),
        (b"[1, 2]\n", "line 1: got a list"),
    ],
)  # fmt: skip
def test_faulty_files(folder: Path, content: bytes, said: str) -> None:
    (folder / "train.jsonl").write_bytes(content)
    with pytest.raises(SpecError, match=said) as error:
        task(folder, train_prompts=1, eval_prompts=1).examples("train")
    assert "\n" not in str(error.value)


def test_a_folder_that_is_not_there(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"task.path: got .*nowhere, which is no folder; allowed: a folder with"):
        build(Gsm8kTaskSpec(name="gsm8k", path=str(folder / "nowhere")))  # before a run starts
    (folder / "test.jsonl").unlink()
    subject = task(folder, train_prompts=1, eval_prompts=1)
    assert subject.examples("train")  # the test file is for `eval` alone
    with pytest.raises(SpecError, match=r"got no test\.jsonl in"):
        subject.examples("test")


def test_crlf_and_a_byte_order_mark(folder: Path) -> None:
    file = folder / "train.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert len(task(folder, train_prompts=3, eval_prompts=1).examples("train")) == 3


def test_a_foreign_example_is_refused() -> None:
    with pytest.raises(TaskError, match="no problem of gsm8k"):
        task().score([text_example(id="y", prompt="")], ["1"])


def test_the_hub_is_asked_for_where_there_is_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    def unreachable(*names: object, **settings: object) -> object:
        assert names[:2] == ("openai/gsm8k", "main")
        raise ConnectionError("Couldn't reach 'openai/gsm8k' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(SpecError, match=r"task.path: .*Couldn't reach.*; give task.path=FOLDER") as error:
        build(Gsm8kTaskSpec(name="gsm8k")).examples("train")  # not by build: checks ask no hub
    assert "\n" not in str(error.value)


def test_tables() -> None:
    texts = ["#### 1080", "1080", "#### 3", "none"]
    outcomes = task().score([EGGS] * 4, texts)
    rows = [
        {"step": step, "prompt_id": "x", "text": text, "reward": one.reward, "valid": one.valid, "rewards": one.parts}
        for step, (text, one) in enumerate(zip(texts, outcomes, strict=True), start=1)
    ]
    steps, kinds = task().tables(rows)
    assert steps.rows[0] == ("1 to 1", "1", "100.0 %", "100.0 %", "100.0 %")
    assert steps.rows[1] == ("2 to 2", "1", "0.0 %", "100.0 %", "0.0 %")
    assert [row[1:] for row in kinds.rows] == [("1", "25.0 %")] * 4
    assert [table.rows for table in task().tables([])] == [(), tuple((row[0], "0", "0.0 %") for row in kinds.rows)]


@pytest.mark.parametrize("form", ["hashes", "boxed"])
def test_every_gold_answer_of_the_real_problems_scores_1(gsm8k: Path, form: str) -> None:
    subject = task(gsm8k, train_prompts=7373, eval_prompts=100, answer_form=form)
    examples = [one for split in ("train", "eval", "test") for one in subject.examples(split)]  # type: ignore[arg-type]
    assert len(examples) == 7473 + 1319
    outcomes = subject.score(examples, [subject.target(one) for one in examples])
    assert {(one.reward, *one.parts.values()) for one in outcomes} == {(1.0, 1.0, 1.0, 1.0)}
    assert not any("<<" in str(one.facts["solution"]) for one in examples)


ROOT = Path(__file__).resolve().parents[3]
WORKED = "{n} + {n} = <<{n}+{n}={sum}>>{sum}\n#### {sum}"
ROWS = [
    {"question": f"Ann has {n} eggs and buys {n} more. How many?", "answer": WORKED.format(n=n, sum=2 * n)}
    for n in (501, 2, 3, 4)
]


def write(folder: Path, name: str, rows: list[dict[str, str]]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """train.jsonl with 1002, 4, 6 and 8 as answers, test.jsonl with the first of them."""
    write(tmp_path, "train.jsonl", ROWS)
    write(tmp_path, "test.jsonl", ROWS[:1])
    return tmp_path


@pytest.fixture(scope="session")
def gsm8k() -> Path:
    """The folder with all 8,792 problems; skips, visibly, where it is absent."""
    found = Path(os.environ.get("GRPOCTL_TEST_DATA") or ROOT.parent / "shared" / "data") / "gsm8k"
    if not (found / "train.jsonl").is_file():
        pytest.skip(f"{found} is absent: set GRPOCTL_TEST_DATA to the folder that holds gsm8k/train.jsonl")
    return found
