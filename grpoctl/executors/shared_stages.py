"""A run's part in what its study shares: it takes the longest prefix that fits it, and makes those that are wanted.

A run that takes a prefix writes its rows one by one as if it had computed them: its parent hears of each evaluation,
and answers, in the same order. Then it stands at the prefix's checkpoint like a run that is resumed there.

Made once: a run that is about to make a prefix holds its lock until that stage is over. Others wait for the lock,
which dies with its holder, and then look again. Nobody waits while holding one, so none can wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from core.config import RunSpec
from core.errors import StorageError
from grpoctl.files import Row, read_json, read_rows
from grpoctl.runs import prefixes, provenance
from grpoctl.runs.locks import hold_lock, is_locked
from grpoctl.runs.log import add_text
from grpoctl.runs.prefixes import Made, Prefixes, copy_checkpoint, copy_records
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.study_dir import study_of

if TYPE_CHECKING:
    from core.training.callbacks import Callback
    from core.training.checkpoint import Checkpoints, Snapshot
    from core.training.outcome import Ending
    from core.training.requests import Evaluated
    from core.training.trainer import Observer

PAUSE = 0.05  # seconds between two looks whether another run has made what this one waits for


class SharedStages:
    """What one run shares. `shas` has the hash of its prefix for each number of stages that are over."""

    def __init__(self, run: RunDir, there: Prefixes, shas: Mapping[int, str], wanted: frozenset[str]) -> None:
        self.notes: list[str] = []
        self._run, self._there, self._shas, self._wanted = run, there, shas, wanted
        self._held: dict[int, ExitStack] = {}

    def take(
        self, checkpoints: Checkpoints, record: Observer, ask: Callable[[int], Ending | None], idle: Callable[[], None]
    ) -> Snapshot | None:
        """Where the run, which has nothing yet, goes on from; None where it begins at its beginning.

        It waits, calling `idle` at each look, while another run makes what this one wants.
        """
        provenance.note(self._run, "shared", None)
        provenance.note(self._run, "prefixes", {str(stages): sha for stages, sha in self._shas.items()})
        while True:
            stages = next((stages for stages in self._longest_first if self._there.there(self._shas[stages])), 0)
            if self._made_elsewhere(beyond=stages) or not self._claim(beyond=stages):
                idle()
                time.sleep(PAUSE)
            elif not stages:
                return None
            elif (made := self._intact(self._shas[stages])) is None:
                self.release()  # it is gone now
            elif made.device == device() and self._replayed(self._shas[stages], made, record, ask):
                return checkpoints.load(made.step)
            else:
                return None

    def resume(self, restart: Snapshot) -> Snapshot:
        """A run that goes on from its own checkpoint makes what is still to come, where nobody else is making it.

        Where it began under another hash, its first steps are of other code, files, or another machine: then nothing.
        """
        document, at = read_json(self._run.provenance) or {}, restart.progress
        if int((document.get("shared") or {}).get("step") or 0) > at.step:  # cut short, or damaged since
            provenance.note(self._run, "shared", None)
        began = document.get("prefixes") or {}
        self._shas = {stages: sha for stages, sha in self._shas.items() if began.get(str(stages)) == sha}
        for stages in self._wanted_beyond(at.stage if at.stage_step else at.stage - 1):
            self._hold(stages)
        return restart

    def made(self, stages: int, snapshot: Callable[[], Snapshot]) -> None:
        """So many stages are over, and the run goes on: publish that where it is wanted and nobody has."""
        from core.training.checkpoint import Checkpoints

        held, sha = self._held.pop(stages, None), self._shas.get(stages, "")
        if held is None:
            return
        with held:
            if self._there.there(sha) or sha not in self._there.wanted():
                return
            try:
                draft = self._there.draft(sha, self._run)
                copy_records(self._run, draft)
                taken = snapshot()
                kept = Checkpoints(draft.checkpoints, keep=2)
                best, step = taken.progress.best_step, taken.progress.step
                if best not in (None, step) and not copy_checkpoint(self._run, draft, kept.path(best or 0)):
                    return  # somebody took it away: without it the end of a run that begins here is another
                kept.save(taken)
                self._there.publish(sha, draft, _made(draft, stages, taken.progress.completions, self._run.id))
            except StorageError as error:  # whoever wanted it computes it
                add_text(self._run, f"the end of stage {stages} could not be shared: {error}\n")

    def release(self) -> None:
        """Let go of everything that was to be made."""
        for held in self._held.values():
            held.close()
        self._held = {}

    @property
    def _longest_first(self) -> list[int]:
        return sorted(self._shas, reverse=True)

    def _wanted_beyond(self, beyond: int) -> list[int]:
        return [stages for stages, sha in self._shas.items() if stages > beyond and sha in self._wanted]

    def _made_elsewhere(self, beyond: int) -> bool:
        """True while another run makes a longer prefix than this one has."""
        return any(is_locked(self._there.lock(self._shas[stages])) for stages in self._wanted_beyond(beyond))

    def _claim(self, beyond: int) -> bool:
        """Hold the locks of all longer prefixes; False, and none is held, where another run was quicker."""
        if all(self._hold(stages) for stages in self._wanted_beyond(beyond)):
            return True
        self.release()
        return False

    def _hold(self, stages: int) -> bool:
        """Hold the lock of a prefix that nobody has made, nor is about to; whether it is held now."""
        held, sha = ExitStack(), self._shas[stages]
        if held.enter_context(hold_lock(self._there.lock(sha), 0)) is not None or self._there.there(sha):
            held.close()
            return False
        self._held[stages] = held
        return True

    def _intact(self, sha: str) -> Made | None:
        """What the prefix is; a damaged one is said and taken away."""
        try:
            return self._there.read(sha)
        except StorageError as error:
            if self._there.there(sha):  # else its study's driver took it away: every run had what it needed
                self.notes.append(f"{error}: not used")
                add_text(self._run, f"{error}: not used\n")
                self._there.remove(sha)
            return None

    def _replayed(self, sha: str, made: Made, record: Observer, ask: Callable[[int], Ending | None]) -> bool:
        """The prefix as this run's own; False, and nothing is left of it, where the parent ends the run inside."""
        source = RunDir(path=self._there.path(sha))
        for row, samples, timings, kept in _steps(source):
            step = int(row["step"])
            record.step_done(row, samples, timings, kept)
            evaluated = step > 0 and any(name.startswith("eval/") for name in row)
            if evaluated and step < made.step and ask(step) is not None:
                return False
        provenance.note(self._run, "shared", {"prefix": sha, **asdict(made)})
        for folder in sorted(source.checkpoints.glob("step-*")):  # the stage's end last: the run goes on from it
            copy_checkpoint(source, self._run, folder)
        return True


