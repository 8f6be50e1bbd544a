"""TensorBoard's event files, written by its own writer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from core.errors import SpecError
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import open_source


def write(folder: Path, **tags: list[float]) -> Path:
    writer = EventFileWriter(str(folder))
    for tag, values in tags.items():
        for step, value in enumerate(values, 1):
            summary = Summary(value=[Summary.Value(tag=tag.replace("__", "/"), simple_value=value)])
            writer.add_event(Event(step=step, summary=summary))
    writer.close()
    (file,) = folder.iterdir()
    return file


def test_a_file_and_its_folder(tmp_path: Path) -> None:
    file = write(tmp_path / "run", train__reward=[0.25, 0.5], train__kl=[0.0, float("nan")])
    for path in (file, file.parent):
        reading = open_source(Source(name=str(path), path=path))
        assert reading.kind == "tensorboard"
        assert [(row["reward/mean"], row["kl"]) for row in reading.case.rows] == [(0.25, 0.0), (0.5, None)]


def test_without_a_metric_it_says_which_scalars_there_are(tmp_path: Path) -> None:
    file = write(tmp_path / "run", colour=[1.0])
    with pytest.raises(SpecError, match=r"no scalar that is a metric.*colour"):
        open_source(Source(name=str(file), path=file))


def test_a_damaged_file(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.host"
    file.write_bytes(b"\x00" * 50)
    with pytest.raises(SpecError):
        open_source(Source(name=str(file), path=file))
