"""From a name to a resolved, hashed RunSpec. Imports no torch, transformers, mlflow, optuna or pandas.

library    which file a name means             layers     merging, and where each value was written
documents  YAML 1.2 text -> a layer            authored   a file and its parents -> one document
overrides  key=value -> a layer                loading    all of them -> RunSpec; the experiments there are
resolved   RunSpec <-> the spec.yaml of a run  identity   hashes, run ids, what name@revision was
schema     the known keys and what they allow  problems   clear errors, the nearest known key
new_file   an experiment that grpoctl writes for the user
"""

from grpoctl.config.identity import RecordedAs, Revisions, authored_sha, canonical, run_stem, spec_sha
from grpoctl.config.library import Library, shipped_folder, sweep_library
from grpoctl.config.loading import Change, Experiment, Loaded, experiments, load
from grpoctl.config.resolved import dump, plain, read_resolved

__all__ = [
    "Change",
    "Experiment",
    "Library",
    "Loaded",
    "RecordedAs",
    "Revisions",
    "authored_sha",
    "canonical",
    "dump",
    "experiments",
    "load",
    "plain",
    "read_resolved",
    "run_stem",
    "shipped_folder",
    "spec_sha",
    "sweep_library",
]
