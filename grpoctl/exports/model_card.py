"""The model card of a run's weights: README.md as the hub reads it, with what was trained on what, and what came out.

What is here: pure functions from the run's documents to its parts; the text around these is in
templates/model_card.md.jinja. Nothing in it tells of the machine: of a path only its last part is written, and neither
host, user, command line nor credentials are. So equal runs have equal cards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jinja2

from core.config import GrpoStage, ModelSpec, RunSpec, StageBase
from core.config.task import CustomTaskSpec, Gsm8kTaskSpec
from core.metrics import EVAL
from core.models.catalogue import TINY
from core.text import harmless
from grpoctl.analysis.outcome import evaluated_text, legend_of, met_in_words, no_better_than_start, stage_lines
from grpoctl.config.resolved import block_yaml, plain
from grpoctl.credentials import without_credentials
from grpoctl.wording import metric_text, plural, setting_text

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_PATH = re.compile(r"(?<![\w./:~-])(?:~\w*|\.\.?)?(?:/[^\s/:;,'\"()\[\]{}|]+)+/?")
_TOKEN = re.compile(r"\bhf_\w{8,}")
_PACKAGES = ("grpoctl", "torch", "transformers", "peft", "accelerate")
_GSM8K = "openai/gsm8k"


def model_card(
    spec: RunSpec,
    result: Mapping[str, Any],
    provenance: Mapping[str, Any],
    *,
    step: int | None = None,
    merged: bool = False,
) -> str:
    """The card of the weights of `step`: an adapter, or a model of its own (`merged`, or every weight was trained).

    `result` and `provenance` are the run's documents; what they lack is left out.
    """
    whole = merged or spec.language_model.lora is None
    return _template().render(
        spec=spec,
        whole=whole,
        base=hub_id(spec.language_model),
        built_in=spec.language_model.source == TINY,  # AutoTokenizer would cut its words otherwise
        base_at_hand=_base_at_hand(spec.language_model),
        front_matter=_front_matter(spec, whole=whole),
        what=_what(spec, whole=whole),
        reached=_reached(result, step),
        findings=result.get("findings", ()),
        data=_data(spec, provenance.get("inputs")),
        settings=_settings(spec),
        spec_sha=result.get("spec_sha", ""),
        origin=_origin(spec, result, provenance),
    )


@cache
def _template() -> jinja2.Template:
    """The card's template; a name that it does not get is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("grpoctl.exports"),
        autoescape=False,  # Markdown; what is not ours goes through `public`
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["public"] = _public
    return environment.get_template("model_card.md.jinja")


def hub_id(model: ModelSpec) -> str | None:
    """The base model's hub id; None where the source is built in, a folder or a file."""
    source = model.source
    return source if _HUB_ID.fullmatch(source) and not source.lower().endswith(".gguf") else None


def _front_matter(spec: RunSpec, *, whole: bool) -> str:
    base = hub_id(spec.language_model)
    tags = ["grpo", "reinforcement-learning", "grpoctl", *([] if spec.language_model.lora is None else ["lora"])]
    datasets = [name for name in (_dataset(spec),) if name is not None]
    data: dict[str, object] = {
        **({"base_model": base} if base is not None else {}),
        **({"base_model_relation": "finetune" if whole else "adapter"} if base is not None else {}),
        "library_name": "transformers" if whole else "peft",
        "pipeline_tag": "text-generation",
        **({"datasets": datasets} if datasets else {}),
        "tags": tags,
    }
    return block_yaml(data)


def _dataset(spec: RunSpec) -> str | None:
    if isinstance(spec.task, Gsm8kTaskSpec):
        return _GSM8K
    if isinstance(spec.task, CustomTaskSpec) and (name := spec.task.data.hub) and _HUB_ID.fullmatch(name):
        return name
    return None


