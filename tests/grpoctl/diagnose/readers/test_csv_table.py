"""Tables of metrics: columns by name or by --map, and one clear line for what is no table."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import SpecError
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.csv_table import READER


def read(tmp_path: Path, text: str | bytes, **columns: str) -> Reading:
    file = tmp_path / "table.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    asked = Source(name="table.csv", path=file, columns={name.replace("_", " "): to for name, to in columns.items()})
    assert READER.knows(asked)
    return READER.read(asked)


def test_columns_of_our_names_and_of_trls(tmp_path: Path) -> None:
    found = read(tmp_path, "step,reward/mean,frac_reward_zero_std,advantage/std_all,colour\n1,0.5,0.25,0.006,red\n")
    assert found.case.rows == [
        {"step": 1.0, "reward/mean": 0.5, "groups/dead": 0.25, "advantage/std_all": 0.006, "update": 1.0}
    ]
    assert any("columns left out (colour)" in note for note in found.notes)


def test_the_evaluation_before_training_is_no_step(tmp_path: Path) -> None:
    head = "step,update,completions,tokens,eval/reward,rollout/noise,reward/mean\n"
    found = read(tmp_path, head + "0,,0,0,0.25,4e-6,\n1,0,8,90,,,0.5\n2,1,16,180,,,0.75\n")
    assert [(row["step"], row.get("update")) for row in found.case.rows] == [(0.0, None), (1.0, 0.0), (2.0, 1.0)]
    assert not any("counts from 0" in note for note in found.notes)


def test_a_column_that_counts_updates_beside_steps_marks_nothing(tmp_path: Path) -> None:
    found = read(tmp_path, "step,update,reward\n1,1,0.5\n2,2,0.5\n3,3,0.75\n")
    assert [row["update"] for row in found.case.rows] == [1.0, 1.0, 1.0]
    assert any("columns left out (update)" in note for note in found.notes)


def test_a_first_row_with_a_reward_is_a_step(tmp_path: Path) -> None:
    found = read(tmp_path, "step,eval/reward,reward/mean\n0,0.25,0.5\n1,,0.75\n")
    assert [(row["step"], row.get("update")) for row in found.case.rows] == [(1.0, 1.0), (2.0, 1.0)]
    assert any("counts from 0" in note for note in found.notes)


def test_a_map_goes_before_names(tmp_path: Path) -> None:
    text = "Epoch;Mean reward;Acc;loss\n1;0.5;12.5 %;2\n2;0.6;;1e-3\n"
    found = read(tmp_path, "\ufeff" + text, Mean_reward="reward/mean", Acc="eval/reward")
    assert found.case.rows == [
        {"step": 1.0, "reward/mean": 0.5, "eval/reward": 0.125, "loss": 2.0, "update": 1.0},
        {"step": 2.0, "reward/mean": 0.6, "loss": 1e-3, "update": 1.0},  # an empty cell is unknown, not a NaN
    ]
    assert any("numbered" in note and "Epoch" in note for note in found.notes)


def test_tabs_quotes_empty_lines_and_no_numbers(tmp_path: Path) -> None:
    found = read(tmp_path, '"step"\t"loss"\t"kl"\n1\tnan\t"0.1"\n\n2\t-inf\tn/a\n')
    assert found.case.rows == [
        {"step": 1.0, "loss": None, "kl": 0.1, "update": 1.0}, {"step": 2.0, "loss": None, "update": 1.0}
    ]  # fmt: skip


def test_rows_without_whole_steps_are_counted(tmp_path: Path) -> None:
    found = read(tmp_path, "epoch,loss\n0.5,3\n1.0,2\n1.5,1\n")
    assert [row["step"] for row in found.case.rows] == [1.0, 2.0, 3.0]
    assert any("a row is counted as one step" in note for note in found.notes)


def test_a_table_from_zero_is_moved_where_its_first_row_trains(tmp_path: Path) -> None:
    trained = read(tmp_path, "epoch,loss\n0,3\n1,2\n")
    assert [row["step"] for row in trained.case.rows] == [1.0, 2.0]
    evaluated = read(tmp_path, "step,loss,eval/reward\n0,,0.1\n1,2,0.2\n")
    assert [row["step"] for row in evaluated.case.rows] == [0.0, 1.0]
    assert "update" not in evaluated.case.rows[0]


def test_a_repeated_step_and_the_tables_own_updates(tmp_path: Path) -> None:
    found = read(tmp_path, "step,loss,update\n2,3,1\n1,2,0\n2,1,1\n")
    assert [(row["step"], row["loss"], row["update"]) for row in found.case.rows] == [(1, 2, 0), (2, 1, 1)]
    assert any("repeat a step" in note for note in found.notes)
    assert not any("taken to" in note for note in found.notes)


def test_what_stands_in_two_rows_of_a_step_is_one_row(tmp_path: Path) -> None:
    """A trainer's history as a table: training, an evaluation behind it, and the run's summary."""
    text = "step,loss,reward,eval_reward,train_loss\n1,0.5,0.25,,\n2,0.25,0.5,,\n2,,,0.75,\n2,,,,0.375\n"
    assert read(tmp_path, text).case.rows[1] == {
        "step": 2.0, "loss": 0.25, "reward/mean": 0.5, "eval/reward": 0.75, "update": 1.0
    }  # fmt: skip


def test_rows_of_two_runs_are_not_made_one(tmp_path: Path) -> None:
    text = "of,step,reward,kl,eval_reward\na,1,0.1,,0.9\nb,1,0.2,0.01,\na,2,0.1,,0.9\nb,2,0.2,0.02,\n"
    rows = read(tmp_path, text).case.rows  # `of` says nothing: the last row of a step stands
    assert [row.get("eval/reward") for row in rows] == [None, None]
    assert [row["kl"] for row in rows] == [0.01, 0.02]
    named = read(tmp_path, text.replace("of,", "run,"))
    assert [row["eval/reward"] for row in named.case.rows] == [0.9, 0.9]
    assert [row["kl"] for row in named.further[0].case.rows] == [0.01, 0.02]
    assert (named.run, named.further[0].run) == ("a", "b")
    assert named.further[0].source.endswith("table.csv (b)")
    stages = read(tmp_path, "step,loss,reward\n1,0.1,0.5\n2,0.2,0.6\n1,2.5,\n2,2.4,\n").case.rows
    assert [row["reward/mean"] for row in stages] == [0.5, 0.6]
    both = read(tmp_path, "step,loss,reward,eval_reward\n1,0.1,0.5,\n1,2.5,,0.75\n").case.rows
    assert both == [{"step": 1.0, "loss": 0.1, "reward/mean": 0.5, "eval/reward": 0.75, "update": 1.0}]
    evaluated = read(tmp_path, "step,loss,update,eval_reward\n1,0.5,1,\n1,,0,0.75\n").case.rows
    assert evaluated == [{"step": 1.0, "loss": 0.5, "eval/reward": 0.75, "update": 1.0}]


def test_a_column_of_runs_is_one_where_lines_of_several_are_of_one_step(tmp_path: Path) -> None:
    apart = read(tmp_path, "seed,step,reward\n1,1,0.5\n1,2,0.5\n2,3,0.5\n")  # resumed with another seed, say
    assert (len(apart.case.rows), apart.further) == (3, ())
    unsaid = read(tmp_path, "seed,step,reward\n1,1,0.5\n,1,0.25\n2,1,0.125\n")
    assert unsaid.further == ()
    lines = [f"{m},{n},{step},0.{n}\n" for step in (1, 2) for m in "ab" for n in (1, 2)]
    numbered = read(tmp_path, "arm,train_iter,reward\na,1,0.5\na,2,0.5\nb,1,0.25\nb,2,0.25\n")
    assert [(one.run, one.case.rows[0]["reward/mean"]) for one in (numbered, *numbered.further)] == [
        ("a", 0.5), ("b", 0.25)
    ]  # fmt: skip
    both = read(tmp_path, "method,seed,step,reward\n" + "".join(lines))
    assert [(one.run, [row["reward/mean"] for row in one.case.rows]) for one in (both, *both.further)] == [
        ("a, 1", [0.1] * 2), ("a, 2", [0.2] * 2), ("b, 1", [0.1] * 2), ("b, 2", [0.2] * 2)
    ]  # fmt: skip
    many = read(tmp_path, "seed,step,reward\n" + "".join(f"{n},{step},0.5\n" for n in range(9) for step in "12"))
    assert len(many.further) == 7
    assert "it has 9 runs: the first 8 are read" in many.notes


def seeds(first: str, second: str, *, steps: int = 3) -> str:
    rows = [(step, run, reward) for step in range(1, steps + 1) for run, reward in ((first, 0.25), (second, 0.5))]
    return "step,run,reward\n" + "".join(f"{step},{run},{reward}\n" for step, run, reward in rows)


def test_what_does_not_tell_runs_apart(tmp_path: Path) -> None:
    assert len(read(tmp_path, seeds("a", "b")).further) == 1
    trained = read(tmp_path, seeds("grpo", "base_model"))
    assert ([row["reward/mean"] for row in trained.case.rows], trained.further) == ([0.25] * 3, ())
    assert "base_model is left out: by its name it is not trained" in trained.notes
    updated = seeds("grpo", "baseline").replace("reward\n", "reward,lr\n").replace("5\n", "5,1e-6\n")
    study = read(tmp_path, updated)
    assert [one.run for one in (study, *study.further)] == ["grpo", "baseline"]  # which was trained, too
    assert len(read(tmp_path, updated.replace("1e-6", "0")).further) == 0
    assert read(tmp_path, seeds("train", "eval")).further == ()  # splits of one run
    assert len(read(tmp_path, seeds("train-1", "train-2")).further) == 1
    assert len(read(tmp_path, seeds("v1 v1", "v1")).further) == 1
    assert len(read(tmp_path, seeds("bert-base", "roberta")).further) == 1  # which may be trained
    resumed = "".join(f"{step},a,0.5\n" for step in range(1, 6)) + "".join(f"{step},b,0.5\n" for step in range(5, 11))
    assert read(tmp_path, "step,run,reward\n" + resumed).further == ()  # one step of both
    counted = read(tmp_path, seeds("a", "b").replace("step", "update"))
    assert [[row["step"] for row in one.case.rows] for one in (counted, *counted.further)] == [[1, 2, 3]] * 2
    marks = "".join(f"1,{run},0.5\n" for run in "aabb")
    assert read(tmp_path, "update,run,reward\n" + marks).further == ()  # of which rows moved weights
    samples = "".join(f"{step},{step * 10 + at},0.5\n" for step in (1, 2, 3) for at in (1, 2))
    assert read(tmp_path, "step,seed,reward\n" + samples).further == ()  # of each row its own
    epochs = read(tmp_path, seeds("a", "b").replace("step", "epoch"))
    assert [row["reward/mean"] for row in epochs.case.rows] == [0.25] * 3
    called_none = read(tmp_path, seeds("none", "kl"))
    assert (called_none.run, called_none.further[0].run) == ("none", "kl")
    shorter = read(tmp_path, seeds("a", "b") + "".join(f"{step},b,0.5\n" for step in range(4, 30)))
    assert [len(one.case.rows) for one in (shorter, *shorter.further)] == [3, 29]


def test_a_run_of_which_no_metric_is_known_costs_no_other(tmp_path: Path) -> None:
    panel = "Step,A - reward,B - reward,C - gpu\n1,0.5,0.25,90\n2,0.5,0.25,90\n"
    found = read(tmp_path, panel)
    assert [one.run for one in (found, *found.further)] == ["A", "B"]
    assert "C is left out: no metric of it is known" in found.notes
    lines = "run,metric,step,value\na,gpu,1,90\na,gpu,2,90\nb,reward,1,0.5\nb,reward,2,0.5\n"
    assert (read(tmp_path, lines).run, read(tmp_path, lines).further) == ("b", ())
    with pytest.raises(SpecError, match="no metric is known"):
        read(tmp_path, lines.replace("reward", "fan"))


def test_a_run_that_tells_nothing_yet_is_left_out(tmp_path: Path) -> None:
    panel = read(tmp_path, "Step,a - reward,b - reward\n1,0.2,\n2,0.3,\n")
    assert ([one.run for one in (panel, *panel.further)], panel.notes[-1]) == (
        ["a"], "b is left out: no metric of it is known"
    )  # fmt: skip
    empty = read(tmp_path, "step,run,reward\n1,a,0.5\n1,b,\n2,a,0.5\n2,b,\n")
    assert (empty.run, empty.further) == ("a", ())


def test_a_column_of_one_run_may_be_mapped(tmp_path: Path) -> None:
    panel = "Step,A - reward,A - foo,B - reward\n1,0.5,0.125,0.25\n2,0.5,0.125,0.25\n"
    mapped = read(tmp_path, panel, foo="kl")
    assert [row.get("kl") for row in mapped.case.rows] == [0.125] * 2
    assert [row.get("kl") for row in mapped.further[0].case.rows] == [None] * 2
    with pytest.raises(SpecError, match=r"has no column 'fop'; did you mean 'foo'"):
        read(tmp_path, panel, fop="kl")
    chosen = read(tmp_path, seeds("7", "8").replace("run", "seed"), seed="kl")  # a column that is mapped names no run
    assert chosen.further == ()
    assert [row["kl"] for row in chosen.case.rows] == [8.0] * 3


@pytest.mark.parametrize("slices", [("math", "all"), ("grpo-train", "grpo-eval"), ("train", "held-out")])
def test_slices_of_a_panel_are_no_runs(slices: tuple[str, str], tmp_path: Path) -> None:
    text = f"Step,{slices[0]} - reward,{slices[1]} - reward\n1,0.5,0.25\n"
    assert read(tmp_path, text).further == ()


def test_names_of_runs_are_short_and_their_own(tmp_path: Path) -> None:
    long = "x" * 100
    found = read(tmp_path, seeds(f"{long}1", f"{long}2"))
    assert [one.run for one in (found, *found.further)] == [f"{'x' * 59}… #1", f"{'x' * 59}… #2"]


def test_a_last_line_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, "step,reward,kl\n1,0.5,0.1\n2,0.")
    assert [row["step"] for row in found.case.rows] == [1]
    assert "line 3 is not whole: it is left out" in found.notes
    with pytest.raises(SpecError, match="has 2 cells, the header has 3"):
        read(tmp_path, "step,reward,kl\n1,0.5,0.1\n2,0.\n")


def test_a_table_by_commas_needs_no_name_of_one(tmp_path: Path) -> None:
    def knows(text: str) -> bool:
        file = tmp_path / "run.log"
        file.write_text(text)
        return READER.knows(Source(name="run.log", path=file))

    assert knows("step,reward\n1,0.5\n\n2,0.25\n")
    assert not knows("step,reward\n")
    assert not knows("step,reward\n1,0.5\nsaved, at last, to disk\n")
    assert not knows("step,reward\n" + "1,0.5\n" * 300 + "done, all 300, steps\n")  # a log
    assert knows("step,reward,kl\n1,0.5,0.1\n2,0.")  # which grows
    assert not knows("step\treward\n1\tNo Log\n")
    assert not knows("when,who\n1,2\n")
    assert not knows('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.25}\n')
    assert not knows("reward,why\nrises,nobody knows\n")
    assert not knows("step,reward\n1," + "2" * 200_000 + "\n")


def test_a_column_update_that_counts_numbers_the_rows(tmp_path: Path) -> None:
    found = read(tmp_path, "update,loss,colour\n1,3,red\n2,2,red\n5,1,red\n")
    assert [(row["step"], row["loss"], row["update"]) for row in found.case.rows] == [(1, 3, 1), (2, 2, 1), (5, 1, 1)]
    assert any("columns left out (colour)" in note for note in found.notes)
    marks = read(tmp_path, "update,loss\n0,3\n1,2\n1,1\n")
    assert [(row["step"], row["update"]) for row in marks.case.rows] == [(1, 0), (2, 1), (3, 1)]


def test_a_row_of_an_evaluation_without_a_number_is_of_the_step_before(tmp_path: Path) -> None:
    """As Stable-Baselines3 writes it; its entropy's loss is minus the entropy."""
    text = (
        "time/iterations,rollout/ep_rew_mean,train/entropy_loss,eval/mean_reward\n"
        "1,-0.5,,\n3,0.25,-0.75,\n,,,0.5\n5,0.5,-0.5,\n"
    )
    rows = read(tmp_path, text).case.rows
    assert [(row["step"], row.get("entropy"), row.get("eval/reward")) for row in rows] == [
        (1, None, None), (3, 0.75, 0.5), (5, 0.5, None)
    ]  # fmt: skip
    assert any("a row of an evaluation that has none" in note for note in read(tmp_path, text).notes)
    for other in (",0.1,,0.5", "late,,,0.5", ",,,0.5\nlate,,,0.75"):
        assert [row["step"] for row in read(tmp_path, text.replace(",,,0.5", other)).case.rows][:4] == [1, 2, 3, 4]
    assert [row["step"] for row in read(tmp_path, text.replace("1,-0.5,,", ",,,0.25")).case.rows] == [1, 2, 3, 4]
    alone = read(tmp_path, "time/iterations,eval/mean_reward\n3,0.5\n,0.25\n").case.rows
    assert [row["step"] for row in alone] == [1, 2]
    numbered = read(tmp_path, "step,reward,eval_reward\n2,0.5,\n4,,0.25\n")
    assert not any("a row of an evaluation that has none" in note for note in numbered.notes)


