"""The seed project's log: what its lines become, and logs that are cut, mixed, restarted or damaged."""

from __future__ import annotations

import csv
import gzip
import os
import subprocess
import sys
from math import sqrt
from pathlib import Path
from random import Random

import pytest

from core.errors import NotFoundError
from core.health.case import Sample
from core.health.examine import examine, facts
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.seed_log import READER
from grpoctl.diagnose.readers.text import CUT_OFF
from tests.grpoctl.diagnose.readers.told import (
    DISABLED,
    DROPPED,
    GOOD,
    HEAD,
    ending,
    metrics,
    named,
    opening,
    quality,
    result,
    told,
)

MIXED = (1.0, 0.2, 0.4, 0.4, 0.0, 0.0)  # S1 is a live group, S2 and S3 are dead
LOG = (
    HEAD + told(1) + told(2, rewards=MIXED, updated=True) + told(3, "xxxxxx", (0.0, 0.2) * 3, True) + told(4, "vxvvvv")
)


def asked(path: Path) -> Source:
    return Source(name=path.name, path=path)


def read(folder: Path, text: str | bytes, name: str = "any.log") -> Reading:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return READER.read(asked(path))


def outcomes(found: Reading) -> list[tuple[int, str | None, bool | None, float | None]]:
    return [(s.step, s.group, s.valid, s.reward) for s in found.case.samples]


def test_a_step_becomes_a_row(tmp_path: Path) -> None:
    """Rewards 1.0 0.2 | 0.4 0.4 | 0 0: mean 2/6; group stds 0.4, 0, 0; two dead groups of three; one all right: none.

    Advantages 1, -1, 0, 0, 0, 0: std over all sqrt(2/6) = 0.5774 (printed), over the live ones sqrt(2/2) = 1.
    """
    row = read(tmp_path, LOG).case.rows[1]
    assert row == {
        "step": 2,
        "update": 1,
        "samples": 6,
        "completions/valid": 1.0,
        "reward/mean": pytest.approx(2 / 6),
        "reward/std": pytest.approx(sqrt((1 + 0.04 + 2 * 0.16) / 6 - (2 / 6) ** 2)),
        "reward/group_std": pytest.approx(0.4 / 3),
        "groups/dead": pytest.approx(2 / 3),
        "groups/right": 0.0,
        "advantage/std_all": 0.5774,
        "advantage/std": pytest.approx(1.0, abs=1e-3),
        "advantage/max_abs": 1.0,
        "advantage/max": 1.0,
        "temperature": 0.298,
        "rewards/accuracy": pytest.approx(1 / 6),
        "learning_rate": 0.0,
    }


def test_a_completion_becomes_a_sample(tmp_path: Path) -> None:
    samples = [sample for sample in read(tmp_path, LOG).case.samples if sample.step == 2]
    shared = {"step": 2, "text": GOOD, "valid": True}
    assert samples == [
        Sample(**shared, row=0, group="2-S1", reward=1.0, advantage=1.0, domain="qa"),
        Sample(**shared, row=1, group="2-S1", reward=0.2, advantage=-1.0, domain="qa"),
        Sample(**shared, row=2, group="2-S2", reward=0.4, advantage=0.0, domain="math"),
        Sample(**shared, row=3, group="2-S2", reward=0.4, advantage=0.0, domain="math"),
        Sample(**shared, row=4, group="2-S3", reward=0.0, advantage=0.0, domain="math"),
        Sample(**shared, row=5, group="2-S3", reward=0.0, advantage=0.0, domain="math"),
    ]


def test_settings_are_those_of_the_head_and_the_code(tmp_path: Path) -> None:
    found = read(tmp_path, LOG)
    known = {name: getattr(found.case.settings, name) for name in found.case.settings.__dataclass_fields__}
    assert {name: value for name, value in known.items() if value is not None} == {
        "num_generations": 2, "prompts_per_step": 3, "max_steps": 500, "temperature": 0.3, "learning_rate": 2e-6,
        "lr_scheduler_type": "cosine", "warmup_steps": 100, "gradient_checkpointing": True, "transform": "none",
        "baseline": "group", "scale_rewards": "group", "ddof": 0, "eps": 0.0, "std_floor": 0.0,
        "skip_without_signal": True, "offline": False, "first_update_lr": 0.0,
    }  # fmt: skip
    assert [row.get("learning_rate") for row in found.case.rows] == [None, 0.0, pytest.approx(2e-8), None]
    assert any("learning rates are not printed" in note for note in found.notes)


