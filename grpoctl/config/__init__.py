"""From a name to a resolved, hashed RunSpec. Imports no torch, transformers, mlflow, optuna or pandas.

library    which file a name means             catalogue  the experiments there are
documents  YAML 1.2 text -> a layer            layers     merging, and where each value was written
authored   a file and its parents -> one       overrides  key=value -> a layer
loading    all of them -> RunSpec              resolved   RunSpec <-> the spec.yaml of a run
identity   hashes, run ids                     revisions  what name@revision was when it first ran
schema     the known keys and what they allow  nearest, aliases, problems  clear errors
"""

from grpoctl.config.catalogue import Experiment, experiments
from grpoctl.config.identity import authored_sha, canonical, run_stem, spec_sha
from grpoctl.config.library import Library, shipped_folder
from grpoctl.config.loading import Change, Loaded, load
from grpoctl.config.resolved import dump, plain, read_resolved
from grpoctl.config.revisions import RecordedAs, Revisions

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
]
