"""A dataset of the hub -> rows, through `datasets`: from its cache where the hub cannot be reached."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import SpecError
from core.models.messages import log_through_root
from core.models.sources import hub
from core.tasks.custom.parquet import counted
from core.tasks.custom.row import Row

ADVICE = "make the hub reachable once, or give a local file as task.data.path"


def read(name: str, config: str | None, split: str, revision: str | None) -> list[Row]:
    """All rows of one split. Raises SpecError with what `datasets` said, on one line, and what would help."""
    with _quiet(), _offline_where_unreachable():
        import datasets

        log_through_root("datasets")
        try:
            found = datasets.load_dataset(name, config, split=split, revision=revision)
            rows: list[dict[str, object]] = list(found)
        except (OSError, ValueError, RuntimeError, KeyError, datasets.exceptions.DatasetsError) as error:
            said = " ".join((str(error).strip() or type(error).__name__).split())
            said = said if len(said) <= 300 else f"{said[:300]}..."
            part = f" ({config})" if config is not None else ""
            raise SpecError(
                f"cannot load {name!r}{part}, split {split!r}, from the hub: {said.rstrip('.')}; {ADVICE}",
                key="task.data",
            ) from None
    return [counted(dict(values), number, Path(f"{name}[{split}]")) for number, values in enumerate(rows, 1)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars, the hub's included, and no analytics of another project's."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    before, shown = os.environ.get("HF_DATASETS_DISABLE_PROGRESS_BARS"), not are_progress_bars_disabled()
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            enable_progress_bars()
        if before is None:
            os.environ.pop("HF_DATASETS_DISABLE_PROGRESS_BARS", None)


@contextlib.contextmanager
def _offline_where_unreachable() -> Iterator[None]:
    """The cache alone where the hub does not answer: `datasets` would try for half a minute, and say so each time."""
    if hub.why_unreachable() is None:
        yield
        return
    import datasets.config
    import huggingface_hub.constants

    settings: tuple[Any, ...] = (datasets.config, huggingface_hub.constants)
    before = [settings_of.HF_HUB_OFFLINE for settings_of in settings]
    for settings_of in settings:
        settings_of.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for settings_of, value in zip(settings, before, strict=True):
            settings_of.HF_HUB_OFFLINE = value
