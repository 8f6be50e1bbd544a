"""`make gpu` on a machine without CUDA: its parts fail alone and within their time, and its table claims nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.gpu_check import __main__ as check
from benchmarks.gpu_check.commands import largest_gap
from benchmarks.gpu_check.missing import missing
from benchmarks.gpu_check.part import WORK
from benchmarks.gpu_check.parts import DEVICE, PARTS, Done, Outcome, Part, Place, Status, run_part
from grpoctl.resources import verified
from grpoctl.resources.verified import CudaDevice

ROOT = Path(__file__).resolve().parents[2]
START = ROOT / "benchmarks" / "gpu_check" / "start.sh"
H100 = {"name": "H100", "capability": "9.0", "memory_gib": 80.0, "driver": "550", "cuda": "12.8"}
KIND = CudaDevice(name="H100", capability="9.0")
PASSED = '{"status": "PASS", "figure": "3 ms", "details": {}}'
ALL = [part.name for part in PARTS]
NEEDED = [part.name for part in PARTS if part.needed]


def test_all_parts_together_end_within_ten_minutes() -> None:
    assert sum(part.seconds for part in (DEVICE, *PARTS)) <= 600


def test_every_part_has_its_work() -> None:
    assert set(WORK) == {*ALL, "device"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "seconds", "status", "words"),
    [
        ("import sys; sys.exit('no kernel image')", 20.0, "FAIL", ["no kernel image", "exit code 1", "log.txt"]),
        ("raise OSError('no kernel image\\nConsider this.')", 20.0, "FAIL", ["OSError: no kernel image"]),
        ("import os; os.kill(os.getpid(), 9)", 20.0, "FAIL", ["signal 9"]),
        ("pass", 20.0, "FAIL", ["said nothing"]),  # it ends well and leaves no outcome
        ("import time; time.sleep(60)", 0.2, "FAIL", ["ran out of its"]),
        ("open(OUT, 'w').write(PASSED)", 20.0, "PASS", ["3 ms"]),
    ],
    ids=["exit", "error with advice", "killed", "silent", "hangs", "passes"],
)  # fmt: skip
def test_a_part_that_dies_or_hangs_has_failed_and_nothing_is_raised(
    code: str, seconds: float, status: Status, words: list[str], tmp_path: Path
) -> None:
    place = Place(folder=tmp_path / "part", rehearsed=True)
    command = [sys.executable, "-c", f"OUT, PASSED = {str(place.folder / 'outcome.json')!r}, {PASSED!r}\n{code}"]
    done = run_part(Part(name="x", title="x", seconds=seconds), place, command)
    assert done.outcome.status == status
    assert [word for word in words if word not in done.outcome.figure] == []
    assert done.seconds < 15


@pytest.mark.process
def test_a_measured_part_that_reaches_its_limit_has_measured_nothing_and_has_not_failed(tmp_path: Path) -> None:
    place = Place(folder=tmp_path / "part", rehearsed=True)
    part = Part(name="x", title="x", seconds=0.2, needed=False)
    done = run_part(part, place, [sys.executable, "-c", "import time; time.sleep(60)"])
    assert done.outcome.status == "SKIP"
    assert done.outcome.figure.startswith("not measured: ran out of its 0 s")
    done = run_part(part, Place(folder=tmp_path / "other", rehearsed=True), [sys.executable, "-c", "exit(1)"])
    assert done.outcome.status == "FAIL"


@pytest.mark.process
def test_what_a_part_started_ends_with_it(tmp_path: Path) -> None:
    place = Place(folder=tmp_path / "part", rehearsed=True)
    child = tmp_path / "child"
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(child)!r}, 'w').write(str(child.pid))"
    )
    run_part(Part(name="x", title="x", seconds=20.0), place, [sys.executable, "-c", code])
    state = Path("/proc", child.read_text(), "stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


class Pretended:
    """Parts that end as they are told to, on this device (None: torch sees none)."""

    def __init__(self, device: Mapping[str, object] | None = H100, **statuses: Status) -> None:
        self.device, self.statuses, self.names = device, statuses, list[str]()

    def __call__(self, part: Part, place: Place) -> Done:
        if part.name == "device":
            none = Outcome(status="SKIP", figure="torch 2 is a build without CUDA")
            return Done(
                part=part, seconds=1.0,
                outcome=none if self.device is None else Outcome(status="PASS", figure="", details=self.device),
            )  # fmt: skip
        self.names.append(part.name)
        status = self.statuses.get(part.name, "PASS")
        return Done(part=part, outcome=Outcome(status=status, figure=f"figure of {part.name}"), seconds=2.0)


@pytest.fixture(autouse=True)
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's docs and its shipped list, and a user's cache, none of which anything was written to yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verified, "SHIPPED", tmp_path / "shipped.json")
    monkeypatch.setattr(check, "PAGE", tmp_path / "docs" / "gpu.md")
    monkeypatch.setattr(check, "REHEARSAL", tmp_path / "rehearsal")
    monkeypatch.setattr(check, "ONLY", tmp_path / "some")
    return tmp_path / "docs"


def results(file: Path) -> dict[str, str]:
    """What the JSON says of each part."""
    return {part["name"]: part["result"] for part in json.loads(file.read_text())["parts"]}


def test_where_all_passes_the_page_is_written_and_the_kind_is_verified(
    docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.main([], Pretended()) == 0
    assert results(docs / "gpu.json") == dict.fromkeys(ALL, "PASS")
    page = (docs / "gpu.md").read_text()
    assert page.count("| PASS |") == len(PARTS)
    assert [word for word in ("H100", "550", "12.8", "torch", "figure of graphs") if word not in page] == []
    document = json.loads((docs / "gpu.json").read_text())
    assert (document["verified"], document["rehearsed"], document["device"]) == (True, False, H100)
    assert [verified.read_json(file)["devices"][0]["name"] for file in (verified.own_records(), verified.SHIPPED)] == [
        "H100"
    ] * 2  # type: ignore[index]
    assert verified.unverified_text([KIND]) is None
    assert "PASSED on H100" in capsys.readouterr().out


@pytest.mark.parametrize("failing", [["graphs"], ["cpu", "7b"]])
def test_a_part_that_fails_stops_no_other_and_takes_the_record_back(failing: list[str], docs: Path) -> None:
    assert check.main([], Pretended()) == 0
    run = Pretended(**dict.fromkeys(failing, "FAIL"))
    assert check.main([], run) == 1
    assert run.names == ALL
    assert [name for name, result in results(docs / "gpu.json").items() if result == "FAIL"] == failing
    assert verified.unverified_text([KIND]) is not None


@pytest.mark.parametrize("name", ALL)
def test_a_kind_is_verified_without_what_is_only_measured(name: str, docs: Path) -> None:
    assert check.main([], Pretended(**{name: "SKIP"})) == 0
    assert (verified.record_of(KIND) is None) == (name in NEEDED)
    assert (f"; not measured: {name}.**" in (docs / "gpu.md").read_text()) == (name not in NEEDED)


def test_some_parts_verify_nothing_and_leave_the_page_alone(docs: Path, tmp_path: Path) -> None:
    run = Pretended()
    assert check.main(["--only", "graphs", "cpu"], run) == 0
    assert run.names == ["graphs", "cpu"]
    assert not docs.exists()
    assert verified.record_of(KIND) is None
    assert set(results(tmp_path / "some" / "gpu.json")) == {"graphs", "cpu"}


@pytest.mark.parametrize(("statuses", "code"), [({}, 0), ({"p31": "FAIL"}, 1)])
def test_a_rehearsal_claims_nothing(statuses: dict[str, Status], code: int, docs: Path, tmp_path: Path) -> None:
    assert check.main(["--rehearse"], Pretended(device=None, **statuses)) == code
    assert not docs.exists()
    assert verified.read_json(verified.own_records()) is None
    shown = results(tmp_path / "rehearsal" / "gpu.json")
    assert shown == {name: statuses.get(name, "REHEARSED") for name in ALL}
    document = json.loads((tmp_path / "rehearsal" / "gpu.json").read_text())
    assert (document["verified"], document["rehearsed"], document["device"]) == (False, True, None)
    assert "PASS" not in (tmp_path / "rehearsal" / "gpu.md").read_text()


def test_where_torch_sees_no_device_one_line_says_so(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Pretended(device=None)
    assert check.main([], run) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert "no CUDA device here" in line
    assert "without CUDA" in line
    assert run.names == []
    assert not docs.exists()


@pytest.mark.parametrize(
    ("others", "gap"),
    [
        ([{"a": 1.0, "b": None}], 0.0),
        ([{"a": 1.5, "b": None}], 0.5),
        ([{"a": 1.0, "b": 0.0}], float("inf")),  # a number in the place of none
        ([{"a": 1.0}], float("inf")),
        ([], float("inf")),
    ],
)
def test_the_largest_gap_between_rows(others: list[dict[str, float | None]], gap: float) -> None:
    assert largest_gap([{"a": 1.0, "b": None}], others) == gap


FAKE = """#!/bin/sh
case "$*" in
  *is_available*) exit {cuda} ;;
  *benchmarks.gpu_check*) echo "{name} runs $*"; exit 0 ;;
  *-m*) exit 1 ;;
