"""Keys added later leave old identities alone: the hashes of all shipped specs, as runs were recorded under them.

A shipped spec whose content is changed on purpose (with a new `revision`) gets a new hash here, and says why in the
changelog. A hash that changes for any other reason would orphan every run and study made before.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpoctl.specs import Library, load, plain, shipped_folder, spec_sha
from grpoctl.sweeps.loading import load_sweep, sweep_sha

STORED = json.loads((Path(__file__).parents[2] / "data" / "spec_hashes.json").read_text(encoding="utf-8"))
EXPERIMENTS = Library(user=Path("no-such-folder"), shipped=shipped_folder("experiments"))
SWEEPS = Library(user=Path("no-such-folder"), shipped=shipped_folder("sweeps"), kind="sweep")


@pytest.mark.parametrize("name", STORED["experiments"])
def test_a_shipped_experiment_keeps_its_hash_in_every_profile(name: str) -> None:
    profiles = load(name, library=EXPERIMENTS).profiles
    assert {profile: spec_sha(load(name, profile=profile, library=EXPERIMENTS).spec) for profile in profiles} == STORED[
        "experiments"
    ][name]


@pytest.mark.parametrize("name", STORED["sweeps"])
def test_a_shipped_sweep_keeps_its_hash(name: str) -> None:
    spec = load_sweep(name, profile="tiny", library=SWEEPS, experiments=EXPERIMENTS).spec
    assert sweep_sha(spec) == STORED["sweeps"][name]["tiny"]


def test_a_key_added_later_is_written_and_hashed_only_where_it_is_not_at_its_default() -> None:
    plain_spec = load("p31", library=EXPERIMENTS)
    weighed = load("p31", overrides=["stages.grpo.policy_weight=0.5"], library=EXPERIMENTS)
    assert "policy" not in plain(plain_spec.spec)
    assert "loss_weights" not in plain(plain_spec.spec)["stages"]["grpo"]
    assert spec_sha(plain_spec.spec) != spec_sha(weighed.spec)
