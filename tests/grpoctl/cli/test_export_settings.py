"""`grpoctl export --to` and `grpoctl import`: what they write runs, is valid, and says what it does not carry."""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from core.config.run import check_fit
from core.config.trl.fields import VERL
from core.config.trl.settings import trl_settings
from core.policies.registry import check_policy
from grpoctl.config import experiments, load
from grpoctl.executors.needs import check_trainer
from grpoctl.exports.verl_overrides import verl_overrides
from grpoctl.runs.run_dir import Home
from tests.architecture.source import ROOT
from tests.grpoctl.cli.conftest import Grpoctl, untrained


def config_in(script: str) -> dict[str, object]:
    """The literal CONFIG of a script."""
    (value,) = [
        node.value for node in ast.parse(script).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CONFIG"
    ]  # fmt: skip
    config = ast.literal_eval(value)
    assert isinstance(config, dict)
    return config


def test_a_script_has_the_settings_and_says_what_differs(grpoctl: Grpoctl, tmp_path: Path) -> None:
    said = grpoctl("export", "p31", "--to", "trl", "--profile", "tiny")
    spec = load("p31", profile="tiny").spec
    assert said.code == 0
    assert config_in(said.out) == {setting.field: setting.value for setting in trl_settings(spec)}
    line = next(line for line in said.out.splitlines() if '"scale_rewards"' in line)
    assert "differs" in line
    assert "ddof 1" in line
    assert grpoctl("export", "p31", "--to", "trl", "-p", "tiny", "p31.py").code == 0
    assert (tmp_path / "p31.py").read_text() == said.out
    again = grpoctl("export", "p31", "--to", "trl", "p31.py")  # nothing is written over
    assert (again.code, "p31.py" in again.err) == (2, True)
    assert not (tmp_path / ".grpoctl").exists()  # no run is needed


def test_a_runs_settings_are_its_own(grpoctl: Grpoctl, home: Home) -> None:
    run, _ = untrained(home, "p31", profile="tiny")
    assert config_in(grpoctl("export", run.id, "--to", "trl").out)["learning_rate"] == 5e-4
    assert grpoctl("export", run.id, "--to", "trl", "-p", "tiny").code == 2


def test_overrides_are_applied_and_are_no_file(grpoctl: Grpoctl, home: Home, tmp_path: Path) -> None:
    words = ("num_generations=4", "p31.py", "stages.grpo.learning_rate=2e-4")
    assert grpoctl("export", "p31", "--to", "trl", "-p", "tiny", *words).code == 0
    config = config_in((tmp_path / "p31.py").read_text())
    assert (config["num_generations"], config["learning_rate"]) == (4, 2e-4)
    assert [file.name for file in tmp_path.glob("*=*")] == []
    assert grpoctl("export", "p31", "--to", "trl", "./a=b.py").code == 0  # a path
    assert (tmp_path / "a=b.py").is_file()
    run, _ = untrained(home, "p31", profile="tiny")
    for argv, says in (
        (("p31", "--to", "trl", "foo=1"), "foo"),
        (("p31", "--to", "trl", "one.py", "two.py"), "one folder or file"),
        ((run.id, "--to", "trl", "beta=1"), "leave beta=1 out"),
        ((run.id, "beta=1"), "belong to --to"),
    ):
        said = grpoctl("export", *argv)
        assert (said.code, len(said.err.splitlines()), says in said.err) == (2, 1, True), said.err


def test_an_adapter_on_all_linear_layers_comes_and_goes(grpoctl: Grpoctl, tmp_path: Path) -> None:
    """PEFT and verl take it as a text; in a list it would be the name of a module."""
    (tmp_path / "c.yaml").write_text("{use_peft: true, lora_target_modules: all-linear}")
    assert grpoctl("import", "trl", "c.yaml", "--out", "mine.yaml").code == 0
    assert "target_modules='all-linear'," in grpoctl("export", "mine.yaml", "--to", "trl").out
    lines = overrides_of(grpoctl("export", "mine.yaml", "--to", "verl").out)
    assert lines["actor_rollout_ref.model.target_modules"] == "all-linear"


def test_every_language_models_script_is_python(grpoctl: Grpoctl) -> None:
    names = [experiment.name for experiment in experiments()]
    written = {name: grpoctl("export", name, "--to", "trl") for name in names}
    for name, said in written.items():
        if load(name).spec.model is None or load(name).spec.stages.keys() == {"rce"}:
            assert said.code == 2, name
        else:
            ast.parse(said.out)
    assert "dynamic sampling" in written["p37"].out  # DAPO's, named as left out
    assert "entropy-weighted" in written["p36"].out