esac
[ $# -gt 1 ] && exit 0
echo "{missing}"
"""


def machine(tmp_path: Path, *, device: bool, **pythons: tuple[bool, str]) -> dict[str, str]:
    """An environment with pretended Pythons: whether their torch sees the device, and what they lack."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "dirname", "mktemp", "sed", "grep", "cat", "rm", "echo"):
        (tools / tool).symlink_to(shutil.which(tool) or "/bin/false")
    (tmp_path / "dev").mkdir()
    if device:
        (tmp_path / "dev" / "nvidia0").touch()
    for name, (cuda, lacks) in pythons.items():
        file = tools / "python3" if name == "path" else tmp_path / name / "bin" / "python"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(FAKE.format(cuda=0 if cuda else 1, name=name, missing=lacks))
        file.chmod(0o755)
    return {"PATH": str(tools), "DEVICE_FILES": str(tmp_path / "dev"), "VENV": str(tmp_path / "venv"),
            "PYTHON": "python3"}  # fmt: skip


def start(environment: Mapping[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    """The script in this environment."""
    command = [shutil.which("sh") or "sh", str(START), *argv]
    return subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)


@pytest.mark.process
def test_without_a_device_nothing_is_installed_and_one_line_says_so(tmp_path: Path) -> None:
    done = start(machine(tmp_path, device=False, venv=(False, "torch")))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "no CUDA device here" in line
    assert "--rehearse" in line


@pytest.mark.process
@pytest.mark.parametrize(
    ("pythons", "runs"),
    [
        ({"venv": (True, ""), "path": (True, "")}, "venv"),
        ({"venv": (False, ""), "path": (True, "")}, "path"),  # a CPU build in the venv
        ({"venv": (False, ""), "venv-gpu": (True, ""), "path": (True, "")}, "venv-gpu"),
        ({"path": (True, "mlflow>=3.15")}, "path"),  # nothing can be installed beside it: what is there must do
    ],
    ids=["venv", "cpu build in venv", "made before", "no index"],
)
def test_a_torch_that_sees_the_device_is_used_where_it_is(
    pythons: dict[str, tuple[bool, str]], runs: str, tmp_path: Path
) -> None:
    done = start(machine(tmp_path, device=True, **pythons), "--only", "graphs")
    assert done.returncode == 0, done.stderr
    assert f"{runs} runs -m benchmarks.gpu_check --only graphs" in done.stdout
    for _, lacks in pythons.values():
        assert lacks in done.stdout  # what is missing is named


def test_every_dependency_of_ours_is_read_and_met_by_what_the_tests_run_with() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert missing(wanted) == []


@pytest.mark.parametrize(
    ("requirement", "named"),
    [
        ("torch", []),
        ("torch>=2", []),
        ("torch>=2.8; platform_python_implementation == 'CPython'", []),
        ("torch>=99; platform_python_implementation == 'CPython'", ["torch>=99"]),  # as pip takes it, in one word
        ("numpy>=1.99", []),  # numbers, not texts: 2.0 is above it
        ("no-such-distribution>=1.0", ["no-such-distribution>=1.0"]),
    ],
)
def test_what_a_python_lacks_is_named(requirement: str, named: list[str]) -> None:
    assert missing([requirement]) == named


def test_a_requirement_of_another_form_is_an_error() -> None:
    with pytest.raises(ValueError, match="allowed is NAME or NAME>=VERSION"):
        missing(["torch~=2.8"])


@pytest.mark.process
def test_a_device_without_any_torch_for_it_ends_with_2(tmp_path: Path) -> None:
    done = start(machine(tmp_path, device=True, path=(False, "torch")))
    assert done.returncode == 2
    assert "Python" in done.stderr


@pytest.mark.slow
@pytest.mark.process
def test_the_quick_parts_are_rehearsed(tmp_path: Path) -> None:
    """The two that measure are rehearsed by tests/benchmarks/test_gpu.py, p31 by the tests of `run`."""
    page, names = tmp_path / "gpu.md", ["graphs", "cpu", "smollm2", "workers", "memory", "resume"]
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--rehearse", "--page", str(page), "--only", *names]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    document = json.loads(page.with_suffix(".json").read_text())
    assert {part["name"]: part["result"] for part in document["parts"]} == dict.fromkeys(names, "REHEARSED")
    details = {part["name"]: part["details"] for part in document["parts"]}
    assert details["resume"]["equal"]
    assert details["memory"]["halvings"]
    assert details["workers"]["workers"] == 2