@pytest.mark.parametrize(
    ("losses", "entropies"), [("0.5 0.25", [0.5, 0.25]), ("-0.5 -0.25", [0.5, 0.25]), ("-0.5 " * 20 + "0.25", [])]
)
def test_an_entropys_loss_is_the_entropy_or_minus_it(losses: str, entropies: list[float], tmp_path: Path) -> None:
    text = "step,reward,entropy_loss\n" + "".join(f"{at},0.5,{loss}\n" for at, loss in enumerate(losses.split()))
    rows = read(tmp_path, text).case.rows
    assert [row["entropy"] for row in rows if "entropy" in row] == entropies


@pytest.mark.parametrize(
    ("column", "told", "metric", "known"),
    [
        ("eval_acc", "15.5 44", "eval/reward", [0.155, 0.44]),
        ("eval_acc", "15 44", "eval/reward", [0.15, 0.44]),  # more than a group has
        ("eval_acc", "5 16", "eval/reward", [5, 16]),
        ("accuracy", "0.5 1.75", "rewards/accuracy", [0.5, 1.75]),  # a reward with a weight
        ("accuracy", "0.5 1.25 2.5", "rewards/accuracy", [0.5, 1.25, 2.5]),
        ("accuracy", "1.75 2.5 5.0", "rewards/accuracy", [1.75, 2.5, 5.0]),  # with a greater one
        ("accuracy", "0.0 2.5 0.0 41.0", "rewards/accuracy", [0.0, 0.025, 0.0, 0.41]),
        ("accuracy", "0.5 1.5 1.25 20.5", "rewards/accuracy", [0.5, 1.5, 1.25, 20.5]),  # few are more than a share
        ("accuracy", "-0.5 20.5", "rewards/accuracy", [-0.5, 20.5]),
        ("accuracy", "20.5 120.5", "rewards/accuracy", [20.5, 120.5]),
        ("accuracy_reward", "20.5 44.5", "rewards/accuracy", [20.5, 44.5]),
        ("accuracy", "0.5 1", "rewards/accuracy", [0.5, 1]),
        ("pass rate", "45.5 50", "rewards/accuracy", [0.455, 0.5]),
        ("pass rate", "45 50", "rewards/accuracy", [45, 50]),  # of as many problems?
        ("pass rate", "0.5 45", "rewards/accuracy", [0.5, 45]),
        ("learning_rate", "0.5 45.5", "learning_rate", [0.5, 45.5]),
        ("correct", "45.5 50", "rewards/accuracy", [45.5, 50]),
        ("truncation_rate", "1.55 6.5", "completions/truncated", [0.0155, 0.065]),
        ("truncation_rate", "0.5 1.5", "completions/truncated", []),
        ("trunc_rate", "0.99 1.0000001 1.0", "completions/truncated", [0.99, 1.0000001, 1.0]),
        ("truncation_rate", "7 9", "completions/truncated", []),
        ("truncated", "7.5 9", "completions/truncated", []),
        ("ratio of rewards", "7.5 9", "reward/mean", []),
    ],
)
def test_shares_above_1_by_a_name_of_one_are_percent(
    column: str, told: str, metric: str, known: list[float], tmp_path: Path
) -> None:
    text = f"step,kl,{column}\n" + "".join(f"{at},0.1,{one}\n" for at, one in enumerate(told.split(), 1))
    found = read(tmp_path, text)
    assert [row[metric] for row in found.case.rows if metric in row] == pytest.approx(known)
    is_percent = bool(known) and known[1] != float(told.split()[1])
    assert any("taken to be in percent" in note for note in found.notes) == is_percent


