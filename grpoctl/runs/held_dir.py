"""What a run's directory and a study's have in common: one process holds it, another copies it to MLflow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grpoctl.runs.locks import is_locked


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldDir:
    """A directory of ours. Each property is the path of one file in it, whether or not it exists yet."""

    path: Path

    @property
    def id(self) -> str:
        """Its id, which is the directory's name."""
        return self.path.name

    @property
    def lock(self) -> Path:
        """Held by the one process that may write here."""
        return self.path / "lock"

    @property
    def log(self) -> Path:
        """What that process printed where nobody watched, and tracebacks."""
        return self.path / "log.txt"

    @property
    def control(self) -> Path:
        """What others ask of that process; it looks from time to time."""
        return self.path / "control.json"

    @property
    def mlflow(self) -> Path:
        """How far the copy in MLflow has come."""
        return self.path / "mlflow.json"

    @property
    def mirror_lock(self) -> Path:
        """Held by the one process that may write it to MLflow."""
        return self.path / "mirror.lock"

    @property
    def mirror_log(self) -> Path:
        """What that one printed."""
        return self.path / "mirror.log"

    def is_held(self) -> bool:
        """Whether a process holds it; this one's own hold counts."""
        return is_locked(self.lock)