def test_a_tail_knows_no_head(tmp_path: Path) -> None:
    """Without the head nothing is known of rates; completions before the first step line belong to none."""
    found = read(tmp_path, quality(True) + told(7) + told(8, rewards=MIXED, updated=True))
    assert (found.case.settings.learning_rate, found.case.settings.first_update_lr) == (None, None)
    assert [row["step"] for row in found.case.rows] == [7, 8]
    assert [row.get("learning_rate") for row in found.case.rows] == [None, None]
    assert len(found.case.samples) == 12
    assert "the log begins at step 7" in found.notes


def test_a_tail_with_the_first_update_of_its_process(tmp_path: Path) -> None:
    """What is printed once, at the first training forward, names that update: the trainer's schedule begins at 0."""
    cut = told(7) + told(8, rewards=MIXED, updated=True, extra=f"{DISABLED}\n") + told(9, "xxxxxx", (0.2,) * 6)
    found = read(tmp_path, cut)
    assert found.case.settings.first_update_lr == 0.0
    assert any("the log's head is cut off" in note for note in found.notes)
    assert "rollout-mode" in [one.id for one in examine(found.case)]
    later = read(tmp_path, told(6, rewards=MIXED, updated=True) + cut)
    assert later.case.settings.first_update_lr is None  # step 8's update is not the log's first


def test_a_rate_is_that_of_so_many_updates(tmp_path: Path) -> None:
    """Where the log begins later, the number of updates before it is unknown, and with it every rate."""
    found = read(tmp_path, HEAD + told(5, rewards=MIXED, updated=True))
    assert "learning_rate" not in found.case.rows[0]
    assert found.case.settings.learning_rate == 2e-6


def test_what_libraries_say_is_cited_by_line(tmp_path: Path) -> None:
    text = HEAD + told(1, rewards=MIXED, updated=True, extra=DISABLED) + opening(2) + DROPPED + "\n"
    lines = text.splitlines()
    assert [(one.kind, one.text, one.line, one.step) for one in read(tmp_path, text).case.notices] == [
        ("cache-disabled-by-checkpointing", DISABLED, lines.index(DISABLED) + 1, 1),
        ("cache-dropped-by-checkpointing", DROPPED, lines.index(DROPPED) + 1, 2),
    ]


def test_a_collapsed_step_shows_what_the_policy_wrote(tmp_path: Path) -> None:
    written = "  📝 检测到开放式DSL: CustomResponse:::    1.   11.\n"
    collapsed = told(1, "xxxxxx").replace("(6个序列)\n", "(6个序列)\n" + written)
    found = read(tmp_path, collapsed + told(2, "vxxxxx").replace("(6个序列)\n", "(6个序列)\n" + written))
    assert [(one.kind, one.text, one.step) for one in found.case.notices] == [
        ("unparsed-output", "CustomResponse::: 1. 11.", 1)
    ]


def test_loss_and_kl_are_read_where_an_update_printed_them(tmp_path: Path) -> None:
    text = told(5, rewards=MIXED, updated=True) + metrics(5, -0.0007, 0.0002)
    text += told(6, rewards=MIXED, updated=True) + metrics(6, -0.0, 0.0) + told(7) + metrics(7, 0.0, 0.0)
    found = read(tmp_path, text)
    assert [(row.get("loss"), row.get("kl_loss")) for row in found.case.rows] == [
        (-0.0007, 0.0002),
        (None, None),  # less than four decimals show
        (None, None),  # no update: 0 by the code
    ]
    assert any("0.0000" in note for note in found.notes)


def test_a_completion_that_was_not_executed_earned_nothing(tmp_path: Path) -> None:
    """S1's two failed: nothing says their domain, but the batch has one qa problem and S2, S3 are the two of math."""
    found = read(tmp_path, told(1, rewards=(None, None, 0.7, 0.7, 1.0, 1.0)))
    assert [(s.reward, s.domain) for s in found.case.samples] == [(0.0, "qa")] * 2 + [(0.7, "math")] * 2 + [
        (1.0, "math")
    ] * 2
    assert found.extra["not_executed"] == 2