def test_a_share_that_was_rounded_up_is_no_percentage(tmp_path: Path) -> None:
    for units in ("step,kl,truncated [%]\n", "step,kl,truncated\n#,nats,%\n"):
        shares = read(tmp_path, f"{units}1,0.1,0.99\n2,0.1,1.0000001\n").case.rows
        assert [row["completions/truncated"] for row in shares] == [0.99, 1.0000001]
        percent = read(tmp_path, f"{units}1,0.1,0.99\n2,0.1,1.002\n").case.rows
        assert [row["completions/truncated"] for row in percent] == pytest.approx([0.0099, 0.01002])


def test_names_of_other_trainers_columns(tmp_path: Path) -> None:
    lightning = read(tmp_path, "step,train_loss,lr-AdamW\n9,,1e-5\n9,0.5,\n19,0.25,\n").case.rows
    assert [row.get("learning_rate") for row in lightning] == [1e-5, None]
    ray = read(tmp_path, "training_iteration,reward_mean\n2,0.5\n4,0.25\n").case.rows
    assert [row["step"] for row in ray] == [2, 4]
    counted = read(tmp_path, "step,generated_tokens,completion_length_mean\n1,1600,200\n").case.rows
    assert counted[0]["completions/length"] == 200
    german = "Schritt,Belohnung (Mittel),Belohnung (Std.),Antwortlänge [Tokens],Lernrate,Belohnung (Validierung)"
    (row,) = read(tmp_path, f"{german}\n5,0.5,0.25,300,1e-6,0.75\n").case.rows
    names = ("step", "reward/mean", "reward/std", "completions/length", "learning_rate", "eval/reward")
    assert [row[name] for name in names] == [5, 0.5, 0.25, 300, 1e-6, 0.75]


