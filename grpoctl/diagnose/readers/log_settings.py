"""The settings that a log's own lines state: verl's printed configuration, TRL's arguments, a command line, a head.

Four forms: a printed dictionary with nested keys (`{'actor_rollout_ref': {'actor': {...`), `GRPOConfig(` or
`Namespace(` with one `key=value` a line, options of a command (`--num_generations 8`, `data.batch_size=64`), and
lines `num_generations: 8` before the first metrics. What is not here: metrics, and what TRL's arguments mean.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from grpoctl.diagnose.readers.console_lines import without_prefix
from grpoctl.diagnose.readers.text import Line
from grpoctl.diagnose.readers.trainer_log import plain_value
from grpoctl.diagnose.readers.trl_settings import settings_of_arguments

_OPEN = re.compile(r"\b(?:\w*Config|\w*Arguments|Namespace)\($|\b(?:\w*Config|\w*Arguments|Namespace)\((?=\s*\w+=)")
_ARGUMENT = re.compile(r"(?:^|[\s(,])(\w+)=('[^']*'|\"[^\"]*\"|<[^>]*>|[^\s,()]+)")
_OPTION = re.compile(r"--([A-Za-z][\w-]*)(?:[ =]+(?!--)('[^']*'|\"[^\"]*\"|[^\s\\]+))?")
_OVERRIDE = re.compile(
    r"(?<![\w.])\+{0,2}((?:actor_rollout_ref|algorithm|data|trainer|reward_model|critic)(?:\.\w+)+)=('[^']*'|\"[^\"]*\"|[^\s\\,]+)"
)
_KEY = re.compile(r"['\"]([\w./]+)['\"]: ")
_PLAIN = re.compile(
    r"^[\s\-*•>]*\**['\"`]?([A-Za-z][\w .-]{0,40}?)['\"`]?\**\s*(?:[:=]|->)\s*\**[`'\"]?([^\s,`'\"]+)[`'\"]?,?\s*$"
)
_ASSIGNED = re.compile(
    r"^\s*([A-Za-z_]\w*)\s*=\s*([-+]?\.?\d[\d._]*(?:[eE][-+]?\d+)?)\s*(?:#.*)?$"
)  # of a notebook's code
_MOST_ASSIGNED = 1000
_MOST_LATER = 20_000  # lines with settings behind the first metrics
_LONGEST = 10_000  # characters of such a line
_MOST = 5000  # lines of one printed configuration
_NAMES = {  # what scripts call them, in small letters with _: our field
    "num_generations": "num_generations", "group_size": "num_generations", "n_samples_per_prompt": "num_generations",
    "num_samples_per_prompt": "num_generations", "samples_per_prompt": "num_generations", "k": "num_generations",
    "num_rollouts_per_prompt": "num_generations", "rollout_n": "num_generations", "g": "num_generations",
    "learning_rate": "learning_rate", "lr": "learning_rate", "actor_learning_rate": "learning_rate",
    "beta": "beta", "kl_coef": "beta", "kl_coeff": "beta", "init_kl_coef": "beta", "kl_beta": "beta",
    "kl_loss_coef": "beta",
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
    "repetition_penalty": "repetition_penalty", "epsilon": "epsilon", "clip_eps": "epsilon",
    "clip_range": "epsilon", "cliprange": "epsilon", "eps_clip": "epsilon",
    "max_completion_length": "max_completion_length", "max_new_tokens": "max_completion_length",
    "generate_max_len": "max_completion_length",
    "max_response_length": "max_completion_length", "max_grad_norm": "max_grad_norm", "grad_clip": "max_grad_norm",
    "warmup_steps": "warmup_steps", "max_steps": "max_steps", "rollout_max_response_len": "max_completion_length",
}  # fmt: skip
_WHOLE = frozenset({
    "num_generations", "prompts_per_step", "max_completion_length", "max_steps", "warmup_steps", "top_k",
    "updates_per_rollout",
})  # fmt: skip
_KL_TYPES = {"kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}
_PARTS = ("actor_rollout_ref", "'algorithm'", "'data'")  # of verl's configuration
_MARKS = ("--", "=", ":", "(")  # a line without one of them states nothing


class LogSettings:
    """Looks at lines, and says at the end what they stated; of the same form a later statement stands."""

    def __init__(self) -> None:
        self._arguments: dict[str, Any] = {}  # of TRL
        self._of_verl: dict[str, Any] = {}  # dotted key -> value
        self._plain: dict[str, Any] = {}
        self._assigned: dict[str, Any] = {}  # name -> number, of the code before the metrics
        self._held: list[str] = []  # lines of a dictionary that is being printed
        self._depth = 0
        self._in_arguments = False
        self._lines = 0

    def look(self, text: str, *, before_metrics: bool, plain: bool = True) -> bool:
        """Takes what the line states, and says whether that is anything. plain: `lr: 1e-6` and `lr = 1e-6`, too."""
        if not any(mark in text for mark in _MARKS) and not self._held and not self._in_arguments:
            return False
        text = without_prefix(text)
        if self._held or (before_metrics and "{'" in text and any(part in text for part in _PARTS)):
            self._dictionary(text)
            return True
        if self._in_arguments or _OPEN.search(text):
            self._look_at_arguments(text)
            return True
        options = _OPTION.findall(text) if "--" in text else []
        for name, value in options:
            self._take_plain(name, value or "true")
        overrides = _OVERRIDE.findall(text) if "." in text and "=" in text else []
        self._of_verl |= {key: _value(value) for key, value in overrides}
        if before_metrics and plain:
            self._look_at_plain(text)
        return bool(options or overrides)

    def _look_at_plain(self, text: str) -> None:
        """A line of a head, or of code."""
        if match := _PLAIN.match(text):
            self._take_plain(match[1], match[2])
        if (match := _ASSIGNED.match(text)) and len(self._assigned) < _MOST_ASSIGNED:
            self._assigned[match[1]] = _value(match[2])

    def known(self) -> dict[str, Any]:
        """Fields of core.health.case.Settings, and what they mean here."""
        self._end_dictionary()
        return _plain_settings(self._plain) | stated_settings(self.arguments) | _settings_of_verl(self._of_verl)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """TRL's arguments, as they were printed or are written in code, names of numbers replaced; {} without any."""
        return {name: self._assigned.get(str(value), value) for name, value in self._arguments.items()}

    def _take_plain(self, name: str, value: str) -> None:
        word = re.sub(r"[\s.-]+", "_", name.strip().lower())
        if word in _NAMES:
            self._plain[word] = _value(value)

    def _look_at_arguments(self, text: str) -> None:
        """A line of `GRPOConfig(...)`, which ends with the bracket that closes it."""
        begun = _OPEN.search(text) if not self._in_arguments else None
        rest = text[begun.end() :] if begun else text
        self._lines = 0 if begun else self._lines + 1
        self._arguments |= {name: _value(value) for name, value in _ARGUMENT.findall(rest)}
        closed = rest.rstrip().endswith(")") and rest.count(")") > rest.count("(")
        self._in_arguments = not closed and self._lines < _MOST

    def _dictionary(self, text: str) -> None:
        if not self._held:
            text = text[text.index("{'") :]
        self._held.append(text)
        self._depth += text.count("{") - text.count("}")
        if self._depth <= 0 or len(self._held) > _MOST:
            self._end_dictionary()

    def _end_dictionary(self) -> None:
        """The configuration that was printed: parsed where it is whole, else by its keys and their indentation."""
        if not self._held:
            return
        lines, self._held, self._depth = self._held, [], 0
        try:
            document = ast.literal_eval("\n".join(lines))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            document = None
        flat = _flat(document) if isinstance(document, dict) else _by_columns(lines)
        self._of_verl |= flat


