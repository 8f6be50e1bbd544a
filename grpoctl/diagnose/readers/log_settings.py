"""The settings that a log's own lines state: verl's printed configuration, TRL's arguments, a command line, a head.

Six forms: a printed dictionary with nested keys (`{'actor_rollout_ref': {'actor': {...`), `GRPOConfig(` or
`Namespace(` with one `key=value` a line, options of a command (`--num_generations 8`, `data.batch_size=64`), lines
`num_generations: 8` before the first metrics, and there what a line lists (`G=8 lr=2e-6`), and what sentences and
tables say anywhere (`a learning rate of 1e-5`), where no other form states it and all say the same. What is not here:
metrics, and what TRL's arguments mean.
"""

from __future__ import annotations

import ast
import math
import re
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from grpoctl.diagnose.readers.console_lines import SECTION, without_prefix
from grpoctl.diagnose.readers.setting_names import SETTINGS, setting_named
from grpoctl.diagnose.readers.text import Line
from grpoctl.diagnose.readers.trainer_log import plain_value
from grpoctl.diagnose.readers.trl_settings import settings_of_arguments

_OPEN = re.compile(r"\b(?:\w*Config|\w*Arguments|Namespace)\($|\b(?:\w*Config|\w*Arguments|Namespace)\((?=\s*\w+=)")
_CALLS = ("Config(", "Arguments(", "Namespace(")  # quickly looked for
_ARGUMENT = re.compile(  # not `length = whole - prompt`: that is no value
    r"(?:^|[\s(,])(\w+)\s*=(?!=)\s*('[^']*'|\"[^\"]*\"|<[^>]*>|[^\s,()]++(?!\s+(?:if\b|[-+*/])))"
)
_OF_ARGUMENTS = re.compile(r"\s*+\w+\s*=(?!=).*,\s*(?:#.*)?|.*\)\s*")  # a line of them
_OPTION = re.compile(r"--([A-Za-z][\w-]*)(?:[ =]+(?!--)('[^']*'|\"[^\"]*\"|[^\s\\]+))?")
_OVERRIDE = re.compile(
    r"(?<![\w.])\+{0,2}((?:actor_rollout_ref|algorithm|data|trainer|reward_model|critic)(?:\.\w+)+)=('[^']*'|\"[^\"]*\"|[^\s\\,`]+)"
)
_NUMBER = r"[-+]?\.?\d[\d._]*+(?:[eE][-+]?\d++)?+(?![\w%,]{0,20}\d)"
_QUOTED = re.compile(rf"`([A-Za-z][\w.]*+)\s?[=:]\s?({_NUMBER})`")  # `rollout.n=8`
_LISTED = re.compile(
    rf"(?:^|[\s,;(（])([A-Za-z][\w.]*+)\s?=\s?({_NUMBER})(?=$|[\s,;)）\"])"
)  # G=8 lr=2e-06; G = 8, lr = 1e-6
_OF_SOMETHING_ELSE = re.compile(  # than this run's training: what a line with such a word lists
    r"awq|gptq|quant|process[ _-]?group|paper|pass@|judge|server|previous|earlier|compar|other run|instead of|unlike|"
    r"\bused\b|\bhad\b|\bdapo \(",
    re.IGNORECASE,
)
_POSSIBLE = {"beta": (0.0, 1.0), "learning_rate": (0.0, 0.1), "num_generations": (2, 128)}  # said in passing
_SAYS_SETTINGS = re.compile(  # a line that says what it lists: `Config: group_size=8 lr=1e-6`
    r"(?:\[[\d:. TZ+-]{1,40}\]\s*)?\W*(?:(?:the|my|our|training|train|trainer|grpo|ppo|rloo|dapo|rl|run|"
    r"experiment|script|cli|parsed|using|full|final|resolved) ){0,2}(?:config(?:uration)?|"
    r"hyper-?param(?:eter)?s|hparams|settings|params|parameters|arg(?:ument)?s|配置|参数|超参数)\s*[:：\])]",
    re.IGNORECASE,
)
_OF_METRICS = re.compile(r"reward|loss|step|iter|epoch|score|acc", re.IGNORECASE)
_OF_ANOTHER_PART = re.compile(
    r"\b(?:eval\w*|val\w*|test\w*|sft|dpo|critic|teacher|judge|ref\w*|reward|rm|draft|warm-?up|pretrain\w*)\b",
    re.IGNORECASE,
)
_OF_EPISODES = frozenset({"max_steps", "warmup_steps", "top_k"})  # or of another part, where a line lists them
_ALONE = frozenset(
    {"num_generations", "learning_rate", "max_completion_length", "n_samples_per_prompt"}
)  # mean one thing
_SHORT_NAMES = {
    "G": "group_size",
    "K": "group_size",
    "T": "temperature",
    "kl": "kl_coef",
    "KL": "kl_coef",
}  # beside a group's size
_ENTRY = re.compile(rf"['\"]([A-Za-z]\w{{0,40}})['\"]\s?:\s?({_NUMBER})(?=\s?[,}}])")  # of a dictionary
_KEY = re.compile(r"['\"]([\w./]+)['\"]: ")
_PLAIN = re.compile(
    r"^[\s\-*•>]*\**['\"`]?([A-Za-z][\w .-]{0,40}?)['\"`]?\**\s*(?:[:=]|->)\s*\**[`'\"]?([^\s,`'\"]+)[`'\"]?,?\s*$"
)
_BOX_OF_SETTINGS = re.compile(
    r"\s*[|│]\s*(?:hyper-?)?(?:key|param(?:eter)?|setting|argument|option|config(?:uration)?|field|item|knob|参数|超参数|配置|"
    r"设置|パラメータ|설정)s?\s*[|│]\s*(?:value|setting|default|config|值|取值|設定|값)s?\s*[|│]",
    re.IGNORECASE,
)
_OF_A_BOX = re.compile(r"\s*[|│+├└╞═-]")
_BOXED = re.compile(  # | Learning rate | 5e-6 (cosine) |
    r"^\s*[|│]\s*[*`_]*(?P<name>[^\W\d_][\w. -]{0,40}?)(?:\s*\([^()]{1,20}\))?[*`_]*\s*"
    r"[|│]\s*['\"*`]{0,3}(?P<value>[^\s|│'\"*`]{1,40})['\"*`]{0,3}(?:\s*[(（,;][^|│]{0,80})?\s*[|│]"
)
_IS = r"[`*]*\s{0,3}(?:of|is|was|为|は|:|：|=|\|)?\s{0,3}[`*]{0,3}"  # between a name and its value
_SAID = tuple(  # in a sentence, or in a cell
    (field, re.compile(pattern, re.IGNORECASE))
    for field, pattern in (
        ("learning_rate", rf"(?:\blearning[ _-]rate|\blr|学习率|学習率){_IS}"
                          r"(\d+(?:\.\d+)?e-?\d{1,2}|0?\.0\d+)(?![\d.])"),
        ("num_generations", r"(?:(?<!\d\s)\bgroup[ _-]size|\bnum_generations|\b(?-i:G)\s?=)"
                            rf"{_IS}(\d{{1,3}})\b(?!\.\d)"),
        ("num_generations", r"\b(\d{1,3})\s+(?:generation|completion|rollout|sample|response)s?\s?"
                            r"(?:per|/|for each|for every)\s?(?:prompt|question|problem|query|group)\b"),
        ("num_generations", r"每个?\s?(?:prompt|问题|题目?|样本|提示)\s?(?:采样|生成)\s?(\d{1,3})"),
        ("beta", r"(?:\bbeta|β|\bKL[ _-](?:coef(?:f|ficient)?|weight|penalty))(?=[`*\s]{0,4}(?:of|is|was|为|[:：=|]))"
                 rf"{_IS}(\d*\.?\d+(?:e-\d{{1,2}})?)(?![\d.])"),
    )
)  # fmt: skip
_OF_TRAINING = re.compile(  # what stands beside a letter that is a setting
    r"\b(?:lr|learning|batch|rollouts?|GRPO|PPO|prompts?|KL|temperature|reward|AdamW?|optimi[sz]er|coef\w*)\b",
    re.IGNORECASE,
)
_OF_ADVICE = re.compile(
    r"\btoo (?:high|low|large|small|big)\b|\bembedding|\bwarn|\bshould\b|\brecommend|\btypical|\bdefault", re.IGNORECASE
)
_SAYS = re.compile(r"rate|\blr\b|学|size|generations|\bper\b|/\s?prompt|每|beta|β|KL|\bG\s?=|for e", re.IGNORECASE)
_WORD, _EASTERN = (
    re.compile(r"(?<![\w/.-])[A-Za-z]+(?=[\s,;.)](?!\s*[=:\d]))"),
    re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]"),
)
_OF_PROSE = 12  # words, or letters of Chinese and Japanese
_MOST_SAID = 20_000  # lines
_MOST_SECTIONS = 100
_ASSIGNED = re.compile(
    r"^\s*([A-Za-z_]\w*)\s*=\s*([-+]?\.?\d[\d._]*(?:[eE][-+]?\d+)?)\s*(?:#.*)?$"
)  # of a notebook's code
_MOST_ASSIGNED = 1000
_MOST_LATER = 20_000  # lines with settings behind the first metrics
_LONGEST = 10_000  # characters of such a line
_LONGEST_HEAD = 1000  # characters of one that lists some
_MOST = 5000  # lines of one printed configuration
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
        self._in_box = False  # whose header says that it has settings
        self._lines = 0
        self._said: dict[str, set[float]] = {}  # field -> what sentences and tables behind the first metrics say
        self._listened = 0  # lines

    def look(self, text: str, *, before_metrics: bool, plain: bool = True) -> bool:
        """Takes what a line without its prefix states, and says whether that is anything. plain: also `lr: 1e-6`."""
        in_box = before_metrics and text.lstrip().startswith(("|", "│"))
        if not (in_box or any(mark in text for mark in _MARKS) or self._held or self._in_arguments):
            return False
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
        if match := _PLAIN.match(text) or self._boxed(text):
            self._take_plain(match[1], match[2])
        if (match := _ASSIGNED.match(text)) and len(self._assigned) < _MOST_ASSIGNED:
            self._assigned[match[1]] = _value(match[2])
        self.take_listed(text)

    def _boxed(self, text: str) -> re.Match[str] | None:
        """The name and the value that a line of a table has whose header says that these are settings."""
        self._in_box = _BOX_OF_SETTINGS.match(text) is not None or (self._in_box and _OF_A_BOX.match(text) is not None)
        return _BOXED.match(text) if self._in_box else None

    def listen(self, text: str) -> None:
        """Takes what a sentence says of the run's training, or a table of settings behind the first metrics."""
        self._listened += 1
        if self._listened > _MOST_SAID or len(text) > _LONGEST_HEAD:
            return
        boxed = self._boxed(text)
        if boxed is not None and (word := _setting_called(boxed["name"])) is not None:
            for field, value in plain_settings({word: _value(boxed["value"])}).items():
                self._said.setdefault(field, set()).add(value)
        if _SAYS.search(text) is None or _OF_SOMETHING_ELSE.search(text) or _OF_ANOTHER_PART.search(text):
            return
        if _OF_ADVICE.search(text):
            return
        among_others = _OF_TRAINING.search(text) is not None
        for field, pattern in _SAID:
            for match in pattern.finditer(text):
                if match[0].strip("`* ")[:1] in ("G", "β") and not among_others:
                    continue  # a letter says many things
                if _is_possible(field, value := _value(match[1])):
                    self._said.setdefault(field, set()).add(value)

    def take_listed(self, text: str) -> bool:
        """Takes what a line lists, in backquotes or as names with numbers behind them; whether that is anything."""
        if len(text) > _LONGEST_HEAD:
            return False
        if "{" in text and _SAYS_SETTINGS.match(text) is not None:  # args: {'lr': 1e-6, 'beta': 0.04}
            entries = [(name, value) for name, value in _entries_of(text) if len(name) > 1]
            fields = {
                SETTINGS[word]: _value(value) for name, value in entries if (word := setting_named(name)) is not None
            }
            if len(fields) > 1 and all(_is_possible(field, value) for field, value in fields.items()):
                for name, value in entries:
                    self._take_plain(name, value)
        listed = _listed_in(text)
        self._plain |= listed
        return bool(listed)

    def goes_on_in(self, text: str) -> bool:
        """Whether a line is of a configuration or of arguments that were begun, or states some itself."""
        of_arguments = self._in_arguments and _OF_ARGUMENTS.fullmatch(text, 0, _LONGEST) is not None
        begins = (any(end in text for end in _CALLS) and _OPEN.search(text)) or ("=" in text and _OVERRIDE.search(text))
        return bool(self._held or of_arguments or begins)

    def known(self) -> dict[str, Any]:
        """Fields of core.health.case.Settings, and what they mean here."""
        self._end_dictionary()
        agreed = plain_settings(
            {field: value for field, told in self._said.items() if len(told) == 1 for value in told}
        )
        return agreed | plain_settings(self._plain) | stated_settings(self.arguments) | _settings_of_verl(self._of_verl)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """TRL's arguments, as they were printed or are written in code, names of numbers replaced; {} without any."""
        return {name: self._assigned.get(str(value), value) for name, value in self._arguments.items()}

    def _take_plain(self, name: str, value: str) -> None:
        if (word := _setting_called(name)) is not None:
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
        self._of_verl |= _of_its_version(_flat(document)) if isinstance(document, dict) else _by_columns(lines)