def test_a_column_of_words_is_left_out_though_a_metric_has_its_name(tmp_path: Path) -> None:
    """A run's name in a column `score`; a metric whose every cell is a word is refused where nothing else is there."""
    found = read(tmp_path, "step,score,loss\n1,high,0.5\n2,low,0.25\n")
    assert [(row.get("loss"), row.get("reward/mean")) for row in found.case.rows] == [(0.5, None), (0.25, None)]
    assert any("columns left out (score)" in note for note in found.notes)
    with pytest.raises(SpecError, match="no column is known"):
        read(tmp_path, "step,stage,model\n1,checkpoint,ppo\n2,checkpoint,ppo\n")


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", {}, "is empty"),
        ("step,loss\n", {}, "this has none"),
        ("loss\n1\n", {}, "this has 1"),
        (b"\x7fELF\0\1\2,\0", {}, "is not text"),
        ("step,loss\n1,2\n3\n", {}, "line 3: has 1 cells, the header has 2"),
        ("step,loss\n1,2,3\n", {}, "line 2: has 3 cells"),
        ("step,loss,loss\n1,2,3\n", {}, "two columns called 'loss'"),
        ('step,loss\n1,"0,5"\n', {}, "line 2: loss: got '0,5'; write a decimal point"),
        ("step,loss\n1,high\n", {}, "line 2: loss: got 'high'; a number belongs there"),
        ("step,loss\n1,1_0\n", {}, "got '1_0'"),
        ("step,colour\n1,2\n", {}, "no column is known (step, colour)"),
        ("step,loss\n1,2\n", {"lose": "kl"}, "no column 'lose'; did you mean 'loss'"),
        ("step,a,b\n1,2,3\n", {"a": "kl", "b": "kl"}, "two columns are mapped to kl"),
        ("step,loss\n" + "1" * 10_000_000 + ",2\n", {}, "line 2: is longer than"),
        ('step,loss\n1,"' + "x" * 200_000 + '"\n', {}, "is no table: field larger"),
    ],
)
def test_what_is_no_table_is_one_line(text: str | bytes, columns: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, text, **columns)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_any_name_is_a_table_once_columns_are_mapped(tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("step,x\n1,2\n")
    assert not READER.knows(Source(name="numbers.txt", path=tmp_path / "numbers.txt"))
    assert READER.knows(Source(name="numbers.txt", path=tmp_path / "numbers.txt", columns={"x": "loss"}))


def test_a_mapped_column_numbers_and_sorts_the_rows(tmp_path: Path) -> None:
    found = read(tmp_path, "It,step,loss\n20,1,2\n10,2,3\n", It="step")
    assert [(row["step"], row["loss"]) for row in found.case.rows] == [(10, 3), (20, 2)]
    assert any("numbered" in note and note.split()[-1] == "It" for note in found.notes)
    with pytest.raises(SpecError, match=r"line 3: It: got '1.5'; a step is a whole number"):
        read(tmp_path, "It,loss\n1,2\n1.5,3\n", It="step")
    with pytest.raises(SpecError, match="no column is known"):
        read(tmp_path, "It,colour\n1,2\n", It="step")


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        ("groups/dead", "82", "write 82% or 0.82"),
        ("groups/dead", "-1", "a share is between 0 and 1"),
        ("groups/right", "1.5", "write 1.5% or 0.015"),
        ("update", "2", "between 0 and 1"),
        ("entropy", "-0.5", "cannot be negative"),
        ("reward/std", "-0.5", "cannot be negative"),
    ],
)
def test_a_number_that_the_metric_cannot_have_is_refused(column: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=f"line 2: {column}: got '{text}'.*{message}"):
        read(tmp_path, f"step,{column}\n1,{text}\n")