class Heads:
    """What a log states: before its first metrics, in the whole of it, and line by line behind the first metrics.

    A log that begins again may state other settings each time. There only what is no row counts: printed arguments
    and configurations, options and overrides of a command.
    """

    def __init__(self) -> None:
        self.first = LogSettings()  # before the first metrics
        self.whole = LogSettings()  # of the same form the later statement
        self._stating = LogSettings()  # only tells which lines state something
        self._later: deque[tuple[int, str]] = deque(maxlen=_MOST_LATER)  # lines behind the first metrics, their numbers

    def look(self, line: Line, *, before_metrics: bool, is_read: bool) -> None:
        """Takes what the line states. is_read: metrics were read in it, such as the learning rate of an argument."""
        if not is_read:
            self.whole.look(line.text, before_metrics=before_metrics)
            if before_metrics:
                self.first.look(line.text, before_metrics=True)
        if not before_metrics and self._stating.look(line.text, before_metrics=True, plain=False):
            self._later.append((line.number, line.text[:_LONGEST]))

    def between(self, before: int, line: int) -> LogSettings:
        """What stands behind the one line and not behind the other."""
        stated = LogSettings()
        for number, text in self._later:
            if before < number <= line:
                stated.look(text, before_metrics=True, plain=False)
        return stated


def stated_settings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Our fields of a configuration that is a flat mapping: TRL's arguments, or a script's own; else verl's tree."""
    if any(isinstance(value, dict) for value in arguments.values()):
        return _settings_of_verl(_flat(arguments))
    return settings_of_arguments(arguments) or _plain_settings(arguments)


