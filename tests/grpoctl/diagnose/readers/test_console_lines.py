"""Metrics in the lines of other trainers' logs: verl, OpenRLHF, notebooks, tables, prints; wrapped and repeated."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from grpoctl.diagnose.readers.console_lines import LineParser, Logged
from grpoctl.diagnose.readers.metric_names import name_of
from grpoctl.diagnose.readers.text import Line


def parse(*lines: str, columns: dict[str, str] | None = None) -> tuple[list[Logged], LineParser]:
    parser = LineParser(columns or {})
    entries = [entry for number, text in enumerate(lines, 1) for entry in parser.feed(Line(number, text))]
    return [*entries, *parser.finish()], parser


def cells(entries: Iterable[Logged]) -> list[dict[str, float | None]]:
    return [dict(entry.cells) for entry in entries]


VERL = (
    "step:{} - actor/entropy:{} - actor/grad_norm:np.float64(0.25) - timing_s/gen:33.2 - mine/other:7 - "
    "critic/score/mean:{}"
)


def test_verl() -> None:
    entries, parser = parse(
        "(TaskRunner pid=12) " + VERL.format(1, 0.5, 0.25),
        "noise",
        "(main_task pid=12, ip=1.2.3.4) " + VERL.format(2, "nan", 0.5),
    )
    assert [(entry.form, entry.step) for entry in entries] == [("verl", 1), ("verl", 2)]
    assert cells(entries)[0] == {"step": 1.0, "actor/entropy": 0.5, "actor/grad_norm": 0.25, "critic/score/mean": 0.25}
    assert math.isnan(cells(entries)[1]["actor/entropy"] or 0.0)  # it was measured
    assert parser.unknown == {"mine/other"}


def test_verl_lines_of_another_order_and_length() -> None:
    entries, _ = parse(
        "step:1 - actor/entropy:0.5 - actor/kl_loss:0.1",
        "step:2 - actor/kl_loss:0.2 - actor/entropy:0.6",
        "step:3 - val-core/gsm8k/acc/mean@1:0.7 - actor/kl_loss:0.3 - actor/entropy:0.7",
    )
    assert [(row["actor/entropy"], row["actor/kl_loss"]) for row in cells(entries)] == [
        (0.5, 0.1),
        (0.6, 0.2),
        (0.7, 0.3),
    ]
    assert cells(entries)[2]["val-core/gsm8k/acc/mean@1"] == 0.7


def test_what_verl_prints_between_many_steps_is_no_other_form() -> None:
    sample, prose = "[score] Reward: 0.9 kl: 3.0", "[prompt] Who scored in game 3? It was a reward."
    validation = "{'eval_reward': 0.5, 'kl': 0.25}"
    steps = [VERL.format(step, 0.5, 0.25) for step in range(1, 61)]
    entries, parser = parse(*(line for step in steps for line in (step, sample, prose)), validation)
    forms = [entry.form for entry in entries]
    assert [forms.count(form) for form in ("verl", "pairs", "dictionary")] == [60, 49, 1]  # of the first 50 steps
    assert parser.unknown == {"mine/other"}
    assert [(kind.line, kind.text, kind.count) for kind in parser.unread.values()] == [(149, sample, 11)]
    entropy = [f"step:{step} - actor/entropy:0.5" for step in range(1, 61)]
    entries, _ = parse(*(line for step in entropy for line in (step, sample)))
    assert [entry.form for entry in entries].count("pairs") == 60  # that alone tell the reward


def test_a_rate_that_was_printed_with_three_decimals_is_not_zero() -> None:
    ((rounded, exact), _) = parse(
        "step:1 - actor/lr:0.000 - actor/entropy:0.5", "step:2 - actor/lr:0.0 - actor/entropy:0.5"
    )
    assert "actor/lr" not in rounded.cells
    assert exact.cells["actor/lr"] == 0.0


def test_a_dictionary_that_a_terminal_wrapped() -> None:
    entries, _ = parse(
        "  1%|#         | 1/100 [00:31<51:00, 31.0s/it]{'loss': 0.0, 'grad_norm': 0.123, 'learning_r",
        "ate': 1e-06, 'completions/clipp",
        "ed_ratio': 1.0, 'reward': 0.25}",
        "{'loss': 0.5, 'gra{'loss': 0.1, 'reward': 0.5}",  # another rank in the middle
    )
    assert cells(entries)[0] == {
        "loss": 0.0, "grad_norm": 0.123, "learning_rate": 1e-6, "completions/clipped_ratio": 1.0, "reward": 0.25,
    }  # fmt: skip
    assert cells(entries)[1] == {"loss": 0.1, "reward": 0.5}
    assert entries[0].bar == 1


def test_a_step_before_a_dictionary() -> None:
    (entry,), _ = parse("(PPOTrainer pid=5) Global step 7: {'policy_loss': -0.001, 'reward': 0.41, 'kl': tensor(0.5)}")
    assert (entry.step, entry.cells) == (7, {"policy_loss": -0.001, "reward": 0.41, "kl": 0.5})


@pytest.mark.parametrize(
    "lines",
    [
        ("Step\tTraining Loss\treward\tcompletions / mean_length", "10\t0.000100\t0.5\t120.5", "20\tNo log\t0.75\t118"),
        ("| Step | Training Loss | reward | completions/mean_length |", "|---|:---|---|---|",
         "| 10 | 0.000100 | **0.5** | ~120.5 |", "| 20 | - | 0.75 | 118 |"),
        ("│ step │ loss │ reward │ completions/mean_length │", "├──────┼─────┼─────┼─────┤",
         "│ 10 │ 0.0001 │ 0.5 │ 120.5 │", "│ 20 │ │ 0.75 │ 118 │"),
    ],
)  # fmt: skip
def test_tables(lines: tuple[str, ...]) -> None:
    entries, _ = parse(*lines, "and text after it")
    assert [(entry.form, entry.step) for entry in entries] == [("table", 10), ("table", 20)]
    first, second = cells(entries)
    assert [value for name, value in first.items() if name != "step"] == [0.0001, 0.5, 120.5]
    assert [value for name, value in second.items() if name != "step"] == [0.75, 118.0]


@pytest.mark.parametrize(
    ("line", "step", "named"),
    [
        ("Step 3/200 | mean reward: 0.3 | KL: 0.02 | 12.3s", 3, {"mean reward": 0.3, "KL": 0.02}),
        ("[2025-01-01 10:00:01] INFO iter=4 loss=1e-3 reward=50%", 4, {"loss": 0.001, "reward": 0.5}),
        ("episode 5 -> reward = -0.5, entropy=nan", 5, {"reward": -0.5}),
        ("│ reward/mean │ 0.5 │ grad_norm │ 1.5 │", None, {"reward/mean": 0.5, "grad_norm": 1.5}),
        (
            "Train epoch [1/1]: 50%|##| 2/4 [00:03<00:01, policy_loss=-0.001, kl=0.25]",
            None,
            {"policy_loss": -0.001, "kl": 0.25},
        ),
    ],
)
def test_pairs(line: str, step: int | None, named: dict[str, float]) -> None:
    (entry,), _ = parse(line)
    assert (entry.form, entry.step) == ("pairs", step)
    assert {name: value for name, value in entry.cells.items() if math.isfinite(value or 0.0)} == named


@pytest.mark.parametrize(
    ("line", "mean", "dead"),
    [
        ("[step 1/200] correct=2/4 rewards=['0.80', '0.00', '1.00', '0.20'] loss=0.0020", 0.5, 0.0),
        ('{"step": 4, "rewards": [0.5, 0.5], "loss": 0.1}', 0.5, 1.0),
        ("time: 7.18s   rewards: tensor([-1.0000, -0.5000])  loss: 0.1", -0.75, 0.0),
        ("time: 7.18s   rewards: tensor([-1., -1., -1.], device='cuda:0')  loss: 0.1", -1.0, 1.0),
        ("step 3: loss=0.1 rewards=[np.float64(0.25), tensor(0.75, device='cuda:0')]", 0.5, 0.0),
        (f"step 3 rewards: {[0.0, 1.0] * 16} loss: 0.1", 0.5, None),  # may be several groups
        ('{"step": 4, "rewards": ["good", "bad"], "loss": 0.1}', None, None),
        ('{"step": 4, "eval": {"rewards": [0.5, 0.5]}, "loss": 0.1}', None, None),  # not of a training step
    ],
)
def test_a_list_of_rewards(line: str, mean: float | None, dead: float | None) -> None:
    """So few as a group has are one group, which is dead where all are equal."""
    entries, _ = parse(line)
    (row,) = cells(entries)
    assert (row.get("reward/mean"), row.get("groups/dead")) == (mean, dead)
    assert row["loss"] is not None


@pytest.mark.parametrize(
    ("line", "dead"),
    [
        ("advantages is tensor([0., 0., 0., 0., 0.], device='mps:0') loss: 0.1", 1.0),
        ("step 3 advantages=[0.5, -0.5] loss: 0.1", 0.0),
        ("step 3 advantages: [ 1.2 -0.4  -0.8] loss: 0.1", 0.0),  # as numpy prints it
        ('{"step": 4, "advantages": [0.0, 0.0], "loss": 0.1}', 1.0),
        (f"step 3 advantages: {[0.0, 1.0] * 16} loss: 0.1", None),  # may be several groups
        ("step 3 advantages: [good, bad] loss: 0.1", None),
        ("step 3 advantages: [0.5 0.5 0.5] loss: 0.1", None),  # of one completion's tokens: a group's add up to 0
        ('{"step": 4, "advantages": [0.5, 0.5], "loss": 0.1}', None),
    ],
)
def test_a_list_of_advantages(line: str, dead: float | None) -> None:
    entries, _ = parse(line)
    (row,) = cells(entries)
    assert row.get("groups/dead") == dead
    assert row["loss"] is not None


def test_rewards_of_an_evaluation_are_no_steps_rewards() -> None:
    entries, _ = parse("step 3 eval rewards: tensor([1., 1.]) loss: 0.1")
    assert all("reward/mean" not in row for row in cells(entries))


def test_a_bracket_that_stays_open_takes_no_time() -> None:
    for begin in ("rewards: tensor(", "kl=np.float64(", "rewards: ["):
        assert parse(f"step 3: loss=0.1 {begin}{' ' * 20_000}x")  # else minutes


def test_the_best_reward_of_a_run_is_no_steps_reward() -> None:
    entries, _ = parse("Ep 000 | mean_ret=-6.5 | loss=0.0139", "Training complete. Best mean return: -0.437")
    assert [row.get("mean_ret") for row in cells(entries)] == [-6.5]


def test_a_capital_r_is_the_reward_and_a_small_one_is_not() -> None:
    entries, _ = parse("step 1: R=-33.5 kl_loss=0.1", "step 2: r=16 kl_loss=0.2")
    assert [{name_of(name): value for name, value in row.items()}.get("reward/mean") for row in cells(entries)] == [
        -33.5,
        None,
    ]


def test_mapped_names_and_what_was_not_read() -> None:
    lines = ("avg_r=0.5 foo=1", "avg_r=0.6 foo=2")
    nothing, parser = parse(*lines)
    assert nothing == []
    ((names, unread),) = parser.unread.items()
    assert (names, unread.line, unread.count) == (("avg_r", "foo"), 1, 2)
    entries, _ = parse(*lines, columns={"avg_r": "reward/mean"})
    assert cells(entries) == [{"avg_r": 0.5}, {"avg_r": 0.6}]


@pytest.mark.parametrize(
    "line",
    [
        "learning_rate: 1e-5",
        "{'learning_rate': 1e-06, 'beta': 0.1}",
        "loading 3/4",
        "12:30:45 started",
        "a = b",
        "reward = +1 if solved / −1 if broken / 0 otherwise",
        "{" * 5000,
    ],
)
def test_no_metrics(line: str) -> None:
    assert parse(line)[0] == []


def courses(*lines: str) -> list[dict[str | None, float | None]]:
    """The rows of what lines tell along the run, by our names."""
    entries, _ = parse(*lines)
    return [
        {name_of(name): value for name, value in entry.cells.items()} for entry in entries if entry.form == "stretches"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "reward by step (4 steps): 0.85, 0.57, 0.53, 0.93",
        "**Mean reward per epoch**: 0.85, 0.57, 0.53, 0.93",
        "reward_history = [0.85, 0.57, 0.53, 0.93]",
        "In the first run the reward trend: 0.85 -> 0.57 -> 0.53 -> 0.93.",
    ],
)
def test_a_list_of_values_along_the_run_is_its_course(line: str) -> None:
    assert [row["reward/mean"] for row in courses(line)] == [0.85, 0.57, 0.53, 0.93]


@pytest.mark.parametrize(
    "line",
    [
        "reward weights per step: 0.85, 0.57, 0.53, 0.93",  # no metric
        "reward by step: 0.85, 0.57",  # two are no course
        "reward by step: 0.85, 0.57, see the figure, 0.93",
        "reward: 0.85, 0.57, 0.53, 0.93",  # of what?
    ],
)
def test_other_lists_are_none(line: str) -> None:
    assert courses(line) == []


def test_courses_of_several_metrics_stand_together() -> None:
    entries, _ = parse("lr 1e-6", "reward by step: 0.1, 0.2, 0.3", "KL by step: 0.001, 0.5, 2", "length trend: 9, 8, 7")
    assert [entry.form for entry in entries if "reward" in entry.cells] == ["stretches"] * 3  # no pair of the first
    assert courses("reward by step: 0.1, 0.2, 0.3", "KL by step: 0.001, 0.5, 2") == [
        {"reward/mean": 0.1, "kl": 0.001},
        {"reward/mean": 0.2, "kl": 0.5},
        {"reward/mean": 0.3, "kl": 2.0},
    ]


def test_a_list_by_step_has_steps_and_another_has_parts_of_the_run() -> None:
    by_step, _ = parse("reward by step: 0.1, 0.2, 0.3")
    assert [(entry.step, entry.part) for entry in by_step] == [(1, False), (2, False), (3, False)]
    along, _ = parse("reward trend: 0.1 -> 0.2 -> 0.3")
    assert [(entry.step, entry.part) for entry in along] == [(None, True)] * 3


def test_steps_that_a_list_states_otherwise_are_not_its_rows() -> None:
    for line in ("reward by step (every 50 steps): 0.1, 0.2, 0.3", "reward by step (10, 20, 30): 0.1, 0.2, 0.3"):
        entries, _ = parse(line)
        assert [(entry.step, entry.part) for entry in entries if entry.cells] == [(None, True)] * 3
    grows = parse("reward by step: 0.1, 0.2, 0.3", "reward by step: 0.1, 0.2, 0.3, 0.4")[0]
    assert [entry.cells["reward"] for entry in grows if entry.cells] == [0.1, 0.2, 0.3, 0.4]


def test_thousands_and_lists_without_blanks() -> None:
    assert [row["reward/mean"] for row in courses("reward by step: 1,024, 1,100, 998")] == [1024, 1100, 998]
    assert [row["reward/mean"] for row in courses("reward_history=[0.1,0.2,0.3]")] == [0.1, 0.2, 0.3]


def test_how_often_something_was_so_is_no_value_of_it() -> None:
    entries, _ = parse("| steps with `actor/loss = 0` | **8/9 = 89%** |", "| share of `reward = 1` | 12 % | |")
    assert [entry for entry in entries if entry.cells] == []
    told, _ = parse("| reward=0.5 | kl=0.1 |")
    assert cells(told) == [{"reward": 0.5, "kl": 0.1}]


@pytest.mark.parametrize(
    "reward",
    [
        "0.25", "'0.25'", '"0.25"', "2.5e-1", ".25", "+0.25", "np.float64(0.25)", "0.25, 'done': True",
        "0.25, 'done': true", "0.25, 'said': \"it's\"", "0.25, 'said': 'a \"quote\"'",
        "0.25, 'said': '\", \"reward\": \"'", r"0.25, 'said': 'it\'s'", "0.5, 'reward': 0.25", "0.2_5",
    ],
)  # fmt: skip
def test_a_dictionary_in_pythons_spelling_and_in_jsons(reward: str) -> None:
    text = f"{{'loss': 0.5, 'reward': {reward}}}"
    for line in (text, text.replace("'", '"')) if '"' not in text and "True" not in text else (text,):
        assert cells(parse(line)[0])[0]["reward"] == 0.25


@pytest.mark.parametrize("number", ["nan", "NaN", "inf", "-Infinity", "1e999"])
def test_a_number_that_is_none_in_either_spelling(number: str) -> None:
    for line in (f"{{'loss': 0.5, 'reward': {number}}}", f'{{"loss": 0.5, "reward": {number}}}'):
        assert not math.isfinite(cells(parse(line)[0])[0]["reward"] or 0.0)
