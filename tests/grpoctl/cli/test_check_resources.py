"""`grpoctl check --resources` through the command line, without a probe: nothing is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from core.models import precision
from tests.grpoctl.cli.conftest import Grpoctl


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No hub is asked."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def resources(grpoctl: Grpoctl, *argv: str) -> dict[str, Any]:
    said = grpoctl("check", *argv, "--resources", "--no-probe", "--json")
    assert said.code == 0, said.err
    found: dict[str, Any] = said.document["resources"]
    return found


def test_the_document_of_a_model_that_is_not_here(grpoctl: Grpoctl) -> None:
    found = resources(grpoctl, "p31", "--memory", "48")
    assert found["model"]["parameters"] == 7_615_616_512
    # r=64 on q, o (3584 -> 3584) and k, v (3584 -> 512), 28 blocks
    assert found["model"]["trainable"] == 64 * 28 * (2 * 7168 + 2 * 4096)
    assert (found["memory_bytes"], found["memory_given"], found["fits"]) == (48 * 2**30, True, True)
    parts = {part["name"]: part["bytes"] for part in found["parts"]}
    assert parts["weights"] == 2 * 7_615_616_512
    assert max(phase["bytes"] for phase in found["phases"]) == found["peak_bytes"]
    assert all(sum(phase["parts"].values()) == phase["bytes"] for phase in found["phases"])
    assert found["measured_peak_bytes"] is None
    assert found["probe"] == {"ran": False, "why_not": "--no-probe"}
    assert found["disk"]["model_to_download"] == 2 * 7_615_616_512
    assert found["changes"]["together"] == []  # it fits


def test_what_fits_ours_is_not_said_to_fit_another_trainer(grpoctl: Grpoctl) -> None:
    argv = ("p31", "trainer.kind=trl", "--memory", "48")
    found = resources(grpoctl, *argv)
    assert (found["fits"], found["trainer"]) == (None, "grpoctl")
    said = grpoctl("check", *argv, "--resources", "--no-probe")
    assert "those of trl are not known" in said.err
    assert "whether the spec's trainer does is not known" in " ".join(said.out.split())
    assert resources(grpoctl, *argv[:2], "--memory", "18")["fits"] is False  # ours does not, and TRL takes more


def test_what_does_not_fit_is_told_how_it_would(grpoctl: Grpoctl) -> None:
    found = resources(grpoctl, "p31", "--memory", "18")
    assert found["fits"] is False
    together = found["changes"]["together"]
    assert together[-1]["fits"]
    assert together[-1]["bytes"] <= 18 * 2**30
    # and it does: the changes are overrides as they stand
    changes = [one["change"] for one in together if not one["change"].startswith("--profile")]
    assert resources(grpoctl, "p31", *changes, "--memory", "18")["peak_bytes"] == together[-1]["bytes"]


def test_full_fine_tuning_of_what_does_not_fit_is_pointed_to_several_devices(grpoctl: Grpoctl) -> None:
    found = resources(grpoctl, "p31", "model.lora=null", "--memory", "24")
    several = found["changes"]["sharded"]
    # bf16: weights, reference, two moments, a gradient
    assert several == {"trainer": "trl", "bytes": 10 * 7_615_616_512, "devices": 4}
    said = grpoctl("check", "p31", "model.lora=null", "--resources", "--no-probe", "--memory", "24").out
    words = " ".join(said.split())
    assert "trainer.kind=trl with FSDP" in words
    assert "at least 4 devices of 24.0 GiB" in words
    assert max(map(len, said.splitlines())) <= 80
    assert resources(grpoctl, "p31", "--memory", "18")["changes"]["sharded"] is None


def test_of_an_open_dtype_what_a_run_here_would_take_is_counted(grpoctl: Grpoctl) -> None:
    size = 2 if precision.machine_facts().bfloat16 else 4
    found = resources(grpoctl, "p31", "model.dtype=auto", "--memory", "48")
    assert found["disk"]["model_to_download"] == size * 7_615_616_512
    assert {part["name"]: part["bytes"] for part in found["parts"]}["weights"] == size * 7_615_616_512
    said = grpoctl("check", "p31", "model.dtype=auto", "--resources", "--no-probe", "--json")
    assert f"dtype {'bfloat16' if size == 2 else 'float32'} (auto: this " in said.err


def test_in_words_it_fits_80_columns(grpoctl: Grpoctl) -> None:
    for memory in ("16", "1", "100"):
        said = grpoctl("check", "p31", "--resources", "--no-probe", "--memory", memory)
        assert said.code == 0
        assert max(map(len, said.out.splitlines())) <= 80
    assert "DOES NOT FIT into the 1.0 GiB given" in " ".join(
        grpoctl("check", "p31", "--resources", "--no-probe", "--memory", "1").out.split()
    )


@pytest.mark.parametrize("memory", ["0", "-1", "nan", "inf"])
def test_a_memory_that_is_none_is_refused(grpoctl: Grpoctl, memory: str) -> None:
    said = grpoctl("check", "p31", "--resources", "--no-probe", f"--memory={memory}")
    assert (said.code, said.out) == (2, "")
    assert "--memory" in said.err


@pytest.mark.parametrize("argv", [("--memory", "8"), ("--no-probe",)])
def test_an_option_of_resources_without_it_is_refused(grpoctl: Grpoctl, argv: tuple[str, ...]) -> None:
    said = grpoctl("check", "p31", *argv)
    assert (said.code, said.out) == (2, "")
    assert "--resources" in said.err


def test_a_sweep_has_no_resources_of_its_own(grpoctl: Grpoctl) -> None:
    said = grpoctl("check", "advantage-study", "--resources", "--no-probe")
    assert (said.code, said.out) == (2, "")
    assert "--resources" in said.err


def test_a_model_without_shapes_is_one_line(grpoctl: Grpoctl) -> None:
    said = grpoctl("check", "p31", "--resources", "--json", "model.source=nobody/nothing")
    assert (said.code != 0, said.out) == (True, "")
    assert "hf download nobody/nothing config.json" in said.err
    assert len(said.err.strip().splitlines()) == 1