# Every name that --to verl can write, each looked up in verl/trainer/config/_generated_ppo_trainer.yaml of verl
# 0.8.0.dev, commit b178a3cd of 2026-01-29. Look a new one up before it comes in here, and mend VERL_VERSION.
_OF_VERL = """
actor_rollout_ref.actor.clip_ratio_c actor_rollout_ref.actor.clip_ratio_high actor_rollout_ref.actor.clip_ratio_low
actor_rollout_ref.actor.entropy_coeff actor_rollout_ref.actor.grad_clip actor_rollout_ref.actor.kl_loss_coef
actor_rollout_ref.actor.kl_loss_type actor_rollout_ref.actor.loss_agg_mode actor_rollout_ref.actor.loss_scale_factor
actor_rollout_ref.actor.optim.betas actor_rollout_ref.actor.optim.lr actor_rollout_ref.actor.optim.lr_scheduler_type
actor_rollout_ref.actor.optim.lr_warmup_steps actor_rollout_ref.actor.optim.weight_decay
actor_rollout_ref.actor.policy_loss.loss_mode actor_rollout_ref.actor.ppo_epochs
actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu actor_rollout_ref.actor.ppo_mini_batch_size
actor_rollout_ref.actor.tau_neg actor_rollout_ref.actor.tau_pos actor_rollout_ref.actor.use_kl_loss
actor_rollout_ref.model.enable_gradient_checkpointing actor_rollout_ref.model.lora_alpha
actor_rollout_ref.model.lora_rank actor_rollout_ref.model.path actor_rollout_ref.model.target_modules
actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu actor_rollout_ref.rollout.calculate_log_probs
actor_rollout_ref.rollout.load_format actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu
actor_rollout_ref.rollout.n actor_rollout_ref.rollout.name actor_rollout_ref.rollout.temperature
actor_rollout_ref.rollout.tensor_model_parallel_size actor_rollout_ref.rollout.top_k actor_rollout_ref.rollout.top_p
actor_rollout_ref.rollout.val_kwargs.do_sample actor_rollout_ref.rollout.val_kwargs.n
actor_rollout_ref.rollout.val_kwargs.temperature algorithm.adv_estimator algorithm.kl_ctrl.kl_coef
algorithm.kl_penalty algorithm.norm_adv_by_std_in_grpo algorithm.rollout_correction.rollout_is
algorithm.rollout_correction.rollout_is_threshold algorithm.use_kl_in_reward data.max_response_length
data.train_batch_size trainer.logger trainer.max_actor_ckpt_to_keep trainer.n_gpus_per_node trainer.save_freq
trainer.test_freq trainer.total_epochs trainer.total_training_steps
"""
OF_VERL = set(_OF_VERL.split())
# Those that main_ppo asserts, or without which it asks for eight GPUs and a W&B account.
_ALWAYS = """
actor_rollout_ref.rollout.name actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu
actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu actor_rollout_ref.rollout.tensor_model_parallel_size
trainer.n_gpus_per_node trainer.logger trainer.total_training_steps
"""
ALWAYS = set(_ALWAYS.split())


def overrides_of(text: str) -> dict[str, str]:
    """verl's name -> value as written."""
    pairs = [line.split("=", 1) for line in text.splitlines() if not line.startswith("#")]
    assert len({name for name, _ in pairs}) == len(pairs)  # hydra would take the last one, without a word
    return {pair[0]: pair[1] for pair in pairs}


def test_the_overrides_of_verl(grpoctl: Grpoctl) -> None:
    out = grpoctl("export", "p31", "--to", "verl").out
    lines = overrides_of(out)
    assert lines["actor_rollout_ref.rollout.n"] == "8"
    assert lines["data.train_batch_size"] == "2"
    assert lines["actor_rollout_ref.actor.loss_agg_mode"] == "seq-mean-token-mean"
    assert lines["actor_rollout_ref.actor.kl_loss_type"] == "mse"  # verl's k2
    assert (lines["actor_rollout_ref.actor.clip_ratio_low"], lines["actor_rollout_ref.rollout.top_k"]) == ("0.2", "-1")
    assert lines["actor_rollout_ref.rollout.val_kwargs.do_sample"] == "True"
    assert lines["actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"] == "2"
    above = out.splitlines()[out.splitlines().index("actor_rollout_ref.rollout.temperature=0.3") - 1]
    assert above.startswith("# stages.grpo.temperature; differs")
    assert "left out" in next(
        line for line in grpoctl("export", "p30", "--to", "verl").out.splitlines() if "faults" in line
    )