def _steps(source: RunDir) -> Iterator[tuple[Row, list[Row], Row, Evaluated | None]]:
    """(row, samples, timings, what is kept of its evaluation) of each step."""
    from core.training.requests import Evaluated

    samples: Mapping[object, list[Row]]
    samples, problems = (
        {step: list(rows) for step, rows in groupby(read_rows(path), key=lambda row: row["step"])}
        for path in (source.samples, source.problem_rows)
    )
    for row, timings in zip(read_rows(source.metrics), read_rows(source.timings), strict=True):
        step, picture = row["step"], source.picture(int(row["step"]))
        drawn = picture.read_bytes() if picture.exists() else None
        kept = Evaluated(problems=problems.get(step, ()), picture=drawn) if drawn or step in problems else None
        yield row, samples.get(step, []), timings, kept


def _made(draft: RunDir, stages: int, completions: int, run: str) -> Made:
    last, timings = read_rows(draft.metrics)[-1], read_rows(draft.timings)
    return Made(
        stages=stages,
        step=int(last["step"]),
        completions=completions,
        tokens=int(last.get("tokens") or 0),
        seconds=round(sum(row["total"] for row in timings), 3),
        device=device(),
        run=run,
    )


def device() -> str:
    """Where this process computes: what another kind of device computes differs in its last digits."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def publishing(shared: SharedStages) -> Callback:
    """The callback that has a run publish each stage's end that it is to make."""
    from core.training.callbacks import Callback

    class Publishing(Callback):
        """Tells of the ends of stages."""

        def after_stage(self, stages: int, snapshot: Callable[[], Snapshot]) -> None:
            """Publish where the run stands."""
            shared.made(stages, snapshot)

    return Publishing()


@contextmanager
def shared_stages(run: RunDir, spec: RunSpec) -> Iterator[SharedStages | None]:
    """What the run shares with its study; None for a run of its own, and where its study shares nothing."""
    study = study_of(run)
    there = None if study is None else Prefixes(folder=study.prefixes)
    if there is None or not there.folder.is_dir():
        yield None
        return
    source = (read_json(run.provenance) or {}).get("init_from")
    shared = SharedStages(run, there, prefixes.shas_of(spec, prefixes.surroundings(spec, source)), there.wanted())
    try:
        yield shared
    finally:
        shared.release()
