"""On which kinds of device the check has passed, what is said of the others, and what doctor says of either."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import StorageError
from grpoctl import console
from grpoctl.cli import doctor, run_session, sweep_session
from grpoctl.cli.run_session import RunRequest
from grpoctl.cli.sweep_session import SweepRequest
from grpoctl.resources import verified
from grpoctl.resources.verified import CudaDevice

H100 = CudaDevice(name="NVIDIA H100 80GB HBM3", capability="9.0")
L4 = CudaDevice(name="NVIDIA L4", capability="8.9")
SHIPPED = verified.SHIPPED  # the real one: in a test there is another
PASSED = {"name": H100.name, "capability": "9.0", "date": "2026-11-23", "commit": "abc"}


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing was checked yet, and nothing elsewhere: its list, which is not there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(verified, "SHIPPED", tmp_path / "shipped.json")
    return verified.own_records()


def test_a_kind_is_named_until_the_check_has_passed_on_it_and_again_once_it_fails(own: Path) -> None:
    for devices in ([H100], [H100, L4]):
        text = verified.unverified_text(devices)
        assert text is not None
        assert text.startswith("CUDA paths: not verified on this kind of device; `make gpu` verifies them in 10 min")
    verified.write_record(PASSED, own)
    assert verified.unverified_text([H100]) is None
    assert verified.unverified_text([L4]) is not None
    assert verified.unverified_text([H100, L4]) is not None
    verified.withdraw_record(PASSED, own)
    assert verified.unverified_text([H100]) is not None


def test_without_a_device_there_is_nothing_to_say() -> None:
    assert verified.unverified_text([]) is None


def test_a_kind_is_its_name_and_its_capability(own: Path) -> None:
    verified.write_record(PASSED, own)
    assert verified.record_of(CudaDevice(name=H100.name, capability="8.0")) is None


def test_a_newer_check_takes_the_place_of_an_older_one_of_its_kind(own: Path) -> None:
    for record in (PASSED, {**PASSED, "name": "other"}, {**PASSED, "date": "2026-12-01"}):
        verified.write_record(record, own)
    assert verified.record_of(H100) == {**PASSED, "date": "2026-12-01"}
    assert own.read_text().count('"date"') == 2


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"devices": 1}', '{"devices": [1, {"name": 2}]}'])
def test_a_damaged_list_verifies_nothing(own: Path, damage: str) -> None:
    own.parent.mkdir()
    own.write_text(damage)
    assert verified.unverified_text([H100]) is not None


def test_what_ships_counts_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "SHIPPED", tmp_path / "shipped.json")
    verified.write_record(PASSED, verified.SHIPPED)
    assert verified.record_of(H100) == PASSED


def test_the_shipped_list_can_be_read() -> None:
    """Whoever adds to it also commits docs/gpu.md."""
    document = verified.read_json(SHIPPED)
    assert document is not None
    assert document["devices"] != []
    assert [record for record in document["devices"] if {"name", "capability", "date", "commit"} - record.keys()] == []


def test_who_has_no_checkout_is_told_where_the_check_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "CHECK", tmp_path / "none")
    text = verified.unverified_text([H100])
    assert text is not None
    assert "clone" in text


def test_doctor_says_so_and_calls_it_no_problem(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "cuda_devices", lambda: [H100])
    checks = {check["name"]: check for check in doctor.examination()}
    assert checks["devices"]["detail"].startswith(f"CUDA: {H100.name}; ")
    assert checks["cuda paths"]["ok"]
    assert "not verified" in checks["cuda paths"]["detail"]
    assert doctor.cuda_document([H100])["verified"] is False
    verified.write_record(PASSED, own)
    checks = {check["name"]: check for check in doctor.examination()}
    assert "2026-11-23" in checks["cuda paths"]["detail"]
    document = doctor.cuda_document([H100])
    assert (document["verified"], document["devices"][0]["verified"]) == (True, PASSED)


def test_doctor_has_no_line_on_it_without_a_device() -> None:
    assert doctor.cuda_document([]) == {"verified": None, "devices": []}
    assert "cuda paths" not in [check["name"] for check in doctor.examination()] or verified.cuda_devices()


@pytest.mark.parametrize(("devices", "notes"), [([H100], 1), ([], 0)])
def test_a_run_on_an_unverified_kind_says_so_first(
    devices: list[CudaDevice], notes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("GRPOCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(verified, "cuda_devices", lambda: devices)

    def no_runs(*_: object) -> tuple[list[object], str]:
        console.print_note("dtype float32, because ...")  # what `resolve` says of a spec with `dtype: auto`
        return [], ""

    monkeypatch.setattr(run_session, "resolve", no_runs)
    assert run_session.run_all(RunRequest(name="p31", profile="tiny")) == []
    printed = capsys.readouterr().err
    assert printed.count("CUDA paths: not verified on this kind of device") == notes
    assert not notes or printed.index("CUDA paths") < printed.index("dtype float32")


@pytest.mark.parametrize(("devices", "notes"), [([H100], 1), ([], 0)])
def test_a_sweep_on_an_unverified_kind_says_so_before_a_worker_starts(
    devices: list[CudaDevice], notes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("GRPOCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(verified, "cuda_devices", lambda: devices)

    def unreachable(*_: object) -> object:
        raise StorageError("the database is away")  # it is opened first, then workers are started

    monkeypatch.setattr(sweep_session, "open_storage", unreachable)
    with pytest.raises(StorageError):
        sweep_session.run(SweepRequest(name="lr-study", profile="tiny"))
    assert capsys.readouterr().err.count("CUDA paths: not verified on this kind of device") == notes