def test_domains_that_do_not_add_up_are_not_told(tmp_path: Path) -> None:
    mixed = told(1).replace("评估输入 (math", "评估输入 (qa")
    assert {sample.domain for sample in read(tmp_path, mixed).case.samples} == {None}


def test_lines_of_parallel_workers_may_be_mixed(tmp_path: Path) -> None:
    """Headers may wait for their quality lines, results come in any order: the oldest header takes the next line."""
    keys = [(group, number) for group in (1, 2, 3) for number in (1, 2)]
    said = named(1, 1) + quality(True)
    said += "".join(named(*key) + "47.0\n" for key in keys[1:]) + quality(False) + quality(True) * 4
    mixed = said + "".join(result(*key, 1.0) for key in keys[::-1])
    found = read(tmp_path, opening(1) + mixed + ending([1.0] * 6, False))
    assert outcomes(found) == [(1, f"1-S{g}", (g, n) != (1, 2), 1.0) for g, n in keys]
    # Five headers wait when the first of the five lines comes, then four, three, two: four of them were a guess.
    assert any("4 were matched" in note for note in found.notes)


def test_a_quality_line_without_a_header_counts(tmp_path: Path) -> None:
    found = read(tmp_path, told(1).replace("[QWEN] Workflow 代码 S2-1", "[QW"))
    assert (len(found.case.samples), found.case.samples[-1].group) == (6, None)
    assert found.case.rows[0]["completions/valid"] == 1.0
    assert any("1 completions have no name" in note for note in found.notes)


def test_the_exact_reward_is_taken_where_it_is_the_same(tmp_path: Path) -> None:
    near = told(1).replace("P27简单奖励: 1.000", "P27简单奖励: 0.962")  # one decimal: 1.0
    assert {sample.reward for sample in read(tmp_path, near).case.samples} == {0.962}
    other = told(1).replace("P27简单奖励: 1.000", "P27简单奖励: 0.200")  # of another completion
    assert {sample.reward for sample in read(tmp_path, other).case.samples} == {1.0}


def test_a_restart_takes_the_place_of_what_it_repeats(tmp_path: Path) -> None:
    text = HEAD + told(1) + told(2, "xxxxxx") + told(3, "xxxxxx") + told(2, rewards=MIXED, updated=True)
    found = read(tmp_path, text)
    assert [(row["step"], row["completions/valid"]) for row in found.case.rows] == [(1, 1.0), (2, 1.0)]
    assert "learning_rate" not in found.case.rows[1]  # how many updates were before is not known
    assert any("goes back to step 2" in note for note in found.notes)


def test_a_restart_at_the_same_step_is_one_too(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD + told(1) + told(2, "xxxxxx") + told(2, rewards=MIXED, updated=True))
    assert [(row["step"], row["completions/valid"]) for row in found.case.rows] == [(1, 1.0), (2, 1.0)]
    assert any("goes back to step 2" in note for note in found.notes)


def test_a_step_that_is_sampled_again_counts_once(tmp_path: Path) -> None:
    """Out of memory: the trainer samples the step anew, under the same number."""
    again = told(1).split("🚀🚀🚀")[1]
    found = read(tmp_path, told(1, "xxxxxx") + "🚀🚀🚀" + again)
    assert len(found.case.samples) == 6
    assert found.case.rows[0]["completions/valid"] == 1.0


@pytest.mark.parametrize(
    ("end", "valid", "note"),
    [
        (opening(2), None, "inside step 2, before its completions"),
        (opening(2) + named(1, 1) + quality(False), None, "inside step 2, before its completions"),
        (told(2).split("✅ 所有")[0], 1.0, "inside step 2, before it says whether an update was made"),
    ],
)
def test_the_last_step_may_be_cut(tmp_path: Path, end: str, valid: float | None, note: str) -> None:
    """One invalid completion of six does not make an all-invalid step: the share is known once all are there."""
    found = read(tmp_path, told(1) + end)
    assert found.case.rows[-1].get("completions/valid") == valid
    assert "update" not in found.case.rows[-1]
    assert any(note in told for told in found.notes)