class Heads:
    """What a log states: before its first metrics, in the whole of it, and line by line behind the first metrics.

    A log that begins again may state other settings each time. There only what is no row counts: printed arguments
    and configurations, options and overrides of a command.
    """

    def __init__(self, *, of_text: bool = True) -> None:
        self.of_text = of_text  # that people write: sentences and sections say something there, and no completion's
        self.first = LogSettings()  # before the first metrics
        self.whole = LogSettings()  # of the same form the later statement
        self._stating = LogSettings()  # only tells which lines state something
        self._sections: dict[str, LogSettings] = {}  # heading of Markdown -> what stands below it
        self._section = LogSettings()
        self._later: deque[tuple[int, str]] = deque(maxlen=_MOST_LATER)  # lines behind the first metrics, their numbers
        self._in_head = True

    def look(self, line: Line, *, before_metrics: bool, is_read: bool) -> None:
        """Takes what the line states. is_read: metrics were read in it, such as the learning rate of an argument."""
        is_first, self._in_head = self._in_head and not before_metrics, before_metrics
        text = without_prefix(line.text)
        if self.of_text:
            self._listen(text, is_read=is_read)
        if is_read and is_first and self.whole.take_listed(text):  # G=8 lr=2e-6 kl=0.02 are no metrics
            self.first.take_listed(text)
        elif not is_read or self.whole.goes_on_in(text):
            self.whole.look(text, before_metrics=before_metrics)
            if before_metrics:
                self.first.look(text, before_metrics=True)
        if not before_metrics and self._stating.look(text, before_metrics=True, plain=False):
            self._later.append((line.number, text[:_LONGEST]))

    def _listen(self, text: str, *, is_read: bool) -> None:
        """Takes what a text's sentences and sections say."""
        if not is_read or _is_prose(text):
            self.whole.listen(text)
        if text[:1] == "#" and (heading := SECTION.match(text)) is not None and len(self._sections) < _MOST_SECTIONS:
            self._section = self._sections.setdefault(heading[1], LogSettings())
        if self._sections:
            self._section.look(text, before_metrics=True)
            if not is_read or _is_prose(text):
                self._section.listen(text)

    def of_section(self, name: str, others: Collection[str]) -> dict[str, Any]:
        """What the section of a run states, and those that are of no run; {} for a text without sections."""
        shared = [stated.known() for heading, stated in self._sections.items() if heading not in (name, *others)]
        fields = {field for known in shared for field in known}
        told = {field: {known[field] for known in shared if field in known} for field in fields}
        agreed = {field: value for field, values in told.items() if len(values) == 1 for value in values}
        own = self._sections.get(name)
        return agreed | (own.known() if own is not None else {})

    def between(self, before: int, line: int) -> LogSettings:
        """What stands behind the one line and not behind the other."""
        stated = LogSettings()
        for number, text in self._later:
            if before < number <= line:
                stated.look(text, before_metrics=True, plain=False)
        return stated


