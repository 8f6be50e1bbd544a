"""A spec as a Python script that trains it with TRL alone: each setting with its key and with what differs.

The script asks grpoctl's package for the task's problems (and for the built-in model), and for nothing else: its
trainer is TRL's. Settings: core.config.trl.settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pprint import pformat
from typing import Any

from core.config import CustomTaskSpec, GrpoStage, RunSpec
from core.config.trl.fields import TRAINER_ARGUMENTS
from core.config.trl.settings import grpo_stage_of, not_in_trl, trl_settings
from grpoctl.config import plain
from grpoctl.version import __version__

_HEAD = '''\
"""{name} ({profile}) with TRL alone, written by grpoctl {version} for TRL 1.16.

    pip install 'trl>=1.16,<1.17' peft grpoctl      grpoctl for the problems of the task
    python SCRIPT [OUTPUT]                          or accelerate launch SCRIPT [OUTPUT] on several devices

Beside each setting stands the key of the spec that it comes from, and what differs all the same.
Not in this script: guards, the log-prob gap, evaluations on held-out problems, the best checkpoint, early stopping.
{left}"""
'''


def trl_script(spec: RunSpec) -> str:
    """The whole script. Raises SpecError where the spec has no GRPO stage, or no language model."""
    _, stage = grpo_stage_of(spec)
    left = [f"    {key}: {_one_line(why)}" for key, why in not_in_trl(spec).items()]
    said = "".join(f"{line}\n" for line in ["Not in TRL, and left out:", *left]) if left else ""
    head = _HEAD.format(name=spec.name, profile=spec.profile, version=__version__, left=said)
    parts = [head, *_imports(spec, stage), "", *_config(spec), "", *_task(spec), "", *_model(spec), ""]
    return "\n".join([*parts, *_rewards(spec, stage), "", *_training(spec), ""])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _imports(spec: RunSpec, stage: GrpoStage) -> Iterator[str]:
    model = spec.language_model
    if isinstance(spec.task, CustomTaskSpec):
        yield "import inspect"
    yield "import math"
    yield "import sys"
    if model.trainable is not None:
        yield "from fnmatch import fnmatchcase"
    if isinstance(spec.task, CustomTaskSpec) or _references(spec):
        yield "from importlib import import_module"
        yield "from importlib.util import module_from_spec, spec_from_file_location"
    yield ""
    yield "from datasets import Dataset"
    if model.lora is not None:
        yield "from peft import LoraConfig"
    yield "from pydantic import TypeAdapter"
    if not model.source.startswith("builtin:"):
        four = ", BitsAndBytesConfig" if model.load_in_4bit == "always" else ""
        yield f"from transformers import AutoModelForCausalLM, AutoTokenizer{four}"
    yield "from trl import GRPOConfig, GRPOTrainer"
    if stage.overlong is not None:
        yield "from trl.rewards import get_soft_overlong_punishment"
    yield ""
    if model.source.startswith("builtin:"):
        yield "from core.config import ModelSpec"
    yield "from core.config.task import AnyTask"
    if model.source.startswith("builtin:"):
        yield "from core.models import loading"
        yield "from core.policies.lm.build import tiny_pairs"
    yield "from core.tasks.registry import build"
    yield "from core.tasks.text import prompt_of"


def _config(spec: RunSpec) -> Iterator[str]:
    yield "CONFIG = {"
    for setting in trl_settings(spec):
        differs = f"; differs: {_one_line(setting.differs)}" if setting.differs else ""
        yield f'    "{setting.field}": {_literal(setting.value)},  # {setting.key}{differs}'
    yield "}"


def _literal(value: object) -> str:
    return pformat(value, compact=True, width=10**6, sort_dicts=False)


def _task(spec: RunSpec) -> Iterator[str]:
    yield f"TASK = build(TypeAdapter(AnyTask).validate_python({_literal(plain(spec.task))}))"
    yield 'EXAMPLES = list(TASK.examples("train"))  # differs: TRL shuffles them by its own seed'


def _model(spec: RunSpec) -> Iterator[str]:
    model = spec.language_model
    if model.source.startswith("builtin:"):
        yield f'model, tokenizer = loading.load(ModelSpec(source="{model.source}", dtype="float32"), tiny_pairs)'
    else:
        how: dict[str, Any] = {"dtype": model.dtype, "revision": model.revision}
        text = ", ".join(f"{key}={value!r}" for key, value in how.items() if value is not None)
        if model.trust_remote_code:
            text += ", trust_remote_code=True"
        if model.load_in_4bit == "always":
            text += ', quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")'
        revision = "" if model.revision is None else f", revision={model.revision!r}"
        if model.load_in_4bit == "auto":
            yield "# differs: model.load_in_4bit is auto, this loads the weights as they are"
        yield f"model = AutoModelForCausalLM.from_pretrained({model.source!r}, {text})"
        yield f'tokenizer = AutoTokenizer.from_pretrained({model.source!r}, padding_side="left"{revision})'
        yield "if tokenizer.pad_token is None:"
        yield "    tokenizer.pad_token = tokenizer.eos_token"
    if model.trainable is not None:
        yield "for name, weight in model.named_parameters():"
        yield f"    weight.requires_grad_(any(fnmatchcase(name, pattern) for pattern in {list(model.trainable)!r}))"
    if (lora := model.lora) is not None:
        yield "adapter = LoraConfig(  # model.lora; differs: its start is drawn by TRL's seed"
        yield f"    r={lora.r}, lora_alpha={lora.lora_alpha!r}, lora_dropout={lora.lora_dropout!r},"
        yield f'    target_modules={lora.targets!r}, task_type="CAUSAL_LM",'
        yield ")"


def _rewards(spec: RunSpec, stage: GrpoStage) -> Iterator[str]:
    if isinstance(spec.task, CustomTaskSpec) or _references(spec):
        yield from _LOAD
    yield from _PROMPTS
    if isinstance(spec.task, CustomTaskSpec):
        conversation = spec.task.messages is not None
        yield from _given_texts(conversation)
        names = [f"    given({reward.function!r}, {reward.label!r})," for reward in spec.task.rewards]
        yield from ("rewards = [  # differs: one that raises ends the script", *names, "]")
        yield f"weights = {[reward.weight for reward in spec.task.rewards]!r}  # task.rewards"
    else:
        yield from _OWN_REWARD
        yield "rewards, weights = [reward], [1.0]"
    if stage.overlong is not None:
        buffer = max(1, math.ceil(round(stage.overlong.buffer * stage.max_completion_length, 6)))
        yield f"rewards.append(get_soft_overlong_punishment({stage.max_completion_length}, {buffer}))  # overlong"
        yield f"weights.append({stage.overlong.weight!r})"


_LOAD = '''
def load(reference):
    """The function of `package.module:name` or `/a/file.py:name`."""
    place, _, name = reference.rpartition(":")
    if place.endswith(".py"):
        found = spec_from_file_location("given", place)
        module = module_from_spec(found)
        found.loader.exec_module(module)
    else:
        module = import_module(place)
    return getattr(module, name)

'''.splitlines()

_PROMPTS = '''
def prompt(example):
    """What TRL is given: a conversation where the tokenizer has a template for one, else text."""
    asked = prompt_of(example)
    if asked.plain or not tokenizer.chat_template:
        return asked.text
    return list(asked.messages) if asked.messages is not None else [{"role": "user", "content": asked.text}]


def texts(completions):
    """Completions as texts."""
    return [one if isinstance(one, str) else one[0]["content"] for one in completions]

'''.splitlines()

_OWN_REWARD = '''
def reward(prompts, completions, completion_ids, row, **_):
    """The task's reward; None where it cannot be computed."""
    outcomes = TASK.score([EXAMPLES[number] for number in row], texts(completions), completion_ids)
    return [None if math.isnan(outcome.reward) else outcome.reward for outcome in outcomes]