def test_numbers_at_the_ends_of_a_range_stand(tmp_path: Path) -> None:
    found = read(tmp_path, "step,groups/dead,kl,loss,reward/mean\n1,82%,-0.1,-2,-3\n2,1.0000001,0,0,0\n")
    assert found.case.rows[0]["groups/dead"] == pytest.approx(0.82)
    assert found.case.rows[0]["kl"] == -0.1  # other logs estimate it without a bound


def test_a_log_called_csv_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a carriage return inside a line"):
        read(tmp_path, "a,b\n1,2\r3,4\n")


def test_units_in_a_header(tmp_path: Path) -> None:
    found = read(
        tmp_path, "step,mean reward (0-1),KL (nats),truncated (%),response length (tokens)\n1,0.5,0.01,12,300\n"
    )
    assert found.case.rows == [
        {
            "step": 1.0,
            "update": 1.0,
            "reward/mean": 0.5,
            "kl": 0.01,
            "completions/truncated": 0.12,
            "completions/length": 300.0,
        }
    ]


def test_what_is_the_other_way_round(tmp_path: Path) -> None:
    (row,) = read(tmp_path, "step,env/all/reward/total,env/all/by_group/frac_mixed\n1,0.5,0.75\n").case.rows
    assert row["groups/dead"] == 0.25