def _setting_called(name: str) -> str | None:
    """The name of a setting that words are: `Learning rate`; None for others."""
    return setting_named(re.sub(r"[\s-]+", "_", name.strip()))


def _is_prose(text: str) -> bool:
    """Whether a line has so many words that it tells no step's metrics alone."""
    return len(text) < _LONGEST_HEAD and (
        len(_WORD.findall(text)) >= _OF_PROSE or len(_EASTERN.findall(text)) >= _OF_PROSE
    )


def stated_settings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Our fields of a configuration that is a flat mapping: TRL's arguments, or a script's own; else verl's tree."""
    known = settings_of_arguments(arguments)
    if known or not any(isinstance(value, dict) for value in arguments.values()):
        return known or plain_settings(arguments)
    flat = _flat(arguments)
    return _settings_of_verl(flat) or plain_settings(_without_contradictions(flat))


def _without_contradictions(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Field -> value of the paths that end in a name of one; of a field that two of them state differently nothing."""
    stated: dict[str, set[Any]] = {}
    for path, value in flat.items():
        if (word := setting_named(path)) is not None and isinstance(value, str | int | float):
            stated.setdefault(SETTINGS[word], set()).add(_value(value) if isinstance(value, str) else value)
    return {field: value for field, told in stated.items() if len(told) == 1 for value in told if field in SETTINGS}


def _listed_in(text: str) -> dict[str, Any]:
    """Name below -> number of what stands in backquotes, or in a line `G=8 lr=2e-6 kl=0.02` that tells no metric and
    has a group's size.

    Words say many things, so nothing is taken that may be of something else: of one setting alone, of letters alone,
    where one is told twice, or has a value that it hardly ever has.
    """
    quoted, said_so = _QUOTED.search(text) is not None, _SAYS_SETTINGS.match(text) is not None
    if _OF_SOMETHING_ELSE.search(text) or not (quoted or said_so or _OF_METRICS.search(text) is None):
        return {}
    short = {} if quoted else _SHORT_NAMES
    said = [
        (written, name, _value(value))
        for written, value in (_QUOTED if quoted else _LISTED).findall(text)
        if (name := short.get(written) or setting_named(written)) is not None
        and not (said_so and SETTINGS[name] in _OF_EPISODES)
    ]
    told = {(SETTINGS[name], value) for _, name, value in said}
    fields = {field for field, _ in told}
    by_name = not _ALONE.isdisjoint(written for written, _, _ in said)
    alone = said_so or (by_name and _OF_ANOTHER_PART.search(text) is None)
    is_clear = (
        (0 if alone else 1) < len(fields) == len(told)
        and any(len(written) > 1 for written, _, _ in said)
        and all(_is_possible(field, value) for field, value in told)
        and (quoted or alone or "num_generations" in fields)
    )
    return {name: value for _, name, value in said} if is_clear else {}


def _entries_of(text: str) -> list[tuple[str, str]]:
    """The names and numbers of the dictionary in a line, not of those inside it."""
    said = text[text.index("{") : text.rfind("}") + 1]
    try:
        document = ast.literal_eval(said)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # {{}}, a set of a dictionary
        return _ENTRY.findall(said) if said.count("{") == 1 else []
    numbers = document.items() if isinstance(document, dict) else ()
    return [(str(name), repr(value)) for name, value in numbers if isinstance(value, int | float)]


def _is_possible(field: str, value: Any) -> bool:
    least, most = _POSSIBLE.get(field, (0, math.inf))
    return isinstance(value, int | float) and least <= value <= most


def _flat(document: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Dotted key -> value of every leaf."""
    flat: dict[str, Any] = {}
    for name, value in document.items():
        flat |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return flat


def _of_its_version(config: dict[str, Any]) -> dict[str, Any]:
    """verl's whole configuration; before 0.3 it did not say that a KL which is not in the loss is in the reward."""
    older = "algorithm.kl_ctrl.kl_coef" in config and "algorithm.use_kl_in_reward" not in config
    if older and config.get("actor_rollout_ref.actor.use_kl_loss") is False:
        return {**config, "algorithm.use_kl_in_reward": True}
    return config


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


def plain_settings(named: Mapping[str, Any]) -> dict[str, Any]:
    """Our fields, where the value is one that the field can have."""
    known: dict[str, Any] = {}
    for name, value in named.items():
        ours = SETTINGS.get(name)
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
