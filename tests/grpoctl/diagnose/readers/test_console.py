"""Dictionaries that a trainer printed, among everything else that a log has."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from core.health.examine import examine
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.console import READER
from grpoctl.diagnose.readers.console_lines import LineParser
from grpoctl.diagnose.readers.text import Line

PLAIN = """\
Loading weights: 100%|##########| 290/290 [00:01<00:00, 200it/s]
`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.
{'loss': 0.0, 'grad_norm': 1.25, 'learning_rate': 1e-06, 'reward': 0.25, 'reward_std': 0.5, 'kl': 0.0, 'epoch': 0.01}
some {braces} and {'a': 'dictionary of nothing'} and {'loss': broken}
{'eval_loss': 0.5, 'eval_reward': 0.75, 'eval_runtime': 3.0}
{'loss': 0.1, 'grad_norm': nan, 'learning_rate': 9e-07, 'reward': 0.5, 'reward_std': inf, 'epoch': 0.02}
{'train_runtime': 40.2, 'train_loss': 0.05, 'epoch': 0.02}
"""
# What transformers 5 and tqdm make of it: text for numbers, and a bar that is drawn over itself.
NOISY = (
    "  0%|          | 0/400 [00:00<?, ?it/s]\r  0%|  | 1/400 [00:01<07:00]{'loss': '0', 'reward': '0.5'}\r\n"
    "  1%|          | 2/400 [00:02<07:00, 1.0s/it]\r{'loss': '0.125', 'grad_norm': 'nan', 'reward': '0.25'}\n"
    "Writing model shards: 100%|##| 1/1 [00:00<00:00]\n"
    "  1%|  | 3/400 [00:03<07:00]\r  1%|  | 4/400 [00:04<07:00]{'loss': '1e-06', 'reward': '1'}{'eval_reward': '0.9'}\n"
)


def read(tmp_path: Path, text: str) -> Reading:
    (tmp_path / "run.log").write_text(text)
    asked = Source(name="run.log", path=tmp_path / "run.log")
    assert READER.knows(asked)
    return READER.read(asked)


def test_dictionaries_become_rows(tmp_path: Path) -> None:
    found = read(tmp_path, PLAIN)
    first, second = found.case.rows
    assert first == {
        "step": 1.0, "update": 1.0, "loss": 0.0, "grad_norm": 1.25, "learning_rate": 1e-6, "reward/mean": 0.25,
        "reward/std": 0.5, "kl": 0.0, "eval/loss": 0.5, "eval/reward": 0.75,
    }  # fmt: skip
    assert (second["step"], second["grad_norm"], second["reward/std"]) == (2.0, None, None)
    assert any("no step numbers" in note for note in found.notes)


def test_library_warnings_are_cited_by_line(tmp_path: Path) -> None:
    (notice,) = read(tmp_path, PLAIN).case.notices
    assert (notice.kind, notice.line) == ("cache-disabled-by-checkpointing", 2)


def test_steps_come_from_the_progress_bar(tmp_path: Path) -> None:
    found = read(tmp_path, NOISY)
    assert [row["step"] for row in found.case.rows] == [1.0, 2.0, 4.0]
    assert [row["loss"] for row in found.case.rows] == [0.0, 0.125, 1e-6]
    assert found.case.rows[-1]["eval/reward"] == 0.9
    assert found.case.settings.max_steps == 400
    assert "steps are the progress bar's" in found.notes


def test_a_bar_that_lags_numbers_nothing(tmp_path: Path) -> None:
    bars = "".join(f" | {bar}/9 [00:01<00:09]{{'loss': 0.{bar}}}\n" for bar in (1, 1, 3))
    found = read(tmp_path, bars)
    assert [row["step"] for row in found.case.rows] == [1.0, 2.0, 3.0]


def _marked(marks: list[int], first: str = "") -> str:
    lines = (f'{{"step": {at}, "update": {mark}, "reward": 0.5}}' for at, mark in enumerate(marks, 1))
    return first + "\n".join(lines) + "\n"


def test_json_lines_mark_the_steps_that_moved_weights(tmp_path: Path) -> None:
    found = read(tmp_path, _marked([0, 1, 0, 1]))
    assert [row["update"] for row in found.case.rows] == [0.0, 1.0, 0.0, 1.0]
    assert not any("left out" in note for note in found.notes)


def test_json_lines_that_count_updates_mark_nothing(tmp_path: Path) -> None:
    found = read(tmp_path, _marked([1, 2, 3, 4]))
    assert [row["update"] for row in found.case.rows] == [1.0] * 4
    assert "columns left out, for no rule reads them: update" in found.notes


def test_json_lines_begin_with_an_evaluation_before_training(tmp_path: Path) -> None:
    before = '{"step": 0, "completions": 0, "tokens": 0, "eval/reward": 0.25, "rollout/noise": 4e-6}\n'
    found = read(tmp_path, _marked([0, 1, 0, 1], before))
    assert [row["step"] for row in found.case.rows] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert "update" not in found.case.rows[0]
    assert not any("counts from 0" in note for note in found.notes)


def test_json_lines_with_their_own_steps(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        '{"step": 10, "loss": 0.5, "grad_norm": NaN}\n{"step": 20, "loss": null, "reward": 1, "eval_reward": null}\n',
    )
    first, second = found.case.rows
    assert first == {"step": 10.0, "update": 1.0, "loss": 0.5, "grad_norm": None}  # measured, and no number
    assert second == {"step": 20.0, "update": 1.0, "reward/mean": 1.0}  # null is what exports write for "not logged"
    assert found.case.averaged_over == 10


def test_a_packed_log_that_was_cut_off(tmp_path: Path) -> None:
    lines = "".join(f"{{'loss': 0.{number:06d}, 'reward': 0.5}}\n" for number in range(20_000))
    packed = gzip.compress(lines.encode())
    (tmp_path / "run.log.gz").write_bytes(packed[: len(packed) // 2])
    found = READER.read(Source(name="run.log.gz", path=tmp_path / "run.log.gz"))
    assert 1000 < len(found.case.rows) < 20_000
    assert any("cut off" in note for note in found.notes)


@pytest.mark.parametrize(
    "text",
    [
        "no dictionary\n",
        "{'a': 1}\n{'loss': 'high'}\n",  # none of it a metric with a number
        "{'loss': __import__('os').system('true')}\n",  # read, never run
        "{'loss': " + "(" * 9000 + "}\n",
        "{'loss': 1",
        "{'loss': [0.1]}\n",
    ],
)
def test_what_is_no_log(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(text)
    assert not READER.knows(Source(name="run.log", path=tmp_path / "run.log"))


def test_a_line_of_ten_megabytes(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("{" * 10_000_000 + "\n{'loss': 0.5}\n")
    found = READER.read(Source(name="run.log", path=tmp_path / "run.log"))
    assert [row["loss"] for row in found.case.rows] == [0.5]


def test_copies_that_do_not_stand_together_count_once(tmp_path: Path) -> None:
    # Two processes, the second one a step behind and killed before its last; how long a step took is each one's own.
    def line(step: int, took: float) -> str:
        return f"{{'loss': 0.5, 'grad_norm': nan, 'reward': 0.5, 'num_tokens': {100 * step}, 'step_time': {took}}}\n"

    lines = [line(1, 1.5), line(2, 1.5), line(1, 1.25), line(3, 1.5), line(2, 1.25), line(4, 1.5)]
    found = read(tmp_path, "".join(lines))
    assert [row["step"] for row in found.case.rows] == [1.0, 2.0, 3.0, 4.0]
    assert any(note.startswith("2 dictionaries") and "processes" in note for note in found.notes)
    alone = read(tmp_path, "".join(line(step, 1.5) for step in (1, 2, 3)))
    assert not any("processes" in note for note in alone.notes)
    # Without anything that counts, equal rows may be a reward that stands still.
    still = "".join(f"{{'loss': 0.0, 'reward': {reward}, 'epoch': 0.01}}\n" for reward in (0.5, 0.25, 0.5, 0.5))
    assert len(read(tmp_path, still).case.rows) == 4


def test_copies_of_several_processes_count_once(tmp_path: Path) -> None:
    lines = [f"{{'loss': 0.{step}, 'reward': 0.5}}\n" for step in (1, 2, 3)]
    file = tmp_path / "a.log"
    file.write_text("".join(line * 2 for line in lines))
    found = READER.read(Source(name="a.log", path=file))
    assert [row["loss"] for row in found.case.rows] == [0.1, 0.2, 0.3]
    assert any("each dictionary is there 2 times" in note for note in found.notes)
    file.write_text(lines[0] * 2 + lines[1] + lines[2] * 2)  # a metric that stood still: 2, 1 and 2 in a row
    assert len(READER.read(Source(name="a.log", path=file)).case.rows) == 5


def test_only_the_form_that_is_read_says_how_long_the_log_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpoctl.diagnose.readers.console._KEPT", 8)
    pairs = "".join(f"loss={step / 100}\n" for step in range(1, 21))
    rows = "".join(f"{{'loss': 0.5, 'reward': 0.{step}, 'step': {step}}}\n" for step in range(1, 6))
    reading = read(tmp_path, pairs + rows)
    assert (len(reading.case.rows), reading.case.averaged_over) == (5, 1)
    assert not any("read as their mean" in note for note in reading.notes)
    long = read(tmp_path, pairs)
    assert (len(long.case.rows), long.case.averaged_over) == (5, 4)  # 20 rows, two halvings of eight
    assert long.case.rows[0]["loss"] == pytest.approx(0.025)  # of 0.01 to 0.04


# A step in the words of other trainers, loggers and languages; {n} is the step, {r} the reward, {k} the KL.
SPELLINGS = {
    "verl's file logger": '{{"step": {n}, "data": {{"critic/score/mean": {r}, "actor/kl_loss": {k}}}}}',
    "a printed list of pairs": "step {n}\n[('critic/score/mean', {r}),\n ('actor/kl_loss', np.float64({k}))]",
    "a block a step": "--- Step {n} ---\n  Reward              : {r}\n  KL Div              : {k}",
    "Chinese": "第{n}步 | 平均奖励：{r}，KL散度：{k}，截断率：0.1",
    "Chinese with pairs": "[INFO] 步骤 {n}/500: 奖励={r}，KL={k}",
    "Japanese": "ステップ {n}: 平均報酬 {r}, KL {k}",
    "an episode's bar": "Episode [1/1]:   1%|▏  | {n}/400 [01:02<5:01:22, 21.2s/it, kl={k}, reward={r}]",
    "a mean and what is beside it": "[diagnosis@step{n}] KL: mean={k}, min=0.001, max=2.5\n[step {n}] reward: avg={r}",
    "torchtune": "Step {n} | loss:0.01 kl_loss:{k} rewards:{r} successes:0.5",
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_a_step_in_other_words_is_one_row(text: str, tmp_path: Path) -> None:
    steps = [(1, 0.25, 0.001), (2, 0.5, 0.002), (3, 0.75, 0.004)]
    found = read(tmp_path, "\n".join(text.format(n=n, r=r, k=k) for n, r, k in steps) + "\n")
    assert [(row["step"], row["reward/mean"], row["kl"]) for row in found.case.rows] == steps


def test_sums_of_completions_are_no_metrics(tmp_path: Path) -> None:
    lines = "loss: 0.1 and kl: 0.01\n**Total score:** 70 + 85 = 155 points\n* Desired total score = 84 * 5 = 420\n"
    assert all("reward/mean" not in row for row in read(tmp_path, lines * 5).case.rows)


def test_dictionaries_that_take_turns_are_one_row_a_step(tmp_path: Path) -> None:
    lines = [
        f"{{'reward': {r}, 'completions/mean_length': 9}}\n{{'loss': 0.5, 'kl': {k}}}" for r, k in ((1, 2), (3, 4))
    ]
    numbered = [f"rollout {n}: {{'rollout/raw_reward': {n}.5}}\nstep {n}: {{'train/kl_loss': 0.1}}" for n in (1, 2, 3)]
    assert [(row["reward/mean"], row["kl"]) for row in read(tmp_path, "\n".join(lines)).case.rows] == [(1, 2), (3, 4)]
    rows = read(tmp_path, "\n".join(numbered)).case.rows
    assert [(row["step"], row["reward/mean"], row["kl"]) for row in rows] == [(n, n + 0.5, 0.1) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("rates", "known"), [(("0.00000", "0.00000"), 0), (("0.00000", "0.00001"), 2), (("0.0", "0.0"), 2)]
)
def test_a_rate_that_is_rounded_away_is_not_known(rates: tuple[str, str], known: int, tmp_path: Path) -> None:
    text = "\n".join(f"step {n}: reward: 0.5, loss: 0.01, lr: {rate}" for n, rate in enumerate(rates, 1))
    assert sum("learning_rate" in row for row in read(tmp_path, text).case.rows) == known


def test_a_kl_that_is_rounded_away_is_not_known(tmp_path: Path) -> None:
    """Of a KL of 0.0000 nobody knows whether anything moved; one that is printed as 0.0 is measured."""
    lines = [f"step {n}: reward: 0.5, kl: 0.0000, entropy: 1.25" for n in range(1, 5)]
    assert not any("kl" in row for row in read(tmp_path, "\n".join(lines)).case.rows)
    exact = "\n".join(lines).replace("0.0000", "0.0")
    assert [row["kl"] for row in read(tmp_path, exact).case.rows] == [0.0] * 4


@pytest.mark.parametrize(
    ("epochs", "excerpt"),
    [
        (("0.85",), False),  # of one row nobody knows
        (("0.5", "0.51", "0.52"), True),
        (("1.2", "1.2", "1.2"), True),  # 0.01 apart at most, as older versions round
        (("1", "1", "1"), False),  # counted from 1
        (("0.5", "0.01", "0.02"), False),  # it goes back: of two runs
        (("nan", "0.51", "0.52"), False),
        (("0.01", "0.02", "0.03"), False),
        (("0.1", "0.2", "0.3"), False),
        (("0.09", "0.1", "0.11"), False),  # fewer than ten rows before it may be rounding
    ],
)
def test_by_its_epoch_an_excerpt_does_not_begin_where_the_run_does(
    epochs: tuple[str, ...], excerpt: bool, tmp_path: Path
) -> None:
    rows = "".join(f"{{'loss': 0.12345, 'reward': 0.5, 'kl': 0.4, 'epoch': {epoch}}}\n" for epoch in epochs)
    found = read(tmp_path, rows)
    assert found.case.excerpt == excerpt
    assert any("not the run's first" in note for note in found.notes) == excerpt
    # A KL that is high on the run's first row is the reference's; on any other row it may have been learned.
    assert ("reference-mismatch" in {one.id for one in examine(found.case)}) == (not excerpt)


def test_rewards_that_come_after_fifty_rows_of_another_stage_decide_the_form(tmp_path: Path) -> None:
    supervised = "".join(f"{{'loss': {3.0 - i / 50}, 'learning_rate': 1e-05}}\n" for i in range(100))
    rewarded = "".join(f"{{'loss': 0.1, 'reward': 0.{i}, 'kl': 0.01}}\n" for i in range(10, 20))
    found = read(tmp_path, f"{supervised}{rewarded}| step | reward |\n|---|---|\n| 1 | 0.5 |\n")
    assert sum("reward/mean" in row for row in found.case.rows) == 10


def test_a_table_of_rewards_goes_before_a_longer_one_of_supervised_losses(tmp_path: Path) -> None:
    supervised = "".join(f"{step}\t{2.0 - step / 100:.4f}\n" for step in range(1, 51))
    rewarded = "".join(f"{step}\t0.0001\t0.{step}\t0.001\n" for step in range(1, 7))
    text = f"Step\tTraining Loss\n{supervised}\nTraining\n\nStep\tTraining Loss\treward\tkl\n{rewarded}"
    rows = read(tmp_path, text).case.rows
    assert [row["reward/mean"] for row in rows] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def test_a_set_of_a_dictionary_is_no_row(tmp_path: Path) -> None:
    found = read(tmp_path, PLAIN + "{{'a': {'b': 1}}}\n{{'loss': {}}}\n")
    assert found.case.rows == read(tmp_path, PLAIN).case.rows


def test_a_last_evaluation_does_not_take_the_place_of_all_rewards_before_it(tmp_path: Path) -> None:
    losses = "".join(f"{{'loss': {3.0 - i / 50}, 'learning_rate': 1e-05}}\n" for i in range(60))
    rewards = "".join(f"step {i}: reward={i / 100} kl=0.01\n" for i in range(1, 41))
    found = read(tmp_path, f"{losses}{rewards}{{'reward': 0.9, 'loss': 0.1}}\n")
    assert [row.get("reward/mean") for row in found.case.rows] == [i / 100 for i in range(1, 41)]


def dictionaries(count: int, every: int, of_epoch: float = 0.02, begin: int = 0) -> str:
    """TRL's rows of every so many steps, a step being 0.02 of an epoch."""
    rows = range(1, count + 1)
    return "".join(
        f"{{'loss': 0.12345, 'reward': 0.5, 'kl': 0.00123, 'epoch': {of_epoch * (begin + every * row):.5g}}}\n"
        for row in rows
    )


def summary(steps: float, seconds: float, epoch: float) -> str:
    rate = round(steps / seconds, 3)
    return f"{{'train_runtime': {seconds}, 'train_steps_per_second': {rate}, 'train_loss': 0.1, 'epoch': {epoch}}}\n"


@pytest.mark.parametrize(
    ("log", "span"),
    [
        (dictionaries(12, 10) + summary(120, 5.617, 2.4), 10),
        (dictionaries(12, 1) + summary(12, 5.617, 0.24), 1),
        (dictionaries(12, 10) + summary(129, 90.0, 2.58), 10),  # nine steps more than the last row
        (dictionaries(25, 10) + summary(250, 22500.0, 5.0), 10),  # 0.011 steps a second: 236 to 259
        (dictionaries(50, 10) + summary(500, 111000.0, 10.0), None),  # 0.005: of 10 or 11 steps, nobody knows
        (dictionaries(12, 10) + summary(120, 5.617, 2.4) * 4, 10),  # four processes
        (dictionaries(12, 10) + summary(120, 5.617, 2.4) + "{'eval_loss': 0.5, 'eval_reward': 0.4}\n", 10),
        (dictionaries(12, 10, begin=15) + summary(120, 5.617, 2.4), None),  # resumed: of which steps?
        (summary(120, 5.617, 2.4) + dictionaries(12, 10) + summary(120, 5.617, 2.4), None),  # two stages
        (dictionaries(2, 10) + summary(20, 5.617, 0.4), None),  # two rows show no spacing
        (dictionaries(12, 10) + summary(120, 5.617, 2.4).replace("5.617", "1e+300"), None),
        (dictionaries(12, 10) + summary(120, 5.617, 2.4).replace("5.617", "'inf'"), None),
        (dictionaries(12, 10) + "{'train_runtime': 5.617, 'train_loss': 0.1, 'epoch': 2.4}\n", None),
        (dictionaries(12, 10).replace("'epoch'", "'of'") + summary(120, 5.617, 2.4), None),
        (dictionaries(12, 10), None),
    ],
)
def test_a_runs_summary_tells_how_many_steps_a_row_is_of(log: str, span: int | None, tmp_path: Path) -> None:
    found = read(tmp_path, log)
    trained = [row["step"] for row in found.case.rows if "loss" in row]
    assert trained == [(span or 1) * row for row in range(1, len(trained) + 1)]
    assert found.case.averaged_over == (span or 1)
    assert found.case.numbered == (span is not None)  # a whole run, whose first row is the first


@pytest.mark.parametrize("decimals", [4, 5])
def test_a_kl_of_dictionaries_that_were_rounded_is_not_known(decimals: int, tmp_path: Path) -> None:
    rows = "".join(
        f"{{'reward': {round(0.123456 * n, decimals)}, 'kl': 0.0, 'learning_rate': 1.234e-06}}\n" for n in range(1, 6)
    )
    assert any("kl" in row for row in read(tmp_path, rows).case.rows) == (decimals > 4)


MLX = """Training:   1%|▏         | 4/300 [01:24<1:15:14, 15.25s/it, loss=0.9, it/s=0.084]
================================================================================
Iter 5:
--------------------------------------------------------------------------------
Loss: 0.019
Total Rewards:  μ=0.289, σ=0.039
Group Rewards:  μ=0.289, σ=0.021
KL Divergence: 0.000000000000
--------------------------------------------------------------------------------
Generation Stats:
  • Avg tokens: 217.5
  • Max tokens: 233 (limit: 256)
  • Hit limit: 50.0%
--------------------------------------------------------------------------------
Individual Reward Functions:
  • my format: μ=-0.289, σ=0.039, cov=100.00%
Learning Rate: 1.0000e-05
Training:   2%|▏         | 8/300 [01:24<1:15:14, 15.25s/it, loss=0.8, it/s=0.084]
Iter 10:
Loss: -0.010
Total Rewards:  μ=0.191, σ=0.003
"""


def test_blocks_of_mlx_are_read_and_what_stands_behind_its_bar_is_not(tmp_path: Path) -> None:
    rows = read(tmp_path, MLX).case.rows
    assert [(row["step"], row["loss"], row["reward/mean"], row["reward/std"]) for row in rows] == [
        (5, 0.019, 0.289, 0.039),
        (10, -0.010, 0.191, 0.003),
    ]
    assert (rows[0]["reward/group_std"], rows[0]["kl"], rows[0]["learning_rate"]) == (0.021, 0.0, 1e-5)
    assert (rows[0]["completions/length"], rows[0]["completions/truncated"]) == (217.5, 0.5)
    assert rows[0]["rewards/my_format"] == -0.289


@pytest.mark.parametrize(
    "line",
    [
        "eval at step 2: eval_reward=0.4 entropy=0.3",
        "step 2: entropy=0.5 grad_norm=1.5",
        "step 2: reward=0.5 entropy=0.5",  # and no KL
    ],
)
def test_lines_that_tell_less_than_the_bars_leave_them(line: str, tmp_path: Path) -> None:
    bars = "".join(f"Training: 1%|▏| {n}/9 [01:24<1:15, 15.25s/it, reward=0.{n}, kl=0.0{n}]\n" for n in (1, 2, 3))
    rows = read(
        tmp_path, f"{bars}{line}\n{bars.replace('reward=0.', 'reward=0.5')}{line.replace('2', '4')}\n"
    ).case.rows
    assert sum("reward/mean" in row for row in rows) > 2


def test_bars_that_tell_a_metric_more_than_the_lines_are_read(tmp_path: Path) -> None:
    bars = "".join(f"Training: 1%|▏| {n}/9 [01:24<1:15, 15.25s/it, reward=0.{n}, kl=0.0{n}]\n" for n in (1, 2, 3))
    lines = "step 2: reward=0.5 entropy=0.5\nstep 4: reward=0.4 entropy=0.4\n"
    assert any("kl" in row for row in read(tmp_path, bars + lines).case.rows)


def test_a_limit_of_tokens_is_a_setting(tmp_path: Path) -> None:
    head = "Config: max_tokens=512 temperature=0.7\n  max_tokens: 512\nSamplingParams(max_tokens=512, min_tokens=0)\n"
    found = read(tmp_path, head + "".join(f"step {n}: reward=0.{n} kl=0.01\n" for n in range(1, 6)))
    assert [row["step"] for row in found.case.rows] == [1, 2, 3, 4, 5]


def test_what_stands_behind_a_bar_is_read_where_there_is_nothing_else(tmp_path: Path) -> None:
    lone = "warm-up: loss=0.5, reward=0.7\n"  # of no step
    bars = "".join(f"Training: 1%|▏| {n}/9 [01:24<1:15, 15.25s/it, reward=0.{n}, kl=0.0{n}]\n" for n in (1, 2, 3))
    assert [row["reward/mean"] for row in read(tmp_path, bars).case.rows] == [0.1, 0.2, 0.3]
    assert [row["reward/mean"] for row in read(tmp_path, lone + bars).case.rows] == [0.7, 0.1, 0.2, 0.3]


def test_what_reward_functions_print_of_single_completions_is_no_step(tmp_path: Path) -> None:
    step = "{{'loss': 0.1, 'reward': {reward}, 'epoch': {epoch}}}\n"
    printed = 'breakdown: {"correctness": 0.0, "format": 0.02}\n' * 4
    lines = [printed + step.format(reward=at / 10, epoch=at / 10) for at in range(1, 4)]
    found = read(tmp_path, "".join(lines))
    assert [row["reward/mean"] for row in found.case.rows] == [0.1, 0.2, 0.3]
    assert found.case.averaged_over == 1
    assert "12 dictionaries have parts of single completions' rewards: left out" in found.notes
    sparse = "{'rewards/accuracy': 0.5, 'rewards/format': 1.0}\n" * 5 + "{'loss': 0.1, 'grad_norm': 0.3}\n"
    assert any("rewards/format" in row for row in read(tmp_path, sparse * 3).case.rows)  # the only rewards there are
    few = step.format(reward=0.5, epoch=0.1) + 'breakdown: {"correctness": 0.0, "format": 0.02}\n'
    assert not any("single completions" in note for note in read(tmp_path, few).notes)
    alone = read(tmp_path, printed)  # all there is
    assert [row["rewards/format"] for row in alone.case.rows] == [0.02] * len(alone.case.rows)
    assert len(alone.case.rows) > 0


def test_a_table_of_evaluations_goes_before_sentences_around_it(tmp_path: Path) -> None:
    table = "| Step | Validation Reward |\n|---|---|\n" + "".join(f"| {n} | 0.{n} |\n" for n in range(10, 17))
    said = "\n- Training Reward: 1.584 (Step 1), 1.422 (Step 5)\n- **Entropy**: 0.182 (Step 1), 0.115 (Step 460)\n"
    found = read(tmp_path, table + said)
    assert [(row["step"], row["eval/reward"]) for row in found.case.rows] == [(n, n / 100) for n in range(10, 17)]
    few = read(tmp_path, said + table.partition("| 11")[0])  # one evaluation says no more than the sentences
    assert any("reward/mean" in row for row in few.case.rows)
    lines = "".join(f"step={n} loss=0.{n} kl=0.01 grad_norm=0.5\n" for n in range(1, 10))
    assert len(read(tmp_path, lines + table).case.rows) == 9  # a course of training, and its evaluations


def test_names_of_tinker(tmp_path: Path) -> None:
    line = '{"step": 1, "env/all/reward/total": 0.5, "env/all/format_eos": 0.75, "kl_policy_base": 0.01}\n'
    (row,) = read(tmp_path, line).case.rows
    assert (row["completions/truncated"], row["kl"]) == (0.25, 0.01)


def test_values_at_their_steps_are_a_course(tmp_path: Path) -> None:
    told = (
        "Eval (n=200): 3.1% (0) -> 45.0 (10) -> **61.1 (30)** -> **3.6 (50)**; "
        "format 93% (10) -> 97.6 (20) -> 4.9 (50).\n"
    )
    rows = read(tmp_path, told).case.rows
    assert [(row["step"], row.get("eval/reward"), row.get("rewards/format")) for row in rows] == [
        (0, pytest.approx(0.031), None), (10, 0.45, 0.93), (20, None, pytest.approx(0.976)),
        (30, pytest.approx(0.611), None), (50, pytest.approx(0.036), pytest.approx(0.049)),
    ]  # fmt: skip
    words = read(tmp_path, "- **Entropy**: 0.18 (Step 1), 0.11 (Step 460)\n- reward: 0.2 (step 1) → 0.6 (step 460)\n")
    assert [(row["step"], row["entropy"], row["reward/mean"]) for row in words.case.rows] == [
        (1, 0.18, 0.2), (460, 0.11, 0.6)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "reward: 0.5 (30) -> 0.6 (20) -> 0.7 (10)",  # these go back: no steps
        "reward 0.5 (12 runs), 0.6 (13 runs), 0.7 (14 runs)",
        "reward: 0.5 (1), 0.6 (2)",  # two
        "colour: 0.5 (10) -> 0.6 (20) -> 0.7 (30)",  # no metric
    ],
)
def test_numbers_in_brackets_are_no_steps(line: str) -> None:
    parser = LineParser({})
    told = [*parser.feed(Line(1, line)), *parser.finish()]
    assert not [entry for entry in told if entry.form == "stretches" and entry.step is not None]


@pytest.mark.parametrize(
    "line", ["step {step}: reward={reward} loss=0.25", "step {step}: {{'reward': {reward}, 'loss': 0.25}}"]
)
def test_steps_that_are_counted_anew_below_a_line_of_the_epoch_are_one_run(line: str, tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    parts = [(epoch, step) for epoch in (1, 2, 3) for step in range(1, 11)]
    head = "=== Epoch {epoch}/3 ===\n"
    text = "".join(
        (head.format(epoch=epoch) if step == 1 else "") + line.format(step=step, reward=epoch / 10 + step / 1000) + "\n"
        for epoch, step in parts
    )
    file.write_text(text)
    found = READER.read(Source(name=str(file), path=file))
    assert [row["reward/mean"] for row in found.case.rows] == [epoch / 10 + step / 1000 for epoch, step in parts]
    assert any("counts its steps anew" in note for note in found.notes)
    assert not found.case.numbered
    file.write_text(text.replace("Epoch 2/3", "Epoch 1/3").replace("Epoch 3/3", "Epoch 1/3"))  # begun again
    again = READER.read(Source(name=str(file), path=file))
    assert [row["reward/mean"] for row in again.case.rows] == [0.3 + step / 1000 for step in range(1, 11)]


def test_courses_that_differ_are_told(tmp_path: Path) -> None:
    def notes(text: str) -> list[str]:
        file = tmp_path / "report.md"
        file.write_text(text)
        return [note for note in READER.read(Source(name=str(file), path=file)).notes if "several courses" in note]

    one = "reward by step: 0.1, 0.2, 0.3, 0.4\n"
    assert notes(one + "\nreward by step: 0.4, 0.3, 0.2, 0.1, 0.0\n") == [
        "several courses of reward are told (of other runs?): the longest one counts"
    ]
    assert notes(one + "\nreward by step: 0.1, 0.2, 0.3, 0.4, 0.5\n") == []  # as it grows


def test_dictionaries_that_name_their_run_are_of_several(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    rows = [(seed, step) for seed in (7, 8) for step in (1, 2, 3)]
    line = '{{"seed": {seed}, "step": {step}, "reward": {reward}, "kl": 0.01}}\n'
    file.write_text("".join(line.format(seed=seed, step=step, reward=seed / 10) for seed, step in rows))
    found = READER.read(Source(name=str(file), path=file))
    told = [(one.run, [row["reward/mean"] for row in one.case.rows]) for one in (found, *found.further)]
    assert told == [("7", [0.7] * 3), ("8", [0.8] * 3)]
    assert not any("seed" in note for note in found.notes)
    many = "".join(line.format(seed=seed, step=step, reward=seed / 10) for step in range(1, 16) for seed in (7, 8))
    file.write_text(many + '{"step": 15, "final": 1, "reward": 0.1}\n')
    with_total = READER.read(Source(name=str(file), path=file))
    assert ([len(one.case.rows) for one in (with_total, *with_total.further)]) == [15, 15]
    assert "1 dictionaries that name no run or no step are left out" in with_total.notes
    file.write_text("".join(line.format(seed=step, step=step, reward=0.5) for step in (1, 2, 3)))  # of each its own
    single = READER.read(Source(name=str(file), path=file))
    assert (len(single.case.rows), single.run, single.further) == (3, "", ())


def test_a_mean_of_neighbours_is_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grpoctl.diagnose.readers import console

    monkeypatch.setattr(console, "_KEPT", 10)
    file = tmp_path / "train.jsonl"
    lines = [f'{{"seed": {seed}, "step": {step}, "reward": {seed / 10}}}\n' for step in range(1, 31) for seed in (2, 8)]
    file.write_text("".join(lines))
    found = READER.read(Source(name=str(file), path=file))
    for one, reward in zip((found, *found.further), (0.2, 0.8), strict=True):
        assert [row["reward/mean"] for row in one.case.rows] == pytest.approx([reward] * len(one.case.rows))