@pytest.mark.parametrize(
    ("tag", "metric"),
    [("train_completions_mean_length", "completions/length"), ("train_kl", "kl"), ("reward", "reward/mean")],
)
def test_tensorboards_download_is_called_by_its_tag(tag: str, metric: str, tmp_path: Path) -> None:
    file = tmp_path / f"run1-tag-{tag}.csv"
    file.write_text("Wall time,Step,Value\n1.7e9,10,0.5\n1.7e9,20,0.25\n")
    rows = READER.read(Source(name=file.name, path=file)).case.rows
    assert [(row["step"], row[metric]) for row in rows] == [(10, 0.5), (20, 0.25)]


def test_a_count_under_the_name_of_a_share_is_left_out_and_another_column_may_be_it(tmp_path: Path) -> None:
    """`zero_std_groups` is a number of groups here; which column is the share is told by its numbers."""
    text = "step,reward,dead_groups,zero_std_ratio,truncation_rate\n1,0.5,6,0.375,7\n2,0.6,4,0.25,9\n"
    found = read(tmp_path, text)
    assert [row["groups/dead"] for row in found.case.rows] == [0.375, 0.25]
    assert not any("completions/truncated" in row for row in found.case.rows)
    assert any("columns left out (dead_groups, truncation_rate)" in note for note in found.notes)


def test_counts_of_groups_that_all_or_none_solve_are_no_accuracy(tmp_path: Path) -> None:
    text = "step,reward,all_correct_groups,all_wrong_groups,mixed_groups\n1,0.5,5,10,1\n2,0.6,2,2,4\n"
    rows = read(tmp_path, text).case.rows
    assert not any("rewards/accuracy" in row for row in rows)
    assert [row["groups/solved_some"] for row in rows] == [1, 4]


ROUNDED = "step,reward,kl,learning_rate\n" + "".join(
    f"{step},0.{step}2345,{kl},{rate}\n"
    for step, kl, rate in [(1, 0.0, 1e-5), (2, 0.00248, 1e-5), (3, 0.5, 0.0), (4, 0.6, 0.0), (5, 0.7, 0.0)]
)


def test_a_rate_that_was_rounded_away_is_not_known(tmp_path: Path) -> None:
    found = read(tmp_path, ROUNDED)
    assert [row.get("learning_rate") for row in found.case.rows] == [1e-5, 1e-5, None, None, None]
    assert found.case.rows[0]["kl"] == 0.0  # of KLs that are hundreds of the last decimal this one is exact
    assert any("a learning_rate of 0 may be a small one" in note for note in found.notes)


@pytest.mark.parametrize(
    "text",
    [
        ROUNDED.replace("0.12345", "0.1234567"),  # nothing was rounded
        "".join(ROUNDED.splitlines(keepends=True)[:-1]),  # four rows show little
        ROUNDED.replace("1e-05", "3e-07"),  # it has more decimals than the table
        ROUNDED.replace("1e-05", "0.01"),  # a rate of which a tenth is no less than the last decimal
    ],
)
def test_a_rate_of_zero_is_known(tmp_path: Path, text: str) -> None:
    assert 0.0 in [row.get("learning_rate") for row in read(tmp_path, text).case.rows]


LONG = (
    "run_name,metric,step,value\n"
    "a,eval/reward,0,0.25\na,eval/reward,10,0.5\na,train/entropy,5,1.5\na,train/entropy,10,1.25\n"
)