def _what(spec: RunSpec, *, whole: bool) -> str:
    lora, source = spec.language_model.lora, _source(spec.language_model)
    if lora is not None:
        shape = f"rank {lora.r}, alpha {lora.lora_alpha:g}, on {', '.join(lora.target_modules)}"
        merged, apart = (
            f"`{source}` with a LoRA adapter ({shape}) merged into it",
            f"A LoRA adapter ({shape}) for `{source}`",
        )
        form = merged if whole else apart
    elif spec.language_model.trainable is not None:
        form = f"`{source}` with the weights {', '.join(spec.language_model.trainable)} trained"
    else:
        form = f"`{source}` with every weight trained"
    kinds = dict.fromkeys(getattr(stage, "kind", "grpo") for stage in spec.stages.values())
    return f"{form}. Trained by {' and '.join(_KINDS[kind] for kind in kinds)} on the task `{spec.task.name}`."


_KINDS = {
    "grpo": "group relative policy optimisation (GRPO)",
    "sft": "supervised steps",
    "rce": "reward-weighted cross-entropy",
}


def _base_at_hand(model: ModelSpec) -> str:
    """Where somebody else finds a base model that is not on the hub."""
    if model.source == TINY:
        return f"the folder of `{TINY}`, which grpoctl builds on each machine: `grpoctl models --json` says where"
    if model.source.lower().endswith(".gguf"):
        return f"your copy of `{_source(model)}`, dequantised: `grpoctl models --json` says where, once it was used"
    return f"your copy of the folder `{_source(model)}`"


def _reached(result: Mapping[str, Any], step: int | None) -> str:
    parts = [result.get(part) or {} for part in ("start", "final", "best")]
    names = [metric.name for metric in EVAL if metric.name != "eval/reward_se"]
    names += sorted({name for part in parts for name in part if name.startswith(("eval/rewards/", "eval/slices/"))})
    rows = [
        [
            f"`{name}`",
            *(
                evaluated_text(result, part) if name == "eval/reward" else metric_text(name, part.get(name))
                for part in parts
            ),
        ]
        for name in names
        if any(part.get(name) is not None for part in parts)
    ]
    status = (
        f"The run ended {result.get('status', 'without a result')} after {plural(int(result.get('steps', 0)), 'step')}"
    )
    weights = "" if step is None else f"; these are the weights of step {step}"
    best = parts[2].get("step")
    weights += ", the best evaluation" if step is not None and best == step else ""
    text = f"{status}{weights}."
    if (warning := no_better_than_start(result, step)) is not None:
        text += f"\n\nWarning: {warning}."
    text += "".join(f"\n\n- {line.text}" for line in stage_lines(result))
    if rows:
        text += "\n\n" + _table(["held-out prompts", "start", "final", "best"], rows)
        legend = legend_of(result)
        text += "\n\n" + (f"{legend}. " if legend else "") + "The best of several evaluations is a little lucky."
    met = [
        f"- {met_in_words(entry)[0]}: `{entry['expectation']}`, observed {_observed(entry)}"
        for entry in result.get("expects", ())
    ]
    return text + ("\n\nWhat was expected of it:\n\n" + "\n".join(met) if met else "")


def _observed(entry: Mapping[str, Any]) -> str:
    value = entry.get("observed")
    return "nothing" if value is None else metric_text(str(entry["expectation"]).split()[0], float(value))


def _data(spec: RunSpec, inputs: object) -> str:
    """The task's settings, and what was in the files it read."""
    settings = _table(["setting", "value"], _rows(plain(spec.task), "task"))
    files = inputs.items() if isinstance(inputs, Mapping) else ()
    rows = [[_code(_value(name)), _code(sha)] for name, sha in files if isinstance(sha, str)]
    return settings + ("\n\n" + _table(["file", "SHA-256"], rows) if rows else "")


