"""The probe's own process: `python -P -m grpoctl.resources.probing`, a spec on standard input, events on its output.

Each stage makes its steps here with the trainer that a run would have: first as drawn, then at full length, the longest
prompts and every completion as long as the stage allows, which is the most that a step can need. The task scores what
was drawn, for the seconds that takes; the update then learns from rewards that alternate, as a group of equal ones has
nothing to teach. Evaluation is made of a few prompts. Nothing is written. Not here: what is made of the numbers
(report), starting this (probe).
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.config import RunSpec
from core.errors import GrpoError
from core.tasks.base import Example, Outcome, Split, Task, WrappedTask
from core.tasks.text import prompt_of

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # see proc(5)
Tell = Callable[[dict[str, Any]], None]
QUICK = 2.0  # seconds: a first step below this is made again, for its first calls are no measure
TRIES = 5
NEVER = 10**9  # steps


class Probed(WrappedTask):
    """A text task whose rewards are 0 and 1 in turn; `longest`: of the training prompts only the longest."""

    def __init__(self, task: Task, count: int) -> None:
        super().__init__(task)
        self.longest = False
        train = task.examples("train")
        self._longest = sorted(train, key=lambda example: -len(prompt_of(example).text))[:count]

    def examples(self, split: Split) -> Sequence[Example]:
        """The task's own, or of the training ones the longest."""
        return self._longest if self.longest and split == "train" else super().examples(split)

    def score(
        self, examples: Sequence[Example], outputs: Sequence[Any], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """The task's outcomes with other rewards."""
        outcomes = super().score(examples, outputs, ids)
        return [replace(one, reward=float(row % 2), expected=float(row % 2)) for row, one in enumerate(outcomes)]


def probed_spec(spec: RunSpec, stage: str, prompts: int) -> RunSpec:
    """The spec with this stage alone and an evaluation of `prompts` prompts; nothing in it ends, stops or is faulty."""
    endless = {"max_steps": NEVER, "epochs": None, "early_stopping": None}
    task = spec.task.model_copy(update={"eval_prompts": min(prompts, spec.task.eval_prompts)})
    changes = {
        "stages": {stage: spec.stages[stage].model_copy(update=endless)},
        "evaluation": spec.evaluation.model_copy(update={"eval_steps": NEVER, "slice_by": None}),
        "task": task,
        "budget": None,
        "early_stopping": None,
        "init_from": None,
        "faults": (),
    }
    return spec.model_copy(update=changes)


class Seen:
    """Runs requests; seconds, peaks and shapes of those since `told`."""

    def __init__(self, gauge: Gauge, task: Probed, policy: Any) -> None:
        self._gauge, self._task, self._policy = gauge, task, policy
        self._seconds: dict[str, float] = {}
        self._peaks: dict[str, int] = {}
        self._shapes: dict[str, int] = {}
        self._began = time.perf_counter()

    def run(self, request: Any) -> Any:
        """The request's answer; a rollout is drawn to its full length where the task gives its longest prompts."""
        self._gauge.reset()
        began = time.perf_counter()
        drawing = self._task.longest and hasattr(request, "keys")
        with _endless(self._policy) if drawing else nullcontext():
            answer = request.run()
        peak = self._gauge.peak()  # on CUDA this waits for the device, so it comes before the clock is read
        name = request.name
        self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - began
        self._peaks[name] = max(self._peaks.get(name, 0), peak)
        if hasattr(answer, "prompt_N"):
            self._note(answer)
        return answer

    def _note(self, rollout: Any) -> None:
        """The rollout's shape; of given answers only where nothing was drawn."""
        (rows, width), ids = rollout.actions["ids"].shape, rollout.actions["prompt_ids"]
        found = {"rows": rows, "prompt_tokens": ids.shape[1], "completion_tokens": width}
        if rollout.drawn_NT is None:
            self._shapes = {**found, **self._shapes}
            return
        self._shapes = {**found, "drawn": int(rollout.mask_NT.sum())}

    def told(self) -> dict[str, Any]:
        """What was seen since the last time."""
        seconds = {**self._seconds, "total": time.perf_counter() - self._began}
        found = {"seconds": seconds, "peaks": self._peaks, **self._shapes}
        self._clear()
        return found

    def _clear(self) -> None:
        self._seconds, self._peaks, self._shapes = {}, {}, {}
        self._began = time.perf_counter()


def probe(spec: RunSpec, prompts: int, tell: Tell) -> None:
    """Tell `loaded`, `evaluated`, and a `step` for each that is made. Raises what assembling a run raises."""
    importlib.import_module("peft")  # its libraries belong to the process, not to the model
    import torch

    from core.assemble import assemble, open_checkpoints
    from core.training.checkpoint import Progress
    from core.training.trainer import Parts, Trainer

    cuda = torch.cuda.is_available()
    gauge = Gauge(cuda=cuda)
    process = gauge.now()
    first, *_ = spec.stages
    with tempfile.TemporaryDirectory() as folder:
        made = assemble(probed_spec(spec, first, prompts), open_checkpoints(spec, Path(folder)))
    policy, task = made.policy, Probed(made.task, max(stage.prompts_per_step for stage in spec.stages.values()))
    held = {"process": process, "now": gauge.now(), **_held(policy)}
    tell({"event": "loaded", "device": "cuda" if cuda else "cpu", "resets": gauge.resets, **held})
    seen = Seen(gauge, task, policy)
    for stage in spec.stages:
        trainer = Trainer(Parts(spec=probed_spec(spec, stage, prompts), policy=policy, task=task))
        steps = Steps(trainer, seen)
        if stage == first:
            steps.until(_done)
            tell({"event": "evaluated", **seen.told()})
        else:
            trainer.progress, trainer.table = Progress(step=1, stage_step=1), [{"step": 0}, {"step": 1}]
        for event in _steps_of(trainer, steps, seen, task):
            tell({"event": "step", "stage": stage, "moments": _bytes(trainer.update.state().values()), **event})


class Steps:
    """A trainer's requests, run up to the first that is asked for."""

    def __init__(self, trainer: Any, seen: Seen) -> None:
        self._steps, self._seen = trainer.steps(), seen
        self._answer: Any = None

    def until(self, last: Callable[[Any], bool]) -> None:
        """Run what is requested; what `last` says yes to is not run any more, and answered with nothing."""
        while not last(request := self._steps.send(self._answer)):
            self._answer = self._seen.run(request)
        self._answer = None


def _steps_of(trainer: Any, steps: Steps, seen: Seen, task: Probed) -> Iterator[dict[str, Any]]:
    """One step as drawn (up to `TRIES` where it is quick), then one at full length that an evaluation would follow."""
    for _ in range(TRIES):
        steps.until(_done)
        event = seen.told()
        yield {"full": False, **event}
        if event["seconds"]["total"] > QUICK:
            break
    every = trainer.spec.evaluation.model_copy(update={"eval_steps": 1})
    trainer.spec, task.longest = trainer.spec.model_copy(update={"evaluation": every}), True
    steps.until(lambda request: getattr(request, "name", "") == "evaluate")
    task.longest = False
    yield {"full": True, **seen.told()}


def _done(request: Any) -> bool:
    return not hasattr(request, "run")


@contextmanager
def _endless(policy: Any) -> Iterator[None]:
    """No token ends a completion."""
    ends = policy.end_ids
    policy.end_ids = ends.new_tensor([-1])
    try:
        yield
    finally:
        policy.end_ids = ends


def _held(policy: Any) -> dict[str, int]:
    """Bytes of the frozen weights, of those that are trained, and of the reference's own copy."""
    trainable = policy.trainable()
    reference = getattr(policy, "reference", None)
    return {
        "frozen": _bytes(p for name, p in policy.model.named_parameters() if name not in trainable),
        "trainable": _bytes(trainable.values()),
        "reference": 0 if reference is None else _bytes(reference.values()),
    }


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Gauge:
    """Bytes of this process; `cuda`: of the current CUDA device, as torch's allocator counts them.

    Linux lets a process reset its own peak; elsewhere a peak is that of the whole life, and `resets` says so.
    """

    def __init__(self, *, cuda: bool) -> None:
        self._cuda = cuda
        self.resets = cuda or os.access(_CLEAR, os.W_OK)

    def now(self) -> int:
        """What is held now."""
        if self._cuda:
            import torch

            return int(torch.cuda.memory_allocated())
        return _field("VmRSS") or _life()

    def peak(self) -> int:
        """The most that was held since `reset`."""
        if self._cuda:
            import torch

            return int(torch.cuda.max_memory_allocated())
        return _field("VmHWM") or _life()

    def reset(self) -> None:
        """Forget the peak so far."""
        if self._cuda:
            import torch

            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            return
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # else what an earlier phase gave back still counts for this one
        with suppress(OSError):
            _CLEAR.write_text(_RESET_PEAK)


def _field(name: str) -> int | None:
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _life() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def main() -> None:
    """Read, probe, tell; an error that is ours is an event, and any other one ends the process with a traceback."""
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library or a reward prints must not stand among the events
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def tell(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")

    try:
        probe(RunSpec.model_validate(asked["spec"]), asked["prompts"], tell)
    except GrpoError as error:
        tell({"event": "failed", "error": str(error)})


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