'''.splitlines()


def _given_texts(conversation: bool) -> Sequence[str]:
    seen = (
        "        known = dict(prompts=prompts, completions=completions, **columns)"
        if conversation
        else '        asked = [prompt_of(EXAMPLES[number]).text for number in columns["row"]]\n'
        "        known = dict(prompts=asked, completions=texts(completions), **columns)"
    )
    return f'''
def given(reference, name):
    """A reward function of yours, called as grpoctl calls it: with what it takes, awaited where it is async."""
    function = load(reference)
    taken = inspect.signature(function).parameters
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken.values())

    def arguments(prompts, completions, **columns):
{seen}
        return {{name: value for name, value in known.items() if takes_all or name in taken}}

    def called(**columns):
        return function(**arguments(**columns))

    async def awaited(**columns):
        return await function(**arguments(**columns))

    reward = awaited if inspect.iscoroutinefunction(function) else called
    reward.__name__ = name
    return reward


'''.splitlines()


def _references(spec: RunSpec) -> Mapping[str, Any]:
    return {name: value for name, value in spec.trainer.args.items() if name in TRAINER_ARGUMENTS}


def _training(spec: RunSpec) -> Iterator[str]:
    own = isinstance(spec.task, CustomTaskSpec)
    columns = "**{k: v for k, v in example.facts.items() if k != 'prompt'}, " if own else ""
    yield f'rows = [{{{columns}"prompt": prompt(example), "row": row}} for row, example in enumerate(EXAMPLES)]'
    yield 'output = sys.argv[1] if len(sys.argv) > 1 else "trl-output"'
    yield "trainer = GRPOTrainer("
    yield "    model,"
    yield "    rewards,"
    yield '    GRPOConfig(output_dir=output, report_to="none", logging_steps=1, reward_weights=weights, **CONFIG),'
    yield "    train_dataset=Dataset.from_list(rows),"
    yield "    processing_class=tokenizer,"
    if spec.language_model.lora is not None:
        yield "    peft_config=adapter,"
    for name, value in _references(spec).items():
        loaded = f"[{', '.join(f'load({one!r})' for one in value)}]" if name == "tools" else f"load({value!r})"
        yield f"    {name}={loaded},"
    yield ")"
    yield "trainer.train()"
    yield "trainer.save_model(output)"
