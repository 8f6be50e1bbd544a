"""Peak memory of one tool's steps in a process of its own: `python -m benchmarks.trl_step.peak '<json>'`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.trl_step.setting import Own, Setting, questions, write_questions
from benchmarks.trl_step.weights import tokenizer_of

STEPS = 2  # the optimiser has its moments from the first on
TRL = "trl"


def peak(tool: str, how: str, setting: Setting, model: Path) -> int:
    """Bytes: the process's own peak, and that of the largest it started. Raises CalledProcessError."""
    asked = json.dumps({"tool": tool, "how": how, "setting": asdict(setting), "model": str(model)})
    command = [sys.executable, "-m", "benchmarks.trl_step.peak", asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    return int(json.loads(done.stdout.splitlines()[-1])["peak"])


def both_peaks(setting: Setting, model: Path, *, theirs: str, ours: str) -> dict[str, Any]:
    """Both tools' peaks, each run in the precision that is named. Raises CalledProcessError."""
    bytes_of = {tool: peak(tool, how, setting, model) for tool, how in ((TRL, theirs), ("grpoctl", ours))}
    return {
        "prompt_tokens": setting.prompt_tokens,
        "beta": setting.beta,
        "theirs": {"how": theirs, "bytes": bytes_of[TRL]},
        "ours": {"how": ours, "bytes": bytes_of["grpoctl"]},
        "ratio": bytes_of["grpoctl"] / bytes_of[TRL],
    }


def main(asked: dict[str, Any]) -> None:
    """Take the steps, then say how much memory that took at its peak."""
    setting, model = Setting(**asked["setting"]), Path(asked["model"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = write_questions(questions(tokenizer_of(model), setting), folder)
        run = _theirs if asked["tool"] == TRL else _ours
        print(json.dumps({"peak": run(setting, asked["how"], model, data)}))


def _ours(setting: Setting, how: str, model: Path, data: Path) -> int:
    from benchmarks.trl_step.ours import Ours, close, own_trainer

    trainer = own_trainer(setting, Own(dtype=how), model, data)
    tool = Ours(trainer, setting)
    for _ in range(STEPS):
        tool.step()
    found = _peak(setting)  # while the process with the reward function is there
    close(trainer)
    return found


def _theirs(setting: Setting, how: str, model: Path, data: Path) -> int:
    from benchmarks.trl_step.theirs import Start, Theirs

    texts = [json.loads(line)["question"] for line in data.read_text(encoding="utf-8").splitlines()]
    start = Start(model=model, questions=texts[: STEPS * setting.groups], adapter={}, output=data.parent)
    Theirs(setting, how, start, steps=STEPS).train(lambda: None)
    return _peak(setting)


def _peak(setting: Setting) -> int:
    """Of CUDA's allocations where there are any, else resident memory, of this process and those it has started."""
    if setting.cuda:
        import torch

        return int(torch.cuda.max_memory_allocated())
    listed = Path("/proc/thread-self/children").read_text(encoding="utf-8").split()
    return sum(resident_peak(Path("/proc", who)) for who in ("self", *listed))


def resident_peak(process: Path) -> int:
    """Bytes, from its folder in /proc. What getrusage says begins with the memory of whoever started the process."""
    lines = (process / "status").read_text(encoding="utf-8").splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return 1024 * int(peak)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