def test_every_experiment_goes_to_verl_or_is_refused(grpoctl: Grpoctl) -> None:
    written = 0
    for experiment in experiments():
        spec = load(experiment.name).spec
        said = grpoctl("export", experiment.name, "--to", "verl")
        if spec.model is None or all(stage.kind != "grpo" for stage in spec.stages.values()):
            assert (said.code, said.out) == (2, ""), experiment.name
            assert "verl" in said.err
            assert "TRL" not in said.err
            continue
        lines = overrides_of(said.out)
        assert set(lines) <= OF_VERL, experiment.name
        assert set(lines) >= ALWAYS, experiment.name
        assert all(re.fullmatch(r"[\w.]+=\S+", f"{key}={value}") for key, value in lines.items())  # each one word
        written += 1
    assert written > 10
    names = {names[0] for key, names in VERL.items() if "." in names[0]}
    assert names - OF_VERL <= {"actor_rollout_ref.actor.optim.total_training_steps"}  # verl sets it by itself


def of_verl(*overrides: str) -> tuple[dict[str, str], str]:
    text = verl_overrides(load("p31", profile="tiny", overrides=overrides).spec)
    return overrides_of(text), text


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        # verl clamps the weight to 1 - low ... 1 + high, a spec's bound is of the weight itself
        (["method=cispo", "cispo_max_weight=4"], {"policy_loss.loss_mode": "cispo", "clip_ratio_low": "1.0",
                                                  "clip_ratio_high": "3.0"}),
        (["method=sapo", "sapo_temperature_neg=1.5"], {"policy_loss.loss_mode": "sapo", "tau_pos": "1.0",
                                                       "tau_neg": "1.5"}),
        # p31 tiny has 8 x 2 rows in one micro-batch of 48 tokens: 16 x 48
        (["method=dr_grpo"], {"loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": "768"}),
        (["surrogate=dual_clip", "dual_clip=2.5"], {"clip_ratio_c": "2.5"}),
        # steps, as verl's scheduler ticks once for each rollout
        (["warmup_steps=5", "num_iterations=3"], {"optim.lr_warmup_steps": "5", "ppo_epochs": "3"}),
    ],
)  # fmt: skip
def test_settings_of_verls_actor(overrides: list[str], expected: dict[str, str]) -> None:
    lines, _ = of_verl(*overrides)
    assert {key: lines[f"actor_rollout_ref.actor.{key}"] for key in expected} == expected


def test_verls_kl_in_the_reward_and_its_correction_of_the_sampler() -> None:
    lines, _ = of_verl("kl_in=reward", "kl_estimator=k1", "beta=0.02")
    kl = [lines[f"algorithm.{key}"] for key in ("use_kl_in_reward", "kl_ctrl.kl_coef", "kl_penalty")]
    assert kl == ["True", "0.02", "kl"]
    assert lines["actor_rollout_ref.actor.use_kl_loss"] == "False"
    lines, text = of_verl("importance_sampling_cap=2", "min_p=0.1")
    correction = [lines[f"algorithm.rollout_correction.{key}"] for key in ("rollout_is", "rollout_is_threshold")]
    assert correction == ["token", "2.0"]
    assert re.search("left out.*stages.grpo.min_p", text)
    lines, _ = of_verl("beta=0")
    assert "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu" not in lines


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_an_exported_configuration_comes_back(grpoctl: Grpoctl, tmp_path: Path, suffix: str) -> None:
    config = config_in(grpoctl("export", "p31", "--to", "trl", "-p", "tiny").out)
    file = tmp_path / f"Mine 2{suffix}"
    file.write_text(json.dumps(config) if suffix == ".json" else yaml.safe_dump(config))
    said = grpoctl("import", "trl", str(file))
    assert said.code == 0
    assert "not understood" not in said.err
    (tmp_path / "mine-2.yaml").write_text(said.out)
    assert grpoctl("validate", "./mine-2.yaml").code == 0
    assert config_in(grpoctl("export", "./mine-2.yaml", "--to", "trl").out) == config


