"""What is trained on. One class per task, told apart by `name`; the code of a task is in core.tasks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, SerializeAsAny, WrapValidator, model_validator

from core import plugins
from core.config.part import Count, Finite, Fraction, NonNegative, Part, Positive, PositiveInt, refusal
from core.errors import SpecError

Domain = Literal["math", "qa", "code"]


def _as_in_p30() -> dict[Domain, float]:
    return {"math": 2.0, "qa": 1.0}


class TaskConfig(Part):
    """The base of every task's settings. A subclass fixes `name: Literal["its-name"]`.

    Problems come from `data_seed`: `train_prompts` to learn from, `eval_prompts` held out. Class attributes:
    scores: which outputs the task can score; a policy of the same `output` can be trained on it.
    stores_outputs: it has outputs that were scored before (`Task.stored`): what `groups: offline` learns from.
    knows_right: its outcomes say whether an output is right: what `candidate_choice: stratified` asks.
    """

    if TYPE_CHECKING:  # not a field here: each task's own `name` keeps its place behind these in a written spec
        name: str

    scores: ClassVar[str] = "text"
    stores_outputs: ClassVar[bool] = False
    knows_right: ClassVar[bool] = False

    data_seed: Count = 0
    train_prompts: PositiveInt = 512
    eval_prompts: PositiveInt = 64

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """The least and the most that a completion can earn; None where nobody can know (rewards of your own)."""
        return 0.0, 1.0


class WorkflowDslTaskSpec(TaskConfig):
    """Write one line of workflow DSL for a problem (documents/000); see core.tasks.workflow_dsl."""

    name: Literal["workflow-dsl"]
    prompt: Literal["short", "instruct"] = "short"
    domains: Annotated[dict[Domain, NonNegative], Field(min_length=1)] = Field(default_factory=_as_in_p30)
    operator_cost: Annotated[float, Field(ge=0, le=0.05)] = 0.005

    @model_validator(mode="after")
    def _some_weight(self) -> WorkflowDslTaskSpec:
        if not any(self.domains.values()):
            raise refusal("domains", "every weight is 0; at least one domain needs a weight above 0")
        return self


class ArithmeticTaskSpec(TaskConfig):
    """Add two numbers of `digits` digits; the answer is checked."""

    name: Literal["arithmetic"]
    digits: Annotated[int, Field(ge=1, le=4)] = 2


class Gsm8kTaskSpec(TaskConfig):
    """GSM8K word problems. `path` is a folder with train.jsonl and test.jsonl; null: the hub's `openai/gsm8k`.

    Held-out problems come out of the training file; the test file is for `grpoctl eval` alone.
    """

    name: Literal["gsm8k"]
    path: str | None = None
    answer_form: Literal["hashes", "boxed"] = "hashes"  # what the prompt asks for: `#### 18` or `\boxed{18}`
    score: Literal["exact", "lenient"] = "exact"  # lenient: the last number of the text counts, whatever stands around
    format_reward: Fraction = 0.0  # for an answer in the asked form that is wrong


class DataSpec(Part):
    """Rows: a local .jsonl, .csv or .parquet file (`path`), or a dataset of the hub (`hub`, with config and split)."""

    path: Annotated[str, Field(min_length=1)] | None = None
    hub: Annotated[str, Field(min_length=1)] | None = None
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    max_rows: PositiveInt | None = None  # only so many, drawn by data_seed

    @model_validator(mode="after")
    def _one_place(self) -> DataSpec:
        if (self.path is None) == (self.hub is None):
            got = "neither" if self.path is None else "both"
            raise refusal("path", f"got {got} of path and hub; allowed: one of them")
        return self


class RewardSpec(Part):
    """A reward function with TRL's signature: `package.module:function` or `./file.py:function`."""

    function: str
    weight: Finite = 1.0
    timeout: Positive = 60.0  # seconds for a step's call, then for each row
    name: str | None = None  # in metrics; null: the function's

    @model_validator(mode="after")
    def _can_be_named(self) -> RewardSpec:
        if re.fullmatch(r".+:[A-Za-z_]\w*", self.function, re.ASCII) is None:
            allowed = "package.module:function or ./file.py:function"
            raise refusal("function", f"got {self.function!r}; allowed: {allowed}")
        if self.name is not None and re.fullmatch(r"[A-Za-z_][\w.-]*", self.name, re.ASCII) is None:
            raise refusal("name", f"got {self.name!r}; allowed: letters, digits, _, . and -, a letter first")
        return self

    @property
    def label(self) -> str:
        """What it is called in metrics."""
        return self.name or self.function.rpartition(":")[2]


