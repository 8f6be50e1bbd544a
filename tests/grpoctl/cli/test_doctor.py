"""`grpoctl doctor`: the home and the cache of models."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from grpoctl.cli.doctor import examination
from grpoctl.runs.run_dir import Home


def test_doctor_says_what_is_wrong_and_goes_on(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPOCTL_HOME", str(home.path / "deep" / "down"))
    assert {check["name"]: check["ok"] for check in examination()}["home"]
    assert not home.path.exists()
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("GRPOCTL_HOME", str(file))
    checks = {check["name"]: check for check in examination()}
    assert not checks["home"]["ok"]
    assert "Not a directory" in checks["home"]["detail"]
    assert checks["python"]["ok"]
    assert "model cache" in checks
    monkeypatch.setenv("GRPOCTL_HOME", str(file / "below"))
    below = next(check for check in examination() if check["name"] == "home")
    assert (below["ok"], f"{file} is no folder" in below["detail"]) == (False, True)


@pytest.mark.parametrize(
    ("writes", "compiled", "told"), [(True, False, False), (False, True, False), (False, False, True)]
)
def test_starts_that_compile_every_package_anew_are_told(
    writes: bool, compiled: bool, told: bool, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", not writes)
    if not compiled:
        monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))  # where nothing is
    (python,) = [check for check in examination() if check["name"] == "python"]
    assert python["ok"]
    assert ("every start takes some seconds longer" in python["detail"]) is told


def test_doctor_looks_at_every_model_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GRPOCTL_HOME", str(tmp_path / "home"))
    for name in ("builtin-tiny-1", "gguf-2-float32", "gguf-2-float32.work-3"):  # the last is not made yet
        (tmp_path / "grpoctl" / name).mkdir(parents=True)
    (cache,) = [check for check in examination() if check["name"] == "model cache"]
    names = "builtin-tiny-1, gguf-2-float32"
    assert cache["detail"].endswith(f"({names}; damaged, made again when used: {names})")  # without checksums