def test_what_was_not_understood_is_listed(grpoctl: Grpoctl, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("learning_rate: 2.0e-6\nreport_to: wandb\nfoo: 3\nuse_vllm: true\n")
    said = grpoctl("import", "trl", "c.yaml", "--out", "experiments/got.yaml")
    assert said.code == 0
    text = (tmp_path / "experiments" / "got.yaml").read_text()
    for field in ("foo", "report_to"):
        assert re.search(rf"^#   {field} ", text, re.M)
        assert f"not understood: {field}" in said.err
    spec = load("./experiments/got.yaml").spec
    assert (spec.name, spec.trainer.args, spec.stages["grpo"].learning_rate) == ("got", {"use_vllm": True}, 2e-6)
    assert grpoctl("import", "trl", "c.yaml", "--out", "experiments/got.yaml").code == 2
    document = grpoctl("import", "trl", "c.yaml", "--json").document
    assert set(document["not_understood"]) == {"foo", "report_to"}


LARGE = {
    "model_name_or_path": "org/model", "model_revision": "main", "dtype": "bfloat16", "use_peft": True,
    "lora_target_modules": ["gate_proj"], "trust_remote_code": True, "use_vllm": True, "vllm_mode": "colocate",
    "deepspeed": {"zero_optimization": {"stage": 3}}, "optim": "adamw_8bit", "warmup_steps": 500, "max_steps": 1000,
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 8, "steps_per_generation": 16,
    "max_completion_length": 4096, "push_to_hub": True, "chat_template_kwargs": {"enable_thinking": False},
}  # fmt: skip


@pytest.mark.parametrize("given", [{}, LARGE, {"num_generations": 3, "per_device_train_batch_size": 3}])
def test_the_profile_tiny_tries_an_imported_spec_here(
    grpoctl: Grpoctl, tmp_path: Path, given: dict[str, object]
) -> None:
    (tmp_path / "c.json").write_text(json.dumps(given))
    assert grpoctl("import", "trl", "c.json", "--out", "got.yaml").code == 0
    spec = load("./got.yaml", profile="tiny").spec
    check_fit(spec)
    check_policy(spec)
    check_trainer(spec)  # no package, device or hub is needed
    stage = spec.stages["grpo"]
    assert spec.language_model.source == "builtin:tiny"
    assert stage.max_steps * stage.rows_per_step <= 256
    assert stage.num_generations == given.get("num_generations", 8)
    assert not spec.trainer.args.get("push_to_hub")
    for command in (["check"], ["run", "--dry-run"]):
        assert grpoctl(command[0], "./got.yaml", *command[1:], "-p", "tiny").code == 0


def test_a_configuration_of_standard_input(grpoctl: Grpoctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def piped(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    piped(b'{"learning_rate": 2e-06}')
    assert grpoctl("import", "trl", "-", "--out", "piped.yaml").code == 0
    spec = load("./piped.yaml").spec
    assert (spec.name, spec.stages["grpo"].learning_rate) == ("piped", 2e-6)
    for data in (b"", b"[1]", pickle.dumps({"beta": 1}, protocol=0), b"a: [1"):
        piped(data)
        said = grpoctl("import", "trl", "-")
        assert said.code == 2
        (line,) = said.err.splitlines()
        assert "standard input" in line


@pytest.mark.parametrize(
    ("name", "data", "facts"),
    [
        ("empty.yaml", b"", ["GRPOConfig"]),
        ("broken.json", b'{"a":\n', ["JSON", "line 2"]),
        ("comma.json", b'{"a": 1,}', ["JSON", "line 1"]),  # which YAML would take
        ("broken.yaml", b"a: [1\n", ["YAML", "line 2"]),
        ("text.yaml", b"\xff\xfe", ["UTF-8"]),
        ("list.json", b"[1, 2]", ["list", "GRPOConfig"]),
        ("zero.yaml", pickle.dumps({"beta": 1.0}, protocol=0), ["pickle"]),
        ("one.json", pickle.dumps({"beta": 1.0}, protocol=1), ["pickle"]),
        ("four.yaml", pickle.dumps({"beta": 1.0}, protocol=4), ["pickle"]),
        ("twice.yaml", b"beta: 1\nbeta: 2\n", ["beta", "line 2"]),
        ("merge.yaml", b"<<: {beta: 1}\n", ["<<"]),
    ],
)
def test_what_is_no_configuration_is_called_one_by_its_file(
    grpoctl: Grpoctl, tmp_path: Path, name: str, data: bytes, facts: list[str]
) -> None:
    (tmp_path / name).write_bytes(data)
    said = grpoctl("import", "trl", name)
    assert said.code == 2
    (line,) = said.err.splitlines()
    assert [fact for fact in (name, *facts) if fact not in line] == []
    assert [word for word in ("spec", "name:", "extends") if word in line] == []  # it is none, and need not be


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        (["import", "trl", "."], ["directory", "GRPOConfig"]),
        (["import", "trl", "training_args.bin"], ["pickle", "training_args.bin"]),
        (["import", "trl", "hidden.json"], ["pickle"]),
        (["import", "trl", "none.yaml"], ["none.yaml"]),
        (["import", "verl", "c.yaml"], ["verl", "trl"]),
        (["import", "trl", "bad.yaml"], ["num_generations"]),
        (["import", "trl", "bad.yaml", "--out", "x.txt"], ["x.txt", ".yaml"]),
        (["export", "p31", "--to", "ray"], ["ray", "trl, verl"]),
        (["export", "p31", "--to", "trl", "--merged"], ["--merged"]),
        (["export", "advantage-study", "--to", "trl"], ["sweep"]),
        (["export", "p40", "--to", "verl"], ["language model", "verl"]),
        (["export", "p40", "--to", "trl"], ["language model", "TRL"]),
        (["export", "p31"], ["DIR"]),
        (["export", "p31", "x", "-p", "tiny"], ["--to"]),
    ],
)
def test_one_line_for_what_cannot_be(grpoctl: Grpoctl, tmp_path: Path, argv: list[str], facts: list[str]) -> None:
    for name in ("training_args.bin", "hidden.json"):
        (tmp_path / name).write_bytes(pickle.dumps({"beta": 1}))
    (tmp_path / "bad.yaml").write_text("num_generations: 1\n")
    said = grpoctl(*argv)
    assert said.code == 2
    (line,) = said.err.splitlines()
    assert [fact for fact in facts if fact not in line] == []


@pytest.mark.process
def test_a_spec_that_is_printed_into_a_file_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"learning_rate": 2e-06}')
    with (tmp_path / "mine.yaml").open("w") as out:
        command = [sys.executable, "-m", "grpoctl.app", "import", "trl", "c.json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=tmp_path, env=environment, stdout=out, check=True)
    spec = load(tmp_path / "mine.yaml").spec
    assert (spec.name, spec.stages["grpo"].learning_rate) == ("mine", 2e-6)


OWN = """
name: own
title: Rewards of one's own
model: {source: builtin:tiny, lora: {r: 4, lora_alpha: 8, target_modules: [q_proj]}}
task:
  name: custom
  data: {path: ./rows.jsonl}
  prompt: "{question}"
  train_prompts: 4
  eval_prompts: 2
  rewards: [{function: "./rewards.py:short", weight: 2.0}]
stages:
  grpo: {num_generations: 2, prompts_per_step: 2, max_steps: 1, learning_rate: 0.001, overlong: {}}
"""


async def awaited(completions: list[str], **_: object) -> list[float]:
    return [float(len(one)) for one in completions]


def strict(completions: list[str], place: list[str]) -> list[float]:
    return [float(place == one) for one, place in zip(completions, place, strict=True)]


def test_a_script_calls_rewards_as_grpoctl_does(grpoctl: Grpoctl) -> None:
    """With the arguments that they name, which TRL's own call does not do, and awaited where they are async."""
    assert grpoctl("new", "own").code == 0
    script = grpoctl("export", "own", "--to", "trl", "-p", "tiny").out
    (given,) = [
        node for node in ast.parse(script).body if isinstance(node, ast.FunctionDef) and node.name == "given"
    ]  # fmt: skip
    known = {"awaited": awaited, "strict": strict}
    names: dict[str, Any] = {
        "inspect": inspect,
        "load": known.get,
        "texts": list,
        "EXAMPLES": ["asked"],
        "prompt_of": lambda example: SimpleNamespace(text=example),
    }
    exec(compile(ast.Module([given], []), "script", "exec"), names)
    told = {"prompts": ["?"], "completions": ["Rome"], "completion_ids": [[1]], "row": [0], "place": ["Rome"]}
    reward = names["given"]("strict", "right_place")
    assert (reward(**told), reward.__name__) == ([1.0], "right_place")
    waiting = names["given"]("awaited", "brief")
    assert inspect.iscoroutinefunction(waiting)  # by which TRL knows what to await
    assert asyncio.run(waiting(**told)) == [4.0]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("name", ["p31", "own"])
def test_a_script_runs(grpoctl: Grpoctl, tmp_path: Path, name: str) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "own.yaml").write_text(OWN)
    rows = [{"question": f"What is {n} and {n}?", "answer": str(2 * n)} for n in range(8)]
    (tmp_path / "experiments" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code = "def short(prompts, completions, answer, **_):\n    assert all(isinstance(p, str) for p in prompts)\n"
    (tmp_path / "experiments" / "rewards.py").write_text(code + "    return [1 / (1 + len(c)) for c in completions]\n")
    assert grpoctl("export", name, "--to", "trl", "-p", "tiny" if name == "p31" else "full", "script.py").code == 0
    text = (tmp_path / "script.py").read_text()
    (tmp_path / "script.py").write_text(re.sub(r'"max_steps": \d+', '"max_steps": 1', text))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "script.py", "out"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "out" / "adapter_model.safetensors").is_file()
