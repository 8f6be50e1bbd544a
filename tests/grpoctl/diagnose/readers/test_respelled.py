"""A line as pairs of names and numbers, and lines that are one."""

from __future__ import annotations

import time

import pytest

from grpoctl.diagnose.readers.joined_lines import JoinedLines
from grpoctl.diagnose.readers.outline import Outline
from grpoctl.diagnose.readers.respelled import respelled


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("Rewards - Mean: 0.500, Std: 0.250", "Rewards: 0.500, Rewards std: 0.250"),
        ("Entropy: mean=0.37, min=0.03", "Entropy: 0.37, min=0.03"),
        ("avg_rewards: 0.25,0.75,0.5", "avg_rewards: 0.5"),
        ("losses: 0.25,0.75,0.5", "losses: 0.25,0.75,0.5"),  # it may be a course
        ("rewards: 0.25,0.75", "rewards: 0.25,0.75"),  # a range, say
        ("steps= 1,048,576 | ret=-1311.28", "steps= 1048576 | ret=-1311.28"),
        ("0.1,200 and 12,34", "0.1,200 and 12,34"),
        ("R̄=-2.02 ∇= 0.5 π=-0.01", "reward=-2.02 grad_norm= 0.5 pg_loss=-0.01"),
        ("r̄=0.239±0.221", "reward=0.239±0.221"),
        ("Step 1: `kl` **0.06**, `train/loss` 8.6e-5, loss −1.5", "Step 1: kl 0.06, train/loss 8.6e-5, loss -1.5"),
        ("it printed `kl` 0.06", "it printed `kl` 0.06"),  # a sentence of no step
    ],
)
def test_spellings(text: str, spelled: str) -> None:
    assert respelled(text) == spelled


def test_a_tensor_of_rewards_is_its_mean() -> None:
    assert respelled("gathered_reward tensor([0.25, 0.75], device='cuda:0')").startswith("reward/mean=0.5, ")
    assert respelled("reward [0.25, 0.75]") == "reward [0.25, 0.75]"  # nobody says that they are one a completion


@pytest.mark.parametrize(
    "text", ["a" * 10**6, "reward" + " " * 10**6, "1" * 10**6, "1," * 10**5, "reward tensor([" * 10**5]
)
def test_endless_lines_take_no_time(text: str) -> None:
    start = time.process_time()
    respelled(text)
    list(JoinedLines().feed(1, text))
    assert time.process_time() - start < 5


def joined(*lines: str) -> list[tuple[int, str]]:
    parser = JoinedLines()
    return [*(whole for number, text in enumerate(lines, 1) for whole in parser.feed(number, text)), *parser.rest()]


def test_a_tensor_over_several_lines_is_one_line() -> None:
    assert joined("time: 8s rewards: tensor([ 0.0,", "     -2.0,", "   1.0])", "Loss: 0.5") == [
        (1, "time: 8s rewards: tensor([ 0.0, -2.0, 1.0])"), (4, "Loss: 0.5")
    ]  # fmt: skip
    assert joined("rewards: tensor([ 0.0,") == [(1, "rewards: tensor([ 0.0,")]  # the log ends
    assert joined("rewards: tensor([ 0.0,", "step 2: reward: 0.2")[1] == (2, "step 2: reward: 0.2")  # it was cut off
    assert len(joined("rewards: tensor([ 0.0,", *["0.0,"] * 500)) > 1  # at some line it is none


VERL = "step:1 - actor/kl_loss:0.024 - actor/grad_norm:0.006 - critic/rew"


def test_a_line_of_verl_that_was_wrapped_is_one_line() -> None:
    whole = f"{VERL}ards/mean:0.9 - response_length/mean:330.4 - timing_s/gen:29.64 - timing_s/step:71"
    width = len(VERL)
    parts = [whole[begin : begin + width] for begin in range(0, len(whole), width)]
    assert joined(*parts, "Training Progress: 5%") == [(1, whole), (len(parts) + 1, "Training Progress: 5%")]
    whole = VERL.replace("critic/rew", "actor/entropy:0.5")
    for behind in ("9", "2024-11-27", "wandb - INFO - saved", "2024-01-01T10:00:01 - INFO - saved", "noise", "x:0.5"):
        assert joined(whole, behind) == [(1, whole), (2, behind)]  # it ends in a whole number
    assert joined(VERL, "(WorkerDict pid=1) saved") == [(1, VERL), (2, "(WorkerDict pid=1) saved")]
    assert joined(VERL, VERL.replace("step:1", "step:2"))[1] == (2, VERL.replace("step:1", "step:2"))
    long = VERL + " - x/y:1" * 40
    assert joined(long, "ards/mean:0.9 - a/b:1") == [(1, long), (2, "ards/mean:0.9 - a/b:1")]  # no terminal is so wide


def test_an_outline_ends_where_a_line_is_further_left() -> None:
    outline = Outline()
    for line in ("critic:", "  score:", "", "    mean: 0.5"):
        outline.see(line)
    assert list(outline.names_of("mean")) == ["critic/score/mean", "score/mean"]
    outline.see("  lr: 0.1")
    assert list(outline.names_of("lr")) == ["critic/lr"]
    outline.see("actor: 1")
    assert list(outline.names_of("actor")) == []
    outline.see("critic:")
    outline.see("x" * 1000)  # text of a completion
    assert outline.headings == []
