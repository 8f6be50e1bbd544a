"""Which weights a name means, and what has none."""

from __future__ import annotations

from pathlib import Path

from core.config import LoraSpec, ModelSpec
from core.models import precision
from grpoctl.cli.lookup import Weights, find_weights
from grpoctl.runs.run_dir import Home
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl, untrained


def test_a_run_without_weights_says_what_to_do(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(ended="INTERRUPTED")
    for argv in (("eval", run.id), ("sample", "p31", "1+1="), ("export", run.id, "out")):
        said = grpoctl(*argv)
        assert said.code == 2
        assert f"{run.id} (INTERRUPTED) has exported no weights" in said.err
        assert "--resume" in said.err


def test_a_sweep_has_no_weights_of_its_own(grpoctl: Grpoctl, home: Home) -> None:
    study = home.path / "sweeps" / "lr-tiny-12345678-1"
    study.mkdir(parents=True)
    (study / "sweep.yaml").write_text("name: lr\n")
    said = grpoctl("eval", study.name)
    assert (said.code, "is a sweep; name one of its runs" in said.err) == (2, True)


def test_a_folder_of_a_policy_that_is_no_language_model_names_its_run(grpoctl: Grpoctl, home: Home) -> None:
    """`grpoctl export p40 out` leaves such a folder; an experiment of the folder's name still means its run."""
    run, _ = untrained(home, "p40", profile="tiny")
    assert grpoctl("export", run.id, "out").code == 0
    assert sorted(file.name for file in Path("out").iterdir()) == ["grpoctl.json", "weights.safetensors"]
    for name in ("out", "./out"):
        said = grpoctl("eval", name, "p40")
        assert (said.code, len(said.err.splitlines())) == (2, 1)
        assert f"{name} holds weights of {run.id}, whose policy is no language model" in said.err
        assert said.err.endswith(f"name the run itself, {run.id}\n")
    Path("out").rename("p40")
    assert find_weights(home, "p40").run_id == run.id


def test_a_model_is_drawn_from_in_the_dtype_that_a_run_with_an_adapter_would_have() -> None:
    lora = LoraSpec(r=2, lora_alpha=2.0, target_modules=("q_proj",))
    like = ModelSpec(source="some/model", lora=lora)
    other, tiny = (Weights(name=name, source=name).model(like) for name in ("some/other", "builtin:tiny"))
    assert (other.lora, other.dtype) == (None, precision.resolve_dtype(like).dtype)  # bfloat16 where the machine has it
    assert tiny.dtype == "float32"