def test_a_line_for_each_value_is_a_row_for_each_step(tmp_path: Path) -> None:
    rows = read(tmp_path, LONG).case.rows
    assert [(row["step"], row.get("eval/reward"), row.get("entropy")) for row in rows] == [
        (0, 0.25, None), (5, None, 1.5), (10, 0.5, 1.25)
    ]  # fmt: skip
    steps = {"eval/reward": (0, 3, 7, 11), "entropy": range(14)}
    apart = [f"{metric},{step},0.5" for metric, told in steps.items() for step in told]
    found = read(tmp_path, "\n".join(["metric,step,value", *apart]) + "\n")  # no attempt that begins again
    assert [row["step"] for row in found.case.rows] == list(range(1, 15))
    text = "step,tag,value,wall_time\n2,reward,0.5,1\n1,reward,0.25,1\n2,kl,0.01,1\n2,reward,0.75,2\n"
    assert [(row["step"], row["reward/mean"], row.get("kl")) for row in read(tmp_path, text).case.rows] == [
        (1, 0.25, None), (2, 0.75, 0.01)  # the last that is told of a step
    ]  # fmt: skip


def test_lines_of_several_runs_are_not_made_one(tmp_path: Path) -> None:
    found = read(tmp_path, LONG + "b,eval/reward,0,0.125\nb,entropy,20,1.0\n")
    assert [row.get("eval/reward") for row in found.case.rows] == [0.25, None, 0.5]
    assert [(row["step"], row.get("eval/reward")) for row in found.further[0].case.rows] == [(0, 0.125), (20, None)]
    with pytest.raises(SpecError, match=r"has 2 runs \(a, b\): keep those of one \(run_name\)"):
        read(tmp_path, LONG + "b,eval/reward,0,0.25\n,eval/reward,20,0.25\n")  # whose is the last line?
    agents = "metric,agent,step,value\nreward,red,1,0.5\nreward,blue,1,0.25\nkl,red,1,0.1\n"
    with pytest.raises(SpecError, match=r"has 2 kinds of lines by agent \(red, blue\): keep those of one \(agent\)"):
        read(tmp_path, agents)
    assert read(tmp_path, agents.replace("blue,1", "blue,2")).case.rows  # no line tells the same again


@pytest.mark.parametrize("words", [("train", "eval"), ("{'subset': 'train'}", "{'subset': 'val'}")])
def test_the_split_of_a_line_is_part_of_its_metric(words: tuple[str, str], tmp_path: Path) -> None:
    lines = [("reward", 0, 0.5), ("reward", 1, 0.25), ("kl", 0, 0.1)]
    told = "".join(f'{name},"{words[split]}",1,{value},0.02,12\n' for name, split, value in lines)
    found = read(
        tmp_path, "metric.name,metric.context,step,value,run.hparams.beta,run.hparams.num_generations\n" + told
    )
    assert found.case.rows == [{"step": 1.0, "reward/mean": 0.5, "eval/reward": 0.25, "kl": 0.1, "update": 1.0}]
    assert (found.case.settings.beta, found.case.settings.num_generations) == (0.02, 12)


def test_a_dashboards_table_of_runs_is_each_of_them(tmp_path: Path) -> None:
    text = (
        "Run ID,Name,Status,num_generations,beta,reward,step\n"
        "0a,first,FINISHED,8,0.0,0.5,400\n1b,second,FINISHED,16,0.1,0.25,170\n"
    )
    found = read(tmp_path, text)
    told = [
        (one.run, one.case.rows[0]["reward/mean"], one.case.settings.num_generations) for one in (found, *found.further)
    ]
    assert told == [("first", 0.5, 8), ("second", 0.25, 16)]
    assert not read(tmp_path, text.replace("Status", "Colour")).further  # nothing says that a row is a run
    assert not read(
        tmp_path, text.replace("first", "1").replace("second", "2").replace("0a", "3").replace("1b", "4")
    ).further


def test_rows_that_rising_steps_number_are_of_one_run(tmp_path: Path) -> None:
    rows = "1,first,ok,0.1\n2,second,ok,0.2\n3,third,ok,0.3\n"
    for numbering in ("step", "epoch", "update"):
        found = read(tmp_path, f"{numbering},name,status,reward\n{rows}")
        assert [row["reward/mean"] for row in found.case.rows] == [0.1, 0.2, 0.3]
        assert not found.further
    for others in (("2,second", "1,second"), ("2,second", ",second"), ("3,third", "2,third")):
        assert len(read(tmp_path, f"step,name,status,reward\n{rows.replace(*others)}").further) == 2


@pytest.mark.parametrize(
    ("column", "epsilon"),
    [
        ("epsilon", 0.75),
        ("config/epsilon", 0.75),
        ("run.hparams.sampling_params.epsilon", 0.75),
        ("actor_rollout_ref.rollout.epsilon", 0.75),
        ("actor/epsilon", 0.75),
        ("tool.epsilon", None),
        ("critic/epsilon", None),
        ("rollout/epsilon", None),  # measured?
        ("config/tool/epsilon", None),
        ("config/critic/epsilon", None),
    ],
)
def test_a_column_is_a_setting_by_its_whole_path(column: str, epsilon: float | None, tmp_path: Path) -> None:
    found = read(tmp_path, f"step,reward,{column}\n1,0.5,0.75\n2,0.25,0.75\n")
    assert found.case.settings.epsilon == epsilon
    twice = read(tmp_path, f"step,reward,{column},params.epsilon\n1,0.5,0.75,1\n2,0.25,0.75,1\n")
    assert twice.case.settings.epsilon == (None if epsilon else 1.0)


NAN = "_step,train/reward,train/kl,train/loss,eval/reward\n"