def _flat(document: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Dotted key -> value of every leaf."""
    flat: dict[str, Any] = {}
    for name, value in document.items():
        flat |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return flat


def _by_columns(lines: list[str]) -> dict[str, Any]:
    """The same of a dictionary that pprint wrote and that something was printed into: a key's column is its depth."""
    flat: dict[str, Any] = {}
    path: list[tuple[int, str]] = []  # of the dictionaries that a key stands in
    for line in lines:
        keys = list(_KEY.finditer(line))
        for match, behind in zip(keys, [*(key.start() for key in keys[1:]), len(line)][: len(keys)], strict=True):
            path = [(column, name) for column, name in path if column < match.start()]
            value = line[match.end() : behind]
            if value.startswith("{"):
                path.append((match.start(), match[1]))
            else:
                names = [*(name for _, name in path), match[1]]
                flat[".".join(names)] = _value(re.split(r",\s|,$|\}", value, maxsplit=1)[0])
                path = path[: len(path) - value.count("}")] if "}" in value else path
    return flat


def _value(text: str) -> Any:
    """The value that was written, without quotes."""
    return plain_value(text.strip().strip("'\""))


def _plain_settings(named: Mapping[str, Any]) -> dict[str, Any]:
    """Our fields, where the value is one that the field can have."""
    known: dict[str, Any] = {}
    for name, value in named.items():
        ours = _NAMES.get(name)
        if ours is None or isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
            continue
        if ours in _WHOLE:
            if value != int(value) or (value < 1 and ours not in ("warmup_steps", "top_k")):
                continue
            known[ours] = int(value)
        else:
            known[ours] = float(value)
    return known


def _settings_of_verl(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our fields of verl's keys (0.2 to 0.7)."""
    if not config:
        return {}
    known: dict[str, Any] = {}

    def take(ours: str, *keys: str, kind: Callable[[Any], Any] = float, least: float = 0.0) -> None:
        for key in keys:
            value = config.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= least:
                known[ours] = kind(value)
                return

    actor, rollout = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
    take("num_generations", f"{rollout}n", kind=int, least=1)
    take("prompts_per_step", "data.train_batch_size", kind=int, least=1)
    take("max_completion_length", "data.max_response_length", f"{rollout}response_length", kind=int, least=1)
    take("temperature", f"{rollout}temperature")
    take("top_p", f"{rollout}top_p")
    take("top_k", f"{rollout}top_k", kind=int)
    take("learning_rate", f"{actor}optim.lr")
    take("warmup_steps", f"{actor}optim.lr_warmup_steps", kind=int)
    take("max_grad_norm", f"{actor}grad_clip", f"{actor}optim.clip_grad")
    take("epsilon", f"{actor}clip_ratio", f"{actor}clip_ratio_low")
    take("max_steps", "trainer.total_training_steps", kind=int, least=1)
    known |= _kl_of_verl(config)
    batch, mini = config.get("data.train_batch_size"), config.get(f"{actor}ppo_mini_batch_size")
    if isinstance(batch, int) and isinstance(mini, int) and 0 < mini <= batch:
        known["updates_per_rollout"] = batch // mini * int(config.get(f"{actor}ppo_epochs") or 1)
    if config.get("algorithm.adv_estimator") in ("gae", "remax", "reinforce_plus_plus"):
        known["baseline"] = "none"  # of the group: a critic, a greedy completion, the batch
    if config.get("algorithm.adv_estimator") == "grpo":
        known |= {"transform": "none", "baseline": "group", "ddof": 1, "eps": 1e-6, "std_floor": 0.0}
        known["scale_rewards"] = "none" if config.get("algorithm.norm_adv_by_std_in_grpo") is False else "group"
    if config.get("actor_rollout_ref.model.enable_gradient_checkpointing") is not None:
        known["gradient_checkpointing"] = bool(config["actor_rollout_ref.model.enable_gradient_checkpointing"])
    return known


def _kl_of_verl(config: Mapping[str, Any]) -> dict[str, Any]:
    """Where the KL is, its weight and its estimator."""
    in_loss, in_reward = config.get("actor_rollout_ref.actor.use_kl_loss"), config.get("algorithm.use_kl_in_reward")
    if not in_loss and not in_reward:
        return {"beta": 0.0} if in_loss is False and in_reward is False else {}
    key = "actor_rollout_ref.actor.kl_loss_coef" if in_loss else "algorithm.kl_ctrl.kl_coef"
    weight = config.get(key)
    known: dict[str, Any] = {"kl_in": "loss" if in_loss else "reward"}
    if isinstance(weight, (int, float)) and weight >= 0:
        known["beta"] = float(weight)
    kind = _KL_TYPES.get(str(config.get("actor_rollout_ref.actor.kl_loss_type")).removesuffix("+"))
    return known | ({"kl_estimator": kind} if in_loss and kind else {})