def agrees(cut: Reading, whole: Reading) -> None:
    """Every completion of the cut log is one of the whole log's; a reward may be missing, none may be another."""
    known = {(s.step, s.group, s.row): s for s in whole.case.samples}
    for sample in cut.case.samples:
        other = known[sample.step, sample.group, sample.row]
        assert (sample.text, sample.valid) == (other.text, other.valid)
        assert sample.reward in (None, other.reward)
        assert sample.advantage in (None, other.advantage)
    rows = {row["step"]: row for row in whole.case.rows}
    for row in cut.case.rows:
        assert {**rows[row["step"]], **row} == rows[row["step"]]


def test_it_may_be_cut_anywhere(tmp_path: Path) -> None:
    data, whole = LOG.encode(), read(tmp_path, LOG)
    start = len(HEAD.encode()) + 200
    for at in range(start, len(data), 61):
        agrees(read(tmp_path, data[:at]), whole)


def test_a_gzip_may_be_cut_anywhere(tmp_path: Path) -> None:
    packed, whole = gzip.compress(LOG.encode()), read(tmp_path, LOG)
    assert outcomes(read(tmp_path, packed)) == outcomes(whole)
    cut = read(tmp_path, packed[: len(packed) - 200])
    agrees(cut, whole)
    assert CUT_OFF in cut.notes


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_broken_bytes(tmp_path: Path, end: str) -> None:
    """A lone carriage return is a progress bar: editors do not count it as a line, and neither is it here."""
    data = (told(1) + DISABLED + "\n").replace("\n", end).encode()
    data = b"bar 1/4\rbar 2/4\r\xff\xfe \x80 broken" + end.encode() + data
    found = read(tmp_path, data)
    assert outcomes(found) == outcomes(read(tmp_path, told(1)))
    assert [one.line for one in found.case.notices] == [len(data.split(b"\n")) - 1]


def test_it_knows_its_own(tmp_path: Path) -> None:
    def knows(data: bytes, name: str = "x") -> bool:
        (tmp_path / name).write_bytes(data)
        return READER.knows(asked(tmp_path / name))

    assert knows(LOG.encode(), "notes.txt")
    assert knows(gzip.compress(LOG.encode()), "blob")
    assert knows(HEAD.encode())
    assert knows(told(3).encode()[300:])
    assert not knows(b"{'loss': 0.1, 'epoch': 1}\nStep 4/500\n", "training_p30.log")
    assert not knows(b"", "training_p30.log.gz")
    assert not knows(b"\0\1\2" + LOG.encode())
    assert not READER.knows(Source(name="nothing", path=None))
    assert not READER.knows(asked(tmp_path))
    assert not READER.knows(asked(tmp_path / "absent"))


def test_a_log_that_has_no_step_yet_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="ends before its first step"):
        read(tmp_path, HEAD)


# The real log and the outcomes derived from it, apart from this code.


@pytest.fixture(scope="module")
def p30() -> Path:
    root = Path(__file__).parents[4]
    found = Path(os.environ.get("GRPOCTL_TEST_DATA") or root.parent / "shared" / "data") / "p30"
    if not (found / "training_p30.log.gz").exists():
        pytest.skip(f"{found} is absent: set GRPOCTL_TEST_DATA to the folder that holds p30/training_p30.log.gz")
    return found


@pytest.fixture(scope="module")
def whole(p30: Path) -> Reading:
    return READER.read(asked(p30 / "training_p30.log.gz"))


