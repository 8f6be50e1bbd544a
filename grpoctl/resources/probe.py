"""The probe of `check --resources`: a few steps of a run in a process of its own, which may be killed for its memory
and takes nobody with it.

The process is `python -P -m grpoctl.resources.probe`: a spec on standard input, events on its output. Each stage makes
its steps here with the trainer that a run would have: first as drawn, then at full length, the longest prompts and
every completion as long as the stage allows, which is the most that a step can need. The task scores what was drawn,
for the seconds that takes; the update then learns from rewards that alternate, as a group of equal ones has nothing to
teach. Evaluation is made of a few prompts. Nothing is written. `measure` starts it and gathers the events. Not here:
what is made of the numbers (report).
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.config import RunSpec
from core.errors import GrpoError
from core.tasks.base import Example, Outcome, Split, Task, WrappedTask
from core.tasks.text import prompt_of
from grpoctl.children import child_environment, python_module
from grpoctl.config.resolved import plain

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # see proc(5)
Tell = Callable[[dict[str, Any]], None]
QUICK = 2.0  # seconds: a first step below this is made again, for its first calls are no measure
TRIES = 5
NEVER = 10**9  # steps
_LONGEST = 300  # characters of a failed probe's last words


class AlternatingRewards(WrappedTask):
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
        return [
            replace(outcome, reward=float(row % 2), expected=float(row % 2)) for row, outcome in enumerate(outcomes)
        ]


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


class RequestMeter:
    """Runs requests; seconds, peaks and shapes of those since the last reading."""

    def __init__(self, gauge: Gauge, task: AlternatingRewards, policy: Any) -> None:
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
        shape = {"rows": rows, "prompt_tokens": ids.shape[1], "completion_tokens": width}
        if rollout.drawn_NT is None:
            self._shapes = {**shape, **self._shapes}
            return
        self._shapes = {**shape, "drawn": int(rollout.mask_NT.sum())}

    def reading(self) -> dict[str, Any]:
        """What was seen since the last time."""
        seconds = {**self._seconds, "total": time.perf_counter() - self._began}
        readings = {"seconds": seconds, "peaks": self._peaks, **self._shapes}
        self._clear()
        return readings

    def _clear(self) -> None:
        self._seconds, self._peaks, self._shapes = {}, {}, {}
        self._began = time.perf_counter()


def run_probe(spec: RunSpec, prompts: int, tell: Tell) -> None:
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
    policy, task = (
        made.policy,
        AlternatingRewards(made.task, max(stage.prompts_per_step for stage in spec.stages.values())),
    )
    held = {"process": process, "now": gauge.now(), **_held(policy)}
    tell({"event": "loaded", "device": "cuda" if cuda else "cpu", "resets": gauge.resets, **held})
    meter = RequestMeter(gauge, task, policy)
    for stage in spec.stages:
        trainer = Trainer(Parts(spec=probed_spec(spec, stage, prompts), policy=policy, task=task))
        steps = Steps(trainer, meter)
        if stage == first:
            steps.until(_done)
            tell({"event": "evaluated", **meter.reading()})
        else:
            trainer.progress, trainer.table = Progress(step=1, stage_step=1), [{"step": 0}, {"step": 1}]
            trainer.recalibrates = False  # it costs a resumed run once, and no step
        for event in _steps_of(trainer, steps, meter, task):
            tell({"event": "step", "stage": stage, "moments": _bytes(trainer.update.state().values()), **event})


class Steps:
    """A trainer's requests, run up to the first that is asked for."""

    def __init__(self, trainer: Any, meter: RequestMeter) -> None:
        self._steps, self._seen = trainer.steps(), meter
        self._answer: Any = None

    def until(self, last: Callable[[Any], bool]) -> None:
        """Run what is requested; what `last` says yes to is not run any more, and answered with nothing."""
        while not last(request := self._steps.send(self._answer)):
            self._answer = self._seen.run(request)
        self._answer = None


