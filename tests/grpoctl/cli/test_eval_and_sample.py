"""`grpoctl eval`, `sample` and `export` in this process, on the built-in model: nothing here trains."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import torch

from core.config import LoraSpec, ModelSpec
from core.models import precision
from grpoctl.cli.lookup import Weights
from grpoctl.exports.weights import note, whole_folder, write_card
from grpoctl.runs.run_dir import Home, RunDir
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl

FEW = ("task.eval_prompts=6", "task.train_prompts=8")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def weights(recorded: Recorded) -> RunDir:
    """A run of p31 with exported weights, which are not those it started from."""
    from core.assemble import build_policy
    from grpoctl.config import read_resolved

    run = recorded(**dict(text.split("=") for text in FEW))
    policy = build_policy(read_resolved(run.spec))
    with torch.no_grad():
        for name, weight in policy.trainable().items():
            weight.add_(0.05 if "lora_B" in name else 0.0)
    with whole_folder(run.adapter) as draft:
        policy.export(draft)
        note(draft, run, 2)
    write_card(run, run.adapter, merged=False)
    return run


def test_eval_of_a_model_on_an_experiments_task(grpoctl: Grpoctl, tmp_path: Path) -> None:
    said = grpoctl("eval", "builtin:tiny", "p31", *FEW, "--samples", "out.jsonl", "--json")
    document = said.document
    assert (document["schema"], document["model"], document["run_id"]) == (1, "builtin:tiny", None)
    assert (document["experiment"], document["profile"], document["split"]) == ("p31", "tiny", "eval")
    assert (document["prompts"], document["completions"]) == (6, 12)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    assert len({row["prompt_id"] for row in rows}) == 6
    assert document["reward"]["mean"] == pytest.approx(sum(row["expected"] for row in rows) / 12)
    assert document["valid"]["mean"] == pytest.approx(sum(row["valid"] for row in rows) / 12)
    low, high = document["reward"]["low"], document["reward"]["high"]
    assert low < document["reward"]["mean"] < high
    assert list(tmp_path.iterdir()) == [tmp_path / "out.jsonl"]  # it makes no home


def test_eval_says_the_same_of_the_same(grpoctl: Grpoctl) -> None:
    one, again, other = (
        grpoctl("eval", name, "p31", *FEW, "--seed", seed, "--json").document
        for name, seed in (("tiny", "0"), ("builtin:tiny", "0"), ("tiny", "1"))
    )
    for document in (one, again, other):
        del document["seconds"], document["seed"]
    assert one == again != other


def test_fewer_prompts_are_the_first_ones_and_draw_the_same(grpoctl: Grpoctl, tmp_path: Path) -> None:
    grpoctl("eval", "tiny", "p31", *FEW, "--samples", "all.jsonl")
    grpoctl("eval", "tiny", "p31", *FEW, "--prompts", "2", "--samples", "two.jsonl")
    every, two = ((tmp_path / name).read_text().splitlines() for name in ("all.jsonl", "two.jsonl"))
    assert two == every[:4]


def test_eval_of_a_run_is_of_its_own_weights_on_its_own_task(grpoctl: Grpoctl, weights: RunDir) -> None:
    by_id = grpoctl("eval", weights.id, "--json").document
    assert (by_id["run_id"], by_id["step"], by_id["prompts"]) == (weights.id, 2, 6)
    base = grpoctl("eval", "tiny", "p31", *FEW, "--json").document
    assert by_id["reward"] != base["reward"]
    for name in ("p31", str(weights.path), str(weights.adapter)):
        spec = ("p31", *FEW) if name.endswith("adapter") else ()
        assert grpoctl("eval", name, *spec, "--json").document["reward"] == by_id["reward"]
    assert grpoctl("eval", "p31", "task.eval_prompts=3", "--json").document["prompts"] == 3
    text = grpoctl("eval", "p31").out
    assert f"{weights.id}, weights of step 2, on p31 (workflow-dsl), profile tiny, split eval: 6 prompts x 2" in text


def keep(run: RunDir, step: int, *, moved: float) -> None:
    """A checkpoint of the run, whose adapter was moved by so much; 0.05 makes the weights that `weights` exports."""
    from core.assemble import build_policy, open_checkpoints
    from core.training.checkpoint import Progress, Snapshot
    from grpoctl.config import read_resolved

    spec = read_resolved(run.spec)
    state = {name: w + (moved if "lora_B" in name else 0.0) for name, w in build_policy(spec).state().items()}
    snapshot = Snapshot(progress=Progress(step=step), weights=state, optimizer={"none": torch.zeros(1)})
    open_checkpoints(spec, run.checkpoints).save(snapshot)


def test_eval_of_a_step_is_of_its_checkpoint(grpoctl: Grpoctl, weights: RunDir) -> None:
    keep(weights, 1, moved=0.0)
    keep(weights, 2, moved=0.05)
    best, base = grpoctl("eval", "p31", "--json").document, grpoctl("eval", "tiny", "p31", *FEW, "--json").document
    first, second = (grpoctl("eval", "p31", "--step", str(step), "--json").document for step in (1, 2))
    assert (first["step"], first["run_id"], first["adapter"], second["step"]) == (1, weights.id, None, 2)
    assert first["reward"] == base["reward"] != best["reward"] == second["reward"]
    text = grpoctl("eval", weights.id, "p31", "--step", "1", *FEW, "--prompts", "1").out
    assert f"{weights.id}, weights of step 1, on p31" in text


def test_eval_of_a_step_that_was_not_kept_lists_those_that_were(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(ended="INTERRUPTED")  # it has exported nothing, which is no matter here
    said = grpoctl("eval", run.id, "--step", "3")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert f"{run.id} has no checkpoint of step 3; it kept none" in said.err
    keep(run, 1, moved=0.0)
    keep(run, 2, moved=0.0)
    assert "it kept those of 1, 2 (checkpoints.save_total_limit" in grpoctl("eval", run.id, "--step", "3").err
    said = grpoctl("eval", "tiny", "p31", "--step", "3")
    assert (said.code, "tiny is no run" in said.err) == (2, True)


@pytest.mark.parametrize("words", [("--greedy",), ("--temperature", "0")])
def test_greedy_is_one_completion_whatever_the_seed(grpoctl: Grpoctl, words: tuple[str, ...]) -> None:
    documents = [grpoctl("eval", "tiny", "p31", *FEW, *words, "--seed", seed, "--json").document for seed in "01"]
    for document in documents:
        assert (document["num_generations"], document["temperature"]) == (1, 0)
        del document["seconds"], document["seed"]
    assert documents[0] == documents[1]


def test_slices_and_other_splits(grpoctl: Grpoctl) -> None:
    words = ("task.eval_prompts=12", "task.train_prompts=8", "evaluation.slice_by=domain")
    document = grpoctl("eval", "tiny", "p31", *words, "--json").document
    assert set(document["slices"]) == {"math", "qa"}
    assert sum(part["prompts"] for part in document["slices"].values()) == 12
    train = grpoctl("eval", "tiny", "p31", *FEW, "--split", "train", "--num-generations", "1", "--json").document
    assert (train["split"], train["prompts"], train["completions"]) == ("train", 8, 8)


def test_more_prompts_than_there_are_is_a_note(grpoctl: Grpoctl) -> None:
    said = grpoctl("eval", "tiny", "p31", *FEW, "--prompts", "99", "--json")
    assert said.document["prompts"] == 6
    assert said.err == "note: workflow-dsl has 6 eval problems, not 99\n"


# what is typed -> what its one line must name
BAD: list[tuple[list[str], list[str]]] = [
    (["eval", "tiny"], ["grpoctl eval tiny p31"]),
    (["eval", "tiny", "p13"], ["p13", "p31"]),
    (["eval", "tiny", "p31", "p30"], ["2 specs", "p31, p30"]),
    (["eval", "tiny", "p31", "--split", "half"], ["half", "eval, test, train"]),
    (["eval", "tiny", "p31", "--split", "test"], ["no test problems", "eval"]),
    (["eval", "tiny", "p31", "-p", "huge"], ["huge", "tiny"]),
    (["eval", "tiny", "p31", "--greedy", "--num-generations", "2"], ["--num-generations 2", "greedy"]),
    (["eval", "tiny", "p31", "--greedy", "--temperature", "0.5"], ["--greedy", "0.5"]),
    (["eval", "tiny", "p31", "--temperature", "-1"], ["--temperature"]),
    (["eval", "tiny", "p31", "--temperature", "inf"], ["--temperature"]),
    (["eval", "tiny", "p31", "--prompts", "0"], ["--prompts"]),
    (["eval", "tiny", "p31", "--samples", "no/such/file"], ["no folder", "such"]),
    (["eval", "tiny", "p31", "evaluation.slice_by=colour"], ["colour", "domain"]),
    (["eval", "tiny", "p31", "nonsense=1"], ["nonsense"]),
    (["eval", "tiny", "p31", "model.source=x"], ["model.source=x", "tiny"]),
    (["eval", "nobody"], ["no run and no model 'nobody'", "grpoctl ls"]),
    (["eval", "./nobody", "p31"], ["./nobody"]),
    (["eval", "nobody.gguf", "p31"], ["nobody.gguf"]),
    (["eval", ".", "p31"], ["neither a run nor a model", "config.json"]),
    (["sample", "tiny"], ["PROMPT"]),
    (["sample", "tiny", " "], ["empty"]),
    (["sample", "tiny", "\udcff"], ["UTF-8"]),
    (["sample", "tiny", "1+1=", "-n", "0"], ["-n"]),
    (["sample", "tiny", "1+1=", "--max-tokens", "0"], ["--max-tokens"]),
    (["sample", "tiny", "1+1=", "--max-tokens", "1024"], ["4 tokens and 1024", "room for 1024", "--max-tokens"]),
    (["sample", "nobody", "1+1="], ["nobody"]),
    (["export", "nobody", "out"], ["nobody"]),
    (["export", "p31"], ["DIR"]),
]


@pytest.mark.parametrize(
    ("argv", "named"), BAD, ids=[" ".join(argv).encode("ascii", "replace").decode() for argv, _ in BAD]
)
def test_bad_input_is_one_line_and_writes_nothing(
    grpoctl: Grpoctl, tmp_path: Path, argv: list[str], named: list[str]
) -> None:
    said = grpoctl(*argv)
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    for word in named:
        assert word in said.err
    assert list(tmp_path.iterdir()) == []


def test_where_no_reward_could_be_had_nothing_was_measured(grpoctl: Grpoctl, tmp_path: Path) -> None:
    (tmp_path / "lost.py").write_text("def lost(prompts, completions, **columns):\n    raise ValueError('away')\n")
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"q": "{n}"}}\n' for n in range(6)))
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nextends: p31\ntitle: Mine\ntask:\n  name: custom\n  data: {path: rows.jsonl}\n"
        "  prompt: '{q}'\n  train_prompts: 2\n  eval_prompts: 2\n  rewards: [{function: ./lost.py:lost}]\n"
    )
    said = grpoctl("eval", "tiny", str(tmp_path / "mine.yaml"), "-p", "tiny", "task.train_prompts=2",
                   "task.eval_prompts=2", "--json")  # fmt: skip
    assert said.document["reward"]["mean"] is None
    assert said.code == 3


def test_a_run_without_weights_says_what_to_do(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(ended="INTERRUPTED")
    for argv in (("eval", run.id), ("sample", "p31", "1+1="), ("export", run.id, "out")):
        said = grpoctl(*argv)
        assert said.code == 2
        assert f"{run.id} (INTERRUPTED) has exported no weights" in said.err
        assert "--resume" in said.err


def test_a_samples_file_is_never_written_over(grpoctl: Grpoctl, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    said = grpoctl("eval", "tiny", "p31", *FEW, "--samples", "kept")
    assert (said.code, (tmp_path / "kept").read_text()) == (2, "mine")
    assert "is there already" in said.err


def test_sample_is_repeated_by_its_seed(grpoctl: Grpoctl) -> None:
    def drawn(*words: str) -> list[str]:
        document = grpoctl("sample", "tiny", "12+7=", "-n", "6", "--json", *words).document
        return [one["text"] for one in document["completions"]]

    assert drawn() == drawn() != drawn("--seed", "1")
    assert len(set(drawn("--temperature", "0"))) == 1


def test_sample_of_a_run_and_its_document(grpoctl: Grpoctl, weights: RunDir) -> None:
    document = grpoctl("sample", "p31", "12+7=", "--max-tokens", "1", "--json").document
    assert document["run_id"] == weights.id
    assert (document["prompt"], document["max_tokens"], document["temperature"]) == ("12+7=", 1, 1.0)
    (one,) = document["completions"]
    assert (one["tokens"], one["truncated"]) == (1, True)
    assert one["logprob"] < 0
    assert grpoctl("sample", "p31", "12+7=", "--json").document["max_tokens"] == 48  # the run's own


def test_sample_of_one_that_is_running_is_of_its_newest_checkpoint(
    grpoctl: Grpoctl, weights: RunDir, recorded: Recorded
) -> None:
    running = recorded(ended="RUNNING", seed=7)
    drawn = ("12+7=", "-n", "6", "--json")
    base, best = (grpoctl("sample", name, *drawn).document["completions"] for name in ("tiny", weights.id))
    with running.hold():
        assert grpoctl("sample", "p31", *drawn).document["run_id"] == weights.id  # it has kept nothing yet
        keep(running, 1, moved=0.05)
        keep(running, 2, moved=0.0)
        said = grpoctl("sample", "p31", *drawn)
    assert (said.document["run_id"], said.document["step"]) == (running.id, 2)
    assert running.id in said.err
    assert said.document["completions"] == base != best
    assert grpoctl("sample", "p31", *drawn).document["run_id"] == weights.id


def test_sample_reads_standard_input(grpoctl: Grpoctl, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    given(b"12+7=\n")
    assert grpoctl("sample", "tiny", "-", "--json").document["prompt"] == "12+7="
    given(b"12\xff")
    assert "no UTF-8 at byte 2" in grpoctl("sample", "tiny", "-").err
    given(b"")
    assert "empty" in grpoctl("sample", "tiny", "-").err


def test_several_completions_are_told_apart(grpoctl: Grpoctl) -> None:
    said = grpoctl("sample", "tiny", "12+7=", "-n", "2", "--max-tokens", "1")
    assert [line for line in said.out.splitlines() if line.startswith("---")] == ["--- 1 (cut off)", "--- 2 (cut off)"]
    assert "2 of 2 were cut off at 1 tokens" in said.err


def test_export_copies_or_merges_and_what_it_wrote_says_the_same(
    grpoctl: Grpoctl, weights: RunDir, tmp_path: Path
) -> None:
    adapter = grpoctl("export", "p31", "adapter", "--json").document
    merged = grpoctl("export", weights.id, "merged", "--merged", "--json").document
    assert (adapter["format"], adapter["merged"], adapter["step"]) == ("peft", False, 2)
    assert (merged["format"], merged["merged"]) == ("transformers", True)
    assert {"adapter_model.safetensors", "tokenizer.json", "README.md"} <= set(adapter["files"])
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md"} <= set(merged["files"])
    assert merged["dir"] == str(tmp_path / "merged")
    own = grpoctl("eval", "p31", "--json").document["reward"]
    for folder in ("adapter", "./merged"):
        assert grpoctl("eval", folder, "p31", *FEW, "--json").document["reward"] == own
    assert "merged into it" in (tmp_path / "merged" / "README.md").read_text()
    assert grpoctl("export", "p31", "merged").code == 2  # nothing is written over
    assert {path.name for path in tmp_path.iterdir()} == {".grpoctl", "adapter", "merged"}


def test_a_sweep_has_no_weights_of_its_own(grpoctl: Grpoctl, home: Home) -> None:
    study = home.path / "sweeps" / "lr-tiny-12345678-1"
    study.mkdir(parents=True)
    (study / "sweep.yaml").write_text("name: lr\n")
    said = grpoctl("eval", study.name)
    assert (said.code, "is a sweep; name one of its runs" in said.err) == (2, True)


def test_a_model_is_drawn_from_in_the_dtype_that_a_run_with_an_adapter_would_have() -> None:
    lora = LoraSpec(r=2, lora_alpha=2.0, target_modules=("q_proj",))
    like = ModelSpec(source="some/model", lora=lora)
    other, tiny = (Weights(name=name, source=name).model(like) for name in ("some/other", "builtin:tiny"))
    assert (other.lora, other.dtype) == (None, precision.resolve_dtype(like).dtype)  # bfloat16 where the machine has it
    assert tiny.dtype == "float32"
