"""GSM8K: splits, prompts, scores, targets, faults of its files; and which number a text gives as its answer."""

from __future__ import annotations

import json
import os
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from core.config.task import Gsm8kTaskSpec
from core.errors import SpecError, TaskError
from core.tasks.gsm8k import Gsm8kTask, answer_in, lenient_answer, whole, written
from core.tasks.registry import build
from core.tasks.text import prompt_of, text_example

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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        (" 18. ", 18),
        ("18.00", 18),
        ("0018", 18),
        (".5", Fraction(1, 2)),
        ("1,080", 1080),
        ("1,080,000.5", Fraction(2160001, 2)),
        ("1{,}080", 1080),
        ("10\\,000", 10000),
        ("$1,080.00", 1080),
        ("\\$18", 18),
        ("$18$", 18),
        ("€ 5", 5),
        ("-5", -5),
        ("-$5", -5),
        ("\u22125", -5),  # the minus of typesetters
        ("+5", 5),
        ("50%", 50),
        ("50\\%", 50),
        ("-3 %.", -3),
        ("3/4", Fraction(3, 4)),
        ("3/4 cup", Fraction(3, 4)),
        ("1 1/2", Fraction(3, 2)),
        ("\\frac{3}{4}", Fraction(3, 4)),
        ("-\\dfrac{1}{2}", Fraction(-1, 2)),
        ("\\frac12", Fraction(1, 2)),
        ("1\\frac{1}{2}", Fraction(3, 2)),
        ("18 eggs", 18),
        ("18 eggs per day.", 18),
        ("18/hour", 18),
        ("18\\text{ m}^2", 18),
        ("25 m^2", 25),
        ("18^\\circ", 18),
        ("\\text{18 dollars}", 18),
        ("\\boxed{7}", 7),
        ("**18**", 18),
        ("x = 18", 18),
        ("2 + 3 = 5 apples", 5),
    ],
)
def test_a_whole_number_whatever_it_is_dressed_in(text: str, value: int | Fraction) -> None:
    assert whole(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "eggs", "Step 1", "about 18", "18 or 20", "18, 20", "18-20", "18 to 20", "5:30", "1,2", "12,34", "1000,000",
        "18.5.2", "10^2", "2e3", "2*3", "2**3", "2 x 10^3", "18 x 2", "10 000", "3/0", "\\frac{a}{b}", "9" * 41,
        "\u0661\u0668",  # 18 in Arabic-Indic digits
    ],
)  # fmt: skip
def test_what_is_no_answer(text: str) -> None:
    assert whole(text) is None


@pytest.mark.parametrize(
    ("text", "form", "value"),
    [
        ("so 9 + 9 = 18\n#### 18", "hashes", 18),
        ("#### 18\nI hope this helps, 100%!", "hashes", 18),
        ("#### 5\n#### 7", "hashes", 7),  # the last counts
        ("#### 5 #### 7", "hashes", 7),  # ... on one line, too
        ("#### 5\n####", "hashes", 5),  # an empty one is none
        ("#### Step 1: 5 eggs\n18", "hashes", None),  # a heading
        ("#### 1 2 3 18", "hashes", None),  # naming many earns nothing
        ("### 18", "hashes", None),
        ("##### 18", "hashes", None),
        ("####18", "hashes", 18),
        ("\\boxed{18}", "hashes", None),
        ("The answer is \\boxed{18}.", "boxed", 18),
        ("\\boxed{5}, no: \\boxed{7}", "boxed", 7),
        ("\\boxed{\\frac{3}{4}}", "boxed", Fraction(3, 4)),  # braces in braces
        ("\\boxed{\\text{18 eggs}}", "boxed", 18),
        ("\\boxed{\\boxed{5}}", "boxed", 5),
        ("\\boxed{18\\sqrt{2}}", "boxed", None),  # a product, and no number with a unit
        ("\\boxed{18\\}", "boxed", None),  # never closed: the brace is escaped
        ("\\boxed{18} and \\boxed{1", "boxed", 18),  # cut off
        ("#### 18", "boxed", None),
    ],
)
def test_the_last_answer_in_the_asked_form(text: str, form: str, value: int | None) -> None:
    assert answer_in(text, form) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The answer is 18.", 18),
        ("It costs $1,080.", 1080),
        ("20 - 18 is 2", 2),
        ("so 20-18", 18),  # a difference, no negative number
        ("it is -5", -5),
        ("there are 5 1/2 cups", Fraction(11, 2)),
        ("\\boxed{18} of the 20", 18),  # an answer in a form goes before the last number
        ("#### Step 2: 18", 18),
        ("so \\fbox{18}", 18),  # whatever the command
        ("m2 has no number", None),
        ("none", None),
        ("", None),
    ],
)
def test_leniently_the_last_number_counts(text: str, value: int | None) -> None:
    assert lenient_answer(text, "hashes") == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(Fraction(1080), "1080"), (Fraction(-5), "-5"), (Fraction(1, 2), "0.5"), (Fraction(1, 3), "1/3")],
)
def test_written(value: Fraction, text: str) -> None:
    assert written(value) == text
    assert whole(text) == value


@pytest.mark.parametrize(
    "unit",
    [
        "\\boxed{",
        "{",
        "####",
        "#### ",
        "####\n",
        "1,",
        "1 ",
        "1/",
        "9",
        "1,111",
        "\\frac{",
        "\\frac ",
        "-",
        " ",
        "$",
        "*",
    ],
)
def test_a_hostile_text_takes_no_time(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    start = time.process_time()
    for form in ("hashes", "boxed"):
        answer_in(text, form)  # type: ignore[arg-type]
        lenient_answer(text, form)  # type: ignore[arg-type]
    assert time.process_time() - start < 2.0  # quadratic time would be minutes; measured: at most 0.1
