"""A point of a sweep -> the ordinary runs it stands for.

What is here: the settings of a point, with K x B and the budget held equal. Not here: which points there are (space).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.config import RunSpec
from core.errors import SpecError
from grpoctl.config import Library, Loaded, Revisions, canonical, spec_sha
from grpoctl.config.authored import Authored
from grpoctl.config.loading import read_any, resolve
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.sweeps.space import EXPERIMENT
from grpoctl.sweeps.spec import SweepSpec


def specs(
    sweep: SweepSpec, params: Mapping[str, Any], *, seeds: Sequence[int] | None = None, library: Library | None = None
) -> list[Loaded]:
    """The point's runs, one per seed. Raises SpecError where the base is not what the study began with."""
    made = Candidates.of(sweep, library=library)
    texts = made.overrides(params)
    return [made.loaded(params, texts, seed=seed) for seed in (sweep.seeds if seeds is None else seeds)]


def bases_of(sweep: SweepSpec, authored: Mapping[str, Authored]) -> dict[str, str]:
    """experiment -> the hash of what it is under the sweep's profile."""
    return {name: spec_sha(resolve(document, profile=sweep.profile).spec) for name, document in authored.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """The points of one sweep as runs; each base experiment has been read once."""

    sweep: SweepSpec
    authored: Mapping[str, Authored]
    known: dict[str, RunSpec] = field(default_factory=dict, compare=False, repr=False)  # references, by their settings
    tasks: set[str] = field(default_factory=set, compare=False, repr=False)  # those that can be built

    @classmethod
    def of(cls, sweep: SweepSpec, *, library: Library | None = None, revisions: Revisions | None = None) -> Candidates:
        """Raises SpecError where an experiment has changed since `sweep` was resolved."""
        if revisions is None and any("@" in name for name in sweep.experiments):
            revisions = revisions_of(Home.locate())
        found = {name: read_any(name, library=library or Library(), revisions=revisions) for name in sweep.experiments}
        if sweep.bases and sweep.bases != (now := bases_of(sweep, found)):
            changed = next(name for name in now if sweep.bases.get(name) != now[name])
            raise SpecError(
                "is not what it was when this study began; restore it, or start a new study",
                file=found[changed].file,
            )
        return cls(sweep=sweep, authored=found)

    def loaded(self, params: Mapping[str, Any], overrides: Sequence[str], *, seed: int | None = None) -> Loaded:
        """The run that the overrides of a point make. Raises SpecError."""
        document = self.authored[str(params.get(EXPERIMENT, self.sweep.experiment))]
        return resolve(document, profile=self.sweep.profile, overrides=overrides, seed=seed)

    def spec(self, params: Mapping[str, Any]) -> RunSpec:
        """The run of a point, whatever its seed. Raises SpecError."""
        return self.loaded(params, self.overrides(params)).spec

    def reference(self, params: Mapping[str, Any]) -> RunSpec:
        """What is the same for every point: the base with the sweep's settings (a rung: with its own). SpecError."""
        own = params if self.sweep.ladder else {EXPERIMENT: self.sweep.experiment}
        settings = {**self.sweep.settings, **own}
        key = canonical(settings)
        if key not in self.known:
            self.known[key] = self.loaded(own, texts(settings)).spec
        return self.known[key]

    def overrides(self, params: Mapping[str, Any]) -> list[str]:
        """The settings of a point: the sweep's, its own, and those that hold K x B and the budget equal."""
        own = {**self.sweep.settings, **params}
        reference = self.reference(params)
        own |= self._prompts(own, params, reference)
        return texts({**own, **self._budget(own, params, reference)})

    def _prompts(self, own: Mapping[str, Any], params: Mapping[str, Any], reference: RunSpec) -> dict[str, int]:
        """prompts_per_step of the stages whose K is varied, or whose K x B is stated."""
        stated = self.sweep.budget.generation_batch_size
        found = {}
        for name, stage in reference.stages.items():
            key, at = f"stages.{name}.prompts_per_step", f"stages.{name}.num_generations"
            varied = at in params and not self.sweep.ladder
            if key in own or not stage.rows_per_step or not (varied or stated):
                continue
            rows, each = stated or stage.rows_per_step, own.get(at, getattr(stage, "num_generations", None))
            if not isinstance(each, int) or isinstance(each, bool) or each < 1:
                continue  # no number of completions: the spec itself says so
            if rows % each:
                raise SpecError(f"got {each}, which does not divide the {rows} completions of a step", key=at)
            found[key] = rows // each
        return found

    def _budget(self, own: Mapping[str, Any], params: Mapping[str, Any], reference: RunSpec) -> dict[str, Any]:
        """The budget, and as many steps of the last stage as it pays for: the scale of the stage's clock."""
        asked = self.sweep.budget
        if asked.completions is None and asked.tokens is None:
            return {}
        planned = reference if len(reference.stages) == 1 else self.loaded(params, texts(own)).spec
        *before, last = planned.stages
        for key in ("max_steps", "epochs"):
            if f"stages.{last}.{key}" in own:
                raise SpecError("the budget says how long the last stage is", key=f"stages.{last}.{key}")
        unit, other = ("completions", "tokens") if asked.completions is not None else ("tokens", "completions")
        found: dict[str, Any] = {f"budget.{unit}": getattr(asked, unit)}
        if planned.budget is not None and getattr(planned.budget, other) is not None:
            found[f"budget.{other}"] = None
        if asked.completions is None:
            return found  # what a completion costs is not known before: the base's steps are scale enough
        spent = sum(planned.stages[name].max_steps * planned.stages[name].rows_per_step for name in before)
        if spent >= asked.completions:
            raise SpecError(f"the stages before {last} take {spent} of {asked.completions} completions", key="budget")
        # one scale for all points, so that a larger step is annealed and evaluated at the same shares of the budget
        scale = reference.stages.get(last, planned.stages[last])
        rows = asked.generation_batch_size or scale.rows_per_step or planned.stages[last].rows_per_step
        if not rows:
            raise SpecError(f"the last stage, {last}, samples nothing: a budget never ends", key="budget")
        found[f"stages.{last}.max_steps"] = math.ceil((asked.completions - spent) / rows)
        return found if planned.stages[last].epochs is None else {**found, f"stages.{last}.epochs": None}


def texts(settings: Mapping[str, Any]) -> list[str]:
    """`key=value` texts, the values as JSON, which is YAML too."""
    return [
        f"{key}={json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in settings.items()
        if key != EXPERIMENT
    ]
