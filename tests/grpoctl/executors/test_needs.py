"""What a trainer lacks on this machine is said by the spec's key, before anything is written and without importing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from trl.chat_template_utils import supports_tool_calling

from core.config import RunSpec
from core.config.run import check_fit
from core.errors import SpecError
from grpoctl.config import load
from grpoctl.executors import needs
from grpoctl.executors.needs import check_map, check_trainer

COMMAND = """
name: mine
title: Mine
trainer: {kind: command, command: "python3 train.py {learning_rate}"}
stages:
  grpo: {num_generations: 4, prompts_per_step: 2, max_steps: 8, learning_rate: 0.01}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the files that the cases name."""
    monkeypatch.chdir(tmp_path)
    files = {
        "mine.yaml": COMMAND, "tools.py": "raise SystemExit('imported')\ndef search(q): return q\n",
        "fsdp.yaml": "distributed_type: FSDP\n", "list.yaml": "- a\n", "broken.yaml": "a: [1\n",
        "ds.json": '{"zero_optimization": {"stage": 3}}', "list.json": "[]", "plain.sh": "true\n",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def trl(**trainer: Any) -> RunSpec:
    overrides = [f"trainer.{key}={json.dumps(value)}" for key, value in trainer.items()]
    return load("p31", profile="tiny", overrides=["trainer.kind=trl", *overrides]).spec


def refused(spec: RunSpec, key: str, *facts: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_trainer(spec)
    assert caught.value.key == key
    assert [fact for fact in facts if fact not in str(caught.value)] == []


def test_what_is_there_is_not_refused() -> None:
    check_trainer(trl())
    check_trainer(trl(accelerate_config="fsdp.yaml"))
    tools = 'trainer.args={tools: ["./tools.py:search", "json:dumps"]}'  # the built-in model takes none
    check_trainer(load("p31", profile="tiny", overrides=["trainer.kind=trl", "model.source=a/b", tools]).spec)
    check_trainer(trl(args={"fsdp_config": "ds.json", "accelerator_config": '{"even_batches": true}'}))
    check_trainer(load("mine.yaml").spec)
    check_trainer(load("mine.yaml", overrides=["trainer.command='{run_dir}/made-there {learning_rate}'"]).spec)


def test_without_trl_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda name: None)
    refused(trl(), "trainer.kind", "pip install 'grpoctl[trl]'")


@pytest.mark.parametrize(("version", "allowed"), [("1.16.3", True), ("1.160.0", False), ("0.24.0", False)])
def test_another_version_of_trl_is_not_what_was_written_against(
    version: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs.metadata, "version", lambda name: version)
    if allowed:
        check_trainer(trl())
    else:
        refused(trl(), "trainer.kind", version, "1.16")


@pytest.mark.parametrize(
    ("trainer", "key", "facts"),
    [
        ({"accelerate_config": "none.yaml"}, "accelerate_config", ["none.yaml"]),
        ({"accelerate_config": "list.yaml"}, "accelerate_config", ["list.yaml", "accelerate"]),
        ({"accelerate_config": "broken.yaml"}, "accelerate_config", ["broken.yaml", "line 2"]),
        ({"accelerate_config": "."}, "accelerate_config", ["directory"]),
        ({"args": {"fsdp_config": "none.json"}}, "args.fsdp_config", ["none.json"]),
        ({"args": {"fsdp_config": "list.json"}}, "args.fsdp_config", ["list.json", "mapping"]),
        ({"args": {"fsdp_config": "fsdp.yaml"}}, "args.fsdp_config", ["fsdp.yaml", "JSON"]),
        ({"args": {"tools": ["./none.py:f"]}}, "args.tools.0", ["none.py", "tools.py"]),
        ({"args": {"tools": ["json:dumps", "./tools.py:serch"]}}, "args.tools.1", ["serch", "did you mean search?"]),
        ({"args": {"environment_factory": "nomodule.env:Env"}}, "args.environment_factory", ["nomodule"]),
        ({"args": {"rollout_func": "json.nothing:f"}}, "args.rollout_func", ["json.nothing"]),
    ],
)
def test_what_trl_lacks(trainer: dict[str, Any], key: str, facts: list[str]) -> None:
    spec = trl(**trainer)
    check_fit(spec)  # the settings are sound: another machine may have what they name
    refused(spec, f"trainer.{key}", *facts)
    assert "tools" not in sys.modules


@pytest.mark.parametrize(("name", "value"), [("use_vllm", True), ("deepspeed", "ds.json"), ("use_liger_kernel", True)])
def test_a_package_that_a_setting_needs(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda package: package == "trl" or None)
    refused(trl(args={name: value}), f"trainer.args.{name}", "pip install")


@pytest.mark.parametrize(
    ("command", "facts"),
    [
        ("nosuchprogram {learning_rate}", ["nosuchprogram", "PATH"]),
        ("./none.sh {learning_rate}", ["./none.sh", "no such file"]),
        ("./plain.sh {learning_rate}", ["./plain.sh", "not executable"]),
        ("~/train.sh {learning_rate}", ["~/train.sh", "shell"]),
        ("/ {learning_rate}", ["folder"]),
    ],
)
@pytest.mark.parametrize("key", ["command", "resume_command"])
def test_a_program_that_cannot_be_started(key: str, command: str, facts: list[str]) -> None:
    refused(load("mine.yaml", overrides=[f"trainer.{key}={command}"]).spec, f"trainer.{key}", *facts)


@pytest.mark.parametrize("key", ["command", "resume_command", "metrics"])
def test_no_program_can_be_given_a_nul(key: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_fit(load("mine.yaml", overrides=[f'trainer.{key}="python3 a\\0b"']).spec)
    assert caught.value.key == f"trainer.{key}"


@pytest.mark.parametrize(
    ("given", "facts"),
    [({"reward/meen": "qux"}, ["reward/mean"]), ({"qux": "quux"}, ["quux"]), ({"reward/mean": " "}, ["' '"])],
)
def test_a_map_that_names_no_metric(given: dict[str, str], facts: list[str]) -> None:
    spec = load("mine.yaml", overrides=[f"trainer.map={json.dumps(given)}"]).spec
    for check in (check_map, check_trainer):
        with pytest.raises(SpecError) as caught:
            check(spec)
        assert caught.value.key == "trainer.map"
        assert "--map" not in str(caught.value)
        assert [fact for fact in facts if fact not in str(caught.value)] == []


@pytest.mark.parametrize("given", [{"reward/mean": "qux"}, {"qux": "reward/mean"}])
def test_a_map_in_either_order(given: dict[str, str]) -> None:
    check_map(load("mine.yaml", overrides=[f"trainer.map={json.dumps(given)}"]).spec)


def test_a_path_that_is_no_model_is_refused_and_a_hub_id_is_not(here: Path) -> None:
    (here / "adapter").mkdir()
    (here / "adapter" / "adapter_config.json").write_text("{}")
    (here / "mine.gguf").write_bytes(b"")

    def sourced(source: str, *overrides: str) -> RunSpec:
        return load("p31", profile="small", overrides=[f"model.source={source}", *overrides]).spec

    for source, says in (
        ("./nothere", "no directory; give a folder"),
        ("/nowhere/at/all", "no directory; give a folder"),
        ("~/nowhere/at/all", "no directory; give a folder"),
        ("./adapter", "it is an adapter; merge it first"),
        ("./none.gguf", "no such file; give a folder"),
    ):
        refused(sourced(source), "model.source", says)
        refused(sourced(source, "trainer.kind=trl"), "model.source", says)
    for source in ("org/nothere", "builtin:tiny", "./mine.gguf"):
        check_trainer(sourced(source))


def test_tools_need_a_chat_template_that_can_show_a_call(here: Path) -> None:
    """TRL's own test of a template, for which it must have loaded the tokenizer, agrees."""
    model = here / "model"
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}, "a"))).save_pretrained(model)
    (model / "config.json").write_text("{}")
    save_file({"w": torch.zeros(1)}, model / "model.safetensors")
    tools = ["trainer.kind=trl", "trainer.args={tools: [json:dumps]}"]
    plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
    calls = plain.replace(
        "}}", "}}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments }}{% endfor %}"
    )
    for template, takes in ((None, False), (plain, False), (calls, True), ("{{ messages | tojson }}", True)):
        (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        spec = load("p31", profile="small", overrides=["model.source=./model", *tools]).spec
        tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
        assert supports_tool_calling(tokenizer) is takes
        if takes:
            check_trainer(spec)
        else:
            refused(spec, "trainer.args.tools", "has no tool_calls", "give a model whose template has")
    refused(trl(args={"environment_factory": "json:JSONDecoder"}), "trainer.args.environment_factory", "builtin:tiny")
    for source in ("a/b/c", "a/nothere"):  # the run says what is no hub id, or not in the hub
        check_trainer(load("p31", profile="small", overrides=[f"model.source={source}", *tools]).spec)
    check_trainer(trl(args={"rollout_func": "json:dumps"}))