def test_nan_where_nothing_was_logged_is_nothing(tmp_path: Path) -> None:
    """As pandas writes a dashboard's history: evaluations have rows of their own, training has NaN there."""
    rows = "".join(f"{at},0.{at},0.01,0.1,NaN\n{at + 10},NaN,NaN,NaN,0.5\n" for at in range(1, 6))
    found = read(tmp_path, NAN + rows)
    assert [row.get("reward/mean") for row in found.case.rows] == [0.1, 0.2, 0.3, 0.4, 0.5, *[None] * 5]
    assert not any(None in row.values() for row in found.case.rows)
    assert any("NaN on 10 of 10 rows is taken for nothing" in note for note in found.notes)


@pytest.mark.parametrize("bad", ["0.5,NaN,NaN,", "NaN,0.01,NaN,", "0.5,inf,NaN,"])
def test_nan_beside_numbers_of_its_kind_is_one(bad: str, tmp_path: Path) -> None:
    found = read(tmp_path, NAN + "".join(f"{at},0.5,0.01,0.1,\n" for at in range(1, 6)) + f"6,{bad}\n7,0.5,0.01,0.1,\n")
    assert found.case.rows[5]["loss"] is None


def test_shares_with_nan_between_are_shares(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "step,reward,frac_reward_zero_std\n" + "".join(f"{at},0.5,{'NaN' if at % 2 else 0.25}\n" for at in range(9)),
    )
    assert [row["groups/dead"] for row in found.case.rows if row.get("groups/dead") is not None] == [0.25] * 5


def test_what_a_long_table_leaves_out_is_said(tmp_path: Path) -> None:
    text = (
        "metric,step,value,wall_time\nreward,1,0.5,1\nreward,,0.6,2\nreward,nan,0.6,2\nreward,1,0.75,3\nwarmth,1,5,3\n"
    )
    found = read(tmp_path, text)
    assert [row["reward/mean"] for row in found.case.rows] == [0.75]
    assert [note for note in found.notes if "line" in note] == [
        "1 lines of metrics that no rule reads are left out",
        "2 lines without a step are left out",
        "1 lines tell another value of a metric and step: the last one stands",
    ]
    with pytest.raises(SpecError, match=r"no metric is known \(warmth\); --map"):
        read(tmp_path, "metric,step,value\nwarmth,1,5\n")
    assert read(tmp_path, "metric,step,value\nwarmth,1,5\n", warmth="kl").case.rows[0]["kl"] == 5


def test_steps_of_a_long_table_that_are_no_whole_numbers_stay_in_their_order(tmp_path: Path) -> None:
    lines = "".join(f'{metric},"{step}",0.{step[0]}\n' for metric in ("reward", "kl") for step in ("900", "1k", "2k"))
    rows = read(tmp_path, "metric,step,value\n" + lines).case.rows
    assert [(row["reward/mean"], row["kl"]) for row in rows] == [(0.9, 0.9), (0.1, 0.1), (0.2, 0.2)]
    mixed = read(tmp_path, "metric,step,value\nreward,12,0.5\nreward,2,0.4\nkl,12.0,0.1\n").case.rows
    assert [(row["step"], row["reward/mean"], row.get("kl")) for row in mixed] == [(2, 0.4, None), (12, 0.5, 0.1)]


def test_a_table_with_metrics_beside_a_value_is_no_long_one(tmp_path: Path) -> None:
    rows = read(tmp_path, "key,step,value,reward\nk1,1,1.5,0.25\nk2,2,1.5,0.5\n").case.rows
    assert [row["reward/mean"] for row in rows] == [0.25, 0.5]
    counted = read(tmp_path, "metric,iteration,step,value\nreward,1,10,0.5\nreward,2,20,0.25\n").case.rows
    assert [(row["step"], row["reward/mean"]) for row in counted] == [(10, 0.5), (20, 0.25)]


def test_a_mapped_column_of_a_long_table_is_taken_as_it_is(tmp_path: Path) -> None:
    rows = read(tmp_path, "metric,step,value\nx,1,0.5\nx,2,0.25\n", value="reward/mean").case.rows
    assert [row["reward/mean"] for row in rows] == [0.5, 0.25]


def test_a_panel_of_several_runs_is_each_of_them(tmp_path: Path) -> None:
    text = (
        '"Step","p31 - train/reward","p31 - train/reward__MIN","p30 - train/reward"\n"1","0.5","0.25","0.4"\n'
        '"2","","","0.3"\n'
    )
    found = read(tmp_path, text)
    assert [(row["step"], row["reward/mean"]) for row in found.case.rows] == [(1, 0.5)]  # its own rows alone
    assert [row["reward/mean"] for row in found.further[0].case.rows] == [0.4, 0.3]
    assert (found.run, [one.run for one in found.further]) == ("p31", ["p30"])
    file = tmp_path / "table.csv"
    asked = Source(name="table.csv", path=file, columns={"p30 - train/reward": "reward/mean"})
    assert (READER.read(asked).case.rows[0]["reward/mean"], READER.read(asked).further) == (0.4, ())
    timed = read(tmp_path, "Relative Time (Process),a - reward,b - reward,a - warmth,b - warmth\n1,0.5,0.25,1,1\n")
    assert [one.case.rows[0]["reward/mean"] for one in (timed, *timed.further)] == [0.5, 0.25]
    splits = read(tmp_path, "Step,train - reward,eval - reward\n1,0.5,0.25\n").case.rows
    assert (splits[0]["reward/mean"], splits[0]["eval/reward"]) == (0.5, 0.25)