class GoldSpec(Part):
    """Answers that the rewards must accept: what `grpoctl validate --rewards` looks at."""

    completion: Annotated[str, Field(min_length=1)]  # a template over the row's columns
    at_least: Finite = 1.0  # the weighted reward it must earn


class CustomTaskSpec(TaskConfig):
    """Your own: rows of a dataset, a prompt made of their columns, and reward functions."""

    name: Literal["custom"]
    data: DataSpec
    eval_data: DataSpec | None = None  # null: eval_prompts rows of `data` are held out
    test_data: DataSpec | None = None  # for `grpoctl eval` alone
    prompt: Annotated[str, Field(min_length=1)] | None = None  # a template: `What is {question}?`
    messages: Annotated[str, Field(min_length=1)] | None = None  # or the column with a list of chat messages
    system: str | None = None  # a system message before them
    chat_template: bool = True  # false: the prompt is continued as it stands
    rewards: Annotated[tuple[RewardSpec, ...], Field(strict=False, min_length=1)]
    answer: Annotated[str, Field(min_length=1)] | None = None  # a template: what a supervised stage imitates
    gold: GoldSpec | None = None
    valid_above: Finite | None = None  # a completion with more reward counts as valid; null: one that is not blank

    @property
    def reward_range(self) -> None:
        """Not known: your functions may return any number."""

    @model_validator(mode="after")
    def _one_prompt(self) -> CustomTaskSpec:
        if (self.prompt is None) == (self.messages is None):
            got = "neither" if self.prompt is None else "both"
            raise refusal("prompt", f"got {got} of prompt and messages; allowed: one of them, null for the other")
        for key in ("messages", "system"):
            if getattr(self, key) is not None and not self.chat_template:
                raise refusal("chat_template", f"got false with {key}; allowed: true, or a prompt template alone")
        return self

    @model_validator(mode="after")
    def _some_weight(self) -> CustomTaskSpec:
        if not any(reward.weight for reward in self.rewards):
            raise refusal("rewards", "every weight is 0; at least one reward needs another weight")
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> CustomTaskSpec:
        names = [reward.label for reward in self.rewards]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise refusal("rewards", f"got two called {twice}; allowed: names that differ: give one of them a `name`")
        return self


BuiltInTask = WorkflowDslTaskSpec | ArithmeticTaskSpec | Gsm8kTaskSpec | CustomTaskSpec
BUILT_IN: tuple[str, ...] = tuple(get_args(task.model_fields["name"].annotation)[0] for task in get_args(BuiltInTask))


def task_config(name: str) -> type[TaskConfig] | None:
    """The settings' class of a task that a package adds; None for a built-in or unknown name. Raises SpecError."""
    return plugins.config_class("grpoctl.tasks", name, BUILT_IN, TaskConfig) if name not in BUILT_IN else None


def task_names() -> list[str]:
    """The tasks that are installed, the built-in ones first."""
    return plugins.names("grpoctl.tasks", BUILT_IN)


def _by_name(value: Any, handler: Any) -> TaskConfig:
    """The settings as the class that their `name` names."""
    if isinstance(value, TaskConfig):
        return value
    name = value.get("name") if isinstance(value, dict) else None
    try:
        config = task_config(name) if isinstance(name, str) else None
    except SpecError as error:
        raise refusal("name", error.message) from None
    settings: TaskConfig = handler(value) if config is None else config.model_validate(value)
    return settings


AnyTask = Annotated[
    SerializeAsAny[Annotated[BuiltInTask, Field(discriminator="name")]],
    WrapValidator(_by_name),
]