def test_every_completion_of_p30_is_as_in_the_table(p30: Path, whole: Reading) -> None:
    with (p30 / "outcomes.csv").open(encoding="utf-8") as file:
        table = [
            (
                int(row["step"]), f"{row['step']}-{row['sample'][:2]}", row["fallback"] == "false",
                row["dsl"] if row["fallback"] == "false" else None,  # a placeholder, and not the policy's
                float(row["reward"]), row["domain"],
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip
    assert len(table) == 570
    assert [(s.step, s.group, s.valid, s.text, s.reward, s.domain) for s in whole.case.samples] == table
    assert whole.extra == {"not_executed": 33, "workflow_kinds": 20, "first_update_step": 4}


def test_p30_is_counted(whole: Reading) -> None:
    found = facts(whole.case)
    assert {name: found[name] for name in found if not name.startswith("reward/")} == {
        "steps": 96, "last_step": 96, "updates": 38, "followed_updates": 38, "followed_skips": 56,
        "collapsed_after_update": 37, "collapsed_after_skip": 0, "collapsed_and_skipped": 26, "healed": 26,
        "samples": 570, "valid": 326, "samples_after_update": 228, "invalid_after_update": 227,
        "samples_after_skip": 336, "invalid_after_skip": 17,
    }  # fmt: skip


def test_p30_printed_what_its_completions_add_up_to(whole: Reading) -> None:
    """Advantages of live groups are all of size 1: a z-score of two with the population standard deviation."""
    live = [row for row in whole.case.rows if row.get("groups/dead") not in (None, 1.0)]
    assert len(live) == 38
    assert {row["update"] for row in live} == {1}
    assert all(abs((row["advantage/std"] or 0) - 1) < 1e-3 and row["advantage/max_abs"] == 1.0 for row in live)


def test_p30_is_diagnosed(whole: Reading) -> None:
    first, *others = examine(whole.case)
    assert (first.id, first.severity, first.confidence) == ("rollout-mode", "error", "strong")
    assert [line[:10] for line in first.evidence["warnings"]] == ["line 1840:", "line 1877:", "line 1878:"]
    assert (first.evidence["lr_0_step"], first.evidence["collapsed_after_lr_0"]) == (4, 1)
    ruled = {one.id for one in first.rules_out}
    assert ruled == {"policy-collapse", "damaged-weights", "learning-rate", "num_generations=2"}
    by_id = {one.id: one for one in others}
    assert not ruled & set(by_id)
    assert not [one.id for one in others if one.severity == "error"]
    assert by_id["small-groups"].confidence == "certain"
    assert by_id["weak-reward"].evidence["valid"] == pytest.approx(0.578, abs=5e-4)
    assert by_id["weak-reward"].evidence["invalid"] == pytest.approx(0.495, abs=5e-4)


def test_p30_may_be_cut_anywhere(p30: Path, whole: Reading, tmp_path: Path) -> None:
    packed = (p30 / "training_p30.log.gz").read_bytes()
    for at in Random(0).sample(range(10_000, len(packed)), 4):
        cut = read(tmp_path, packed[:at])
        assert CUT_OFF in cut.notes
        agrees(cut, whole)


@pytest.mark.process
def test_p30_is_read_and_judged_quickly_and_lightly(p30: Path) -> None:
    """Two seconds of wall time are promised for the command; processor time does not depend on who else runs."""
    script = f"""
import sys, time
from pathlib import Path
from core.health.examine import examine
from grpoctl.diagnose.readers.registry import open_source
from grpoctl.diagnose.readers.base import Source
assert examine(open_source(Source(name={str(p30 / "training_p30.log.gz")!r}, path=None)).case)[0].id == "rollout-mode"
heavy = ("torch", "transformers", "pandas", "numpy", "mlflow", "optuna", "matplotlib")
print([name for name in heavy if name in sys.modules], time.process_time() < 2)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[4]
    )
    assert done.stdout.strip() == "[] True"


def test_colours_utf_16_carriage_returns_and_other_output_before_it(tmp_path: Path) -> None:
    text = HEAD + told(1) + told(2)
    plain = [row.get("reward/mean") for row in read_text(tmp_path, text.encode()).case.rows]
    coloured = HEAD.replace("2e-06", "2e-06\x1b[0m") + told(1) + told(2)
    for data in (
        coloured.encode(),
        text.encode("utf-16"),
        text.replace("\n", "\r").encode(),
        b"collecting packages\n" * 80_000 + text.encode(),  # 1.5 MiB
    ):
        read = read_text(tmp_path, data)
        assert [row.get("reward/mean") for row in read.case.rows] == plain
        assert read.case.settings.learning_rate == 2e-6


def test_a_head_with_no_number_is_left_out(tmp_path: Path) -> None:
    read = read_text(tmp_path, (HEAD.replace("2e-06", "2e-0x") + told(1)).encode())
    assert read.case.settings.learning_rate is None


def read_text(folder: Path, data: bytes) -> Reading:
    file = folder / "seed.log"
    file.write_bytes(data)
    asked = Source(name=str(file), path=file)
    assert READER.knows(asked)
    return READER.read(asked)