def _settings(spec: RunSpec) -> str:
    tree: dict[str, object] = {
        "profile": spec.profile,
        "seed": spec.seed,
        "model": plain(spec.language_model),
        "stages": {name: _key_settings(stage) for name, stage in spec.stages.items()},
        "evaluation": plain(spec.evaluation),
        **({"budget": plain(spec.budget)} if spec.budget is not None else {}),
        **({"faults": list(spec.faults)} if spec.faults else {}),
    }
    return _table(["setting", "value"], _rows(tree))


def _key_settings(stage: StageBase) -> dict[str, object]:
    """The settings that are not at their default."""
    settings = plain(stage)
    fields = type(stage).model_fields
    required = [name for name, field in fields.items() if field.is_required()]
    default = plain(type(stage).model_construct(**{name: settings[name] for name in required}))
    method = ("method",) if isinstance(stage, GrpoStage) else ()
    return {
        name: value for name, value in settings.items() if name in (*required, *method) or value != default.get(name)
    }


def _origin(spec: RunSpec, result: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    attempts: Sequence[Mapping[str, Any]] = provenance.get("attempts") or [{}]
    last = attempts[-1]
    versions, git = last.get("versions") or {}, last.get("git") or {}
    rows = [["run", f"`{result.get('run_id', '')}`"], ["experiment", f"`{result.get('recorded_as', spec.name)}`"]]
    overrides = result.get("overrides") or []
    rows += [["overrides", ", ".join(f"`{_public(text)}`" for text in overrides)]] if overrides else []
    rows += [["source", _public(spec.source)]] if spec.source else []
    rows += [["weights", text] for text in (_weights(last.get("model")),) if text]
    rows += [["versions", ", ".join(f"{name} {versions[name]}" for name in _PACKAGES if versions.get(name))]]
    if git.get("commit"):
        rows += [["code", f"commit `{git['commit']}`" + (", with changes" if git.get("dirty") else "")]]
    rows += [["attempts", str(len(attempts))]] if len(attempts) > 1 else []
    return _table(["", ""], [row for row in rows if row[1]])


def _weights(origin: object) -> str:
    """What the base weights really were, where the run noted it."""
    if not isinstance(origin, Mapping):
        return ""
    parts = [str(origin.get("kind") or "")]
    parts += [f"commit `{origin['commit']}`"] if origin.get("commit") else []
    parts += [f"SHA-256 `{origin['sha256']}`"] if origin.get("sha256") else []
    parts += [str(origin["quantised"])] if origin.get("quantised") else []
    return _public("; ".join(part for part in parts if part))


def _source(model: ModelSpec) -> str:
    return _value(model.source)


def _rows(tree: object, at: str = "") -> list[list[str]]:
    """Dotted key and value of everything that is set; a schedule is one value."""
    if isinstance(tree, Mapping) and not tree.keys() >= {"start", "end", "steps"}:
        return [row for key, value in tree.items() for row in _rows(value, f"{at}.{key}" if at else str(key))]
    if isinstance(tree, (list, tuple)) and any(isinstance(entry, Mapping) for entry in tree):
        return [row for index, value in enumerate(tree) for row in _rows(value, f"{at}[{index}]")]
    return [] if tree is None else [[f"`{at}`", _code(_value(tree))]]


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        moves = value["end"] not in (None, value["start"])
        return setting_text(value["start"]) + (
            f" to {setting_text(value['end'])} over {value['steps']} steps" if moves else ""
        )
    if isinstance(value, str) and value.startswith(("/", "~")):  # a path, spaces included
        return value.rstrip("/").rpartition("/")[2]
    return _public(setting_text(value))


def _code(text: str) -> str:
    """The text in backquotes, so that it stays in its cell."""
    mark = "``" if "`" in text else "`"
    return mark + " ".join(text.split()).replace("|", "\\|") + mark


def _public(text: str) -> str:
    """The text without credentials, and of every path only its last part: what stands before may name a user."""
    shown = _TOKEN.sub("***", without_credentials(harmless(text)))
    return _PATH.sub(lambda match: match[0].rstrip("/").rsplit("/", 1)[-1], shown)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
