"""What `import grpoctl` offers (docs/python.md): runs, studies and experiments read back, and started, from Python."""

from grpoctl.api.callbacks import Callback as Callback
from grpoctl.api.callbacks import OnEnd as OnEnd
from grpoctl.api.callbacks import OnEvaluation as OnEvaluation
from grpoctl.api.callbacks import OnRun as OnRun
from grpoctl.api.callbacks import OnStep as OnStep
from grpoctl.api.callbacks import OnStudyEnd as OnStudyEnd
from grpoctl.api.callbacks import OnTrial as OnTrial
from grpoctl.api.callbacks import Row as Row
from grpoctl.api.callbacks import SweepCallback as SweepCallback
from grpoctl.api.loaded import LoadedExperiment as LoadedExperiment
from grpoctl.api.loaded import LoadedRun as LoadedRun
from grpoctl.api.loaded import LoadedStudy as LoadedStudy
from grpoctl.api.loaded import LoadedTrial as LoadedTrial
from grpoctl.api.loaded import load as load
from grpoctl.api.running import compare as compare
from grpoctl.api.running import run as run
from grpoctl.api.running import sweep as sweep