def _steps_of(trainer: Any, steps: Steps, meter: RequestMeter, task: AlternatingRewards) -> Iterator[dict[str, Any]]:
    """One step as drawn (up to `TRIES` where it is quick), then one at full length that an evaluation would follow."""
    for _ in range(TRIES):
        steps.until(_done)
        event = meter.reading()
        yield {"full": False, **event}
        if event["seconds"]["total"] > QUICK:
            break
    every = trainer.spec.evaluation.model_copy(update={"eval_steps": 1})
    trainer.spec, task.longest = trainer.spec.model_copy(update={"evaluation": every}), True
    steps.until(lambda request: getattr(request, "name", "") == "evaluate")
    task.longest = False
    yield {"full": True, **meter.reading()}


def _done(request: Any) -> bool:
    return not hasattr(request, "run")


@contextmanager
def _endless(policy: Any) -> Iterator[None]:
    """No token ends a completion, and no text."""
    ends = policy.end_ids
    policy.end_ids, policy.heeds_stop_strings = ends.new_tensor([-1]), False
    try:
        yield
    finally:
        policy.end_ids, policy.heeds_stop_strings = ends, True


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
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def tell(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")

    try:
        run_probe(RunSpec.model_validate(request["spec"]), request["prompts"], tell)
    except GrpoError as error:
        tell({"event": "failed", "error": str(error)})


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """What a probe gave: `events` in order (see `run_probe`); `why` it did not run, or not to its end."""

    events: Sequence[Mapping[str, Any]] = ()
    why: str | None = None

    def first(self, kind: str) -> Mapping[str, Any]:
        """The first event of a kind; empty where there is none."""
        return next((event for event in self.events if event["event"] == kind), {})

    def step(self, stage: str, *, full: bool) -> Mapping[str, Any]:
        """The stage's last step as drawn, or at full length; empty where it was not made."""
        steps = [e for e in self.events if e["event"] == "step" and (e["stage"], e["full"]) == (stage, full)]
        return steps[-1] if steps else {}

    @property
    def peak(self) -> int | None:
        """The most that any phase held; None where not every stage made its step at full length."""
        if self.why is not None or not self.events:
            return None
        return max((size for event in self.events for size in event.get("peaks", {}).values()), default=None)


def measure(spec: RunSpec, prompts: int) -> Probe:
    """Run the probe on `prompts` held-out prompts and two steps or more of each stage; seconds to minutes."""
    command = python_module("grpoctl.resources.probe")
    environment = child_environment()
    with tempfile.TemporaryFile("w+b") as log:
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
            )
        except OSError as error:
            return Probe(why=f"it could not be started: {error.strerror}")
        with child:
            try:
                events = _events(child, {"spec": plain(spec), "prompts": prompts})
                code = child.wait()
            finally:
                child.kill()  # where this process is interrupted; one that has ended is left alone
        log.seek(0)
        lines = log.read().decode("utf-8", "replace").splitlines()
    failed = [str(event["error"]) for event in events if event["event"] == "failed"]
    return Probe(events=events, why=failed[0] if failed else reason_of_failure(code, lines))


def _events(child: subprocess.Popen[bytes], request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events until there will be no more. Its standard input stays open: it ends where that closes."""
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(OSError):
        child.stdin.write(json.dumps(request).encode() + b"\n")
        child.stdin.flush()
    return [event for line in child.stdout if (event := _event(line)) is not None]


def _event(line: bytes) -> dict[str, Any] | None:
    """None for a line that was cut off when its writer was killed."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def reason_of_failure(code: int, lines: Sequence[str]) -> str | None:
    """How a probe ended that told no error, from its exit code and last words; None where all was well."""
    if code == 0:
        return None
    if code == -signal.SIGKILL:
        return "it was killed, perhaps because memory ran out"
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    last = next((line.strip() for line in reversed(lines) if line.strip()), f"code {code}")
    return last[:_LONGEST]


if __name__ == "__main__":
    main()
