"""What is trained on. One class per task, told apart by `name`; the code of a task is in core.tasks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, assert_never, get_args

from pydantic import BeforeValidator, Field, SerializeAsAny, WrapValidator, model_validator

from core import plugins
from core.config.part import LATE, Count, Finite, Fraction, NonNegative, Part, Positive, PositiveInt, refusal, whole
from core.errors import SpecError

Domain = Literal["math", "qa", "code"]
RewardMode = Literal[
    "hard_plus_soft",
    "hard_plus_soft_v2",
    "separated",
    "hard_only",
    "soft_only",
    "hard_plus_gtprob_plus_rel",
    "alpha_beta",
]


def _as_in_p30() -> dict[Domain, float]:
    return {"math": 2.0, "qa": 1.0}


class TaskConfig(Part):
    """The base of every task's settings. A subclass fixes `name: Literal["its-name"]`.

    Problems come from `data_seed`: `train_prompts` to learn from, `eval_prompts` held out. Class attributes:
    scores: which outputs the task can score; a policy of the same `output` can be trained on it.
    stores_outputs: it has outputs that were scored before (`Task.stored`): what `groups: offline` learns from.
    knows_right: its outcomes say whether an output is right: what `candidate_choice: stratified` asks.
    clusters: the fact of problems that are not independent where they share it (patches of one picture), if any.
    """

    if TYPE_CHECKING:  # not a field here: each task's own `name` keeps its place behind these in a written spec
        name: str

    scores: ClassVar[str] = "text"
    stores_outputs: ClassVar[bool] = False
    knows_right: ClassVar[bool] = False
    clusters: ClassVar[str | None] = None

    data_seed: Count = 0
    train_prompts: PositiveInt = 512
    eval_prompts: PositiveInt = 64

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """The least and the most that a completion can earn; None where nobody can know (rewards of your own)."""
        return 0.0, 1.0

    @property
    def independent_eval_prompts(self) -> int:
        """How many held-out problems are independent of each other: clusters, where there are `clusters`."""
        return self.eval_prompts


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


class SelectionFilesSpec(Part):
    """Queries with stored pick tuples (`path`, JSON) and the embeddings they name: .npy or .safetensors."""

    path: Annotated[str, Field(min_length=1)]
    query_embeddings: Annotated[str, Field(min_length=1)]  # row i: the i-th query of the JSON file
    candidate_embeddings: Annotated[str, Field(min_length=1)]  # row i: the candidate of global index i


class SelectionWorldSpec(Part):
    """The built-in generator of queries, candidates and answers: see core.tasks.selection.world."""

    width: PositiveInt = 512  # of an embedding
    bank: PositiveInt = 512  # candidates there are
    candidates: Annotated[int, Field(ge=8)] = 64  # in a query's own pool
    topics: PositiveInt = 16
    needs: PositiveInt = 3  # topics that a query asks about
    embedding_noise: NonNegative = 0.5  # its length beside that of the topics' part
    likeness: Fraction = 0.9  # share of the latent score's variance that all sets of a query have in common
    learnable: Fraction = 0.5  # share of the rest that follows from topics; what remains is a set's own luck
    partly_right: Fraction = 0.2  # share of accuracy .6 among the right answers

    @model_validator(mode="after")
    def _enough_to_draw_from(self) -> SelectionWorldSpec:
        for key, total in (("candidates", "bank"), ("needs", "topics")):
            if getattr(self, key) > getattr(self, total):
                got = f"got {getattr(self, key)}, and {total} is {getattr(self, total)}"
                raise refusal(key, f"{got}; allowed: at most as many")
        return self


class ExampleSelectionTaskSpec(TaskConfig):
    """Choose in-context examples for a query (documents 001 and 004); see core.tasks.selection."""

    name: Literal["example-selection"]

    scores: ClassVar[str] = "picks"
    stores_outputs: ClassVar[bool] = True
    knows_right: ClassVar[bool] = True

    train_prompts: PositiveInt = 640  # the first so many queries by sorted id; the eval_prompts after them are held out
    eval_prompts: PositiveInt = 160
    # The held-out queries begin at this place of the sorted ids, so that fewer to learn from leave them the same.
    held_out_from: Annotated[PositiveInt | None, LATE] = None  # null: right behind train_prompts
    shots: Annotated[int, Field(ge=1, le=4)] = 2  # examples that the answerer is given: the length of a rewarded pick
    pool: Literal["query", "all"] = "query"  # a query's own candidates, or every one that occurs in the data
    reward_mode: RewardMode = "hard_plus_soft"
    hard_weight: NonNegative = 1.0
    soft_weight: NonNegative = 1.0
    rel_weight: NonNegative = 0.3
    reward_alpha: NonNegative = 0.2
    reward_beta: NonNegative = 1.0
    wrong_value: Annotated[Literal[-1, 0], BeforeValidator(whole)] = -1  # what alpha_beta gives a wrong answer
    reward_clip: Positive = 5.0
    reward_zscore: bool = False  # by mean and std (ddof 1) of the training queries' stored pick tuples
    drop_wrong_below: Finite | None = None  # stored tuples that are wrong and have a lower beam score are left out
    data: SelectionFilesSpec | None = None
    world: SelectionWorldSpec | None = None  # null without data: the generator's defaults

    @property
    def first_held_out(self) -> int:
        """The place of the first held-out query among the sorted ids."""
        return self.train_prompts if self.held_out_from is None else self.held_out_from

    @model_validator(mode="after")
    def _held_out_behind_training(self) -> ExampleSelectionTaskSpec:
        if self.first_held_out < self.train_prompts:
            got = f"got {self.held_out_from}, and train_prompts is {self.train_prompts}"
            raise refusal("held_out_from", f"{got}; allowed: at least as many, or null")
        return self

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """Covers every reward, and the accuracy that evaluations report; None for z-scores."""
        if self.reward_zscore:
            return None
        low, high = 0.0, 0.0
        match self.reward_mode:
            case "hard_plus_soft":
                high = self.hard_weight + self.soft_weight
            case "hard_plus_soft_v2" | "separated":
                high = 2 * self.hard_weight + self.soft_weight
            case "hard_only":
                high = self.hard_weight
            case "soft_only":
                high = self.soft_weight
            case "hard_plus_gtprob_plus_rel":
                high = max(self.hard_weight + self.soft_weight, self.rel_weight)
            case "alpha_beta":
                low = -self.reward_clip if self.reward_alpha else self.reward_beta * self.wrong_value
                high = self.reward_beta
            case _:
                assert_never(self.reward_mode)
        return max(low, -self.reward_clip), max(1.0, min(high, self.reward_clip))

    @model_validator(mode="before")
    @classmethod
    def _a_world_without_data(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("data") is None and value.get("world") is None:
            return {**value, "world": {}}
        return value

    @model_validator(mode="after")
    def _one_source(self) -> ExampleSelectionTaskSpec:
        if self.data is not None and self.world is not None:
            raise refusal("world", "got a generator beside data; allowed: one of them, null for the other")
        return self


Degradation = Literal["noise-15", "noise-25", "noise-50", "blur", "rain", "haze", "low-light"]


class RestorationTaskSpec(TaskConfig):
    """Undo a degradation of a photograph's patch (document 003); see core.tasks.restoration."""

    name: Literal["restoration"]

    scores: ClassVar[str] = "image"
    clusters: ClassVar[str | None] = "picture"

    pictures: Annotated[str, Field(min_length=1)] | None = None  # a folder of PNG and JPEG; null: built-in photographs
    held_out: PositiveInt = 4  # pictures that no training patch comes from
    patch: Annotated[int, Field(ge=16, multiple_of=8)] = 64  # pixels of a side
    degradations: Annotated[tuple[Degradation, ...], Field(strict=False, min_length=1)] = (
        "noise-15",
        "noise-25",
        "noise-50",
    )
    w_psnr: Fraction = 0.5
    w_ssim: Fraction = 0.3
    w_lpips: float | None = None  # its share, what the others leave of 1, is spread over them in proportion

    @property
    def independent_eval_prompts(self) -> int:
        """The held-out pictures that patches are of: those take the pictures in turn, each degradation the next one."""
        each = len(self.degradations)
        return len({(at // each + at % each) % self.held_out for at in range(self.eval_prompts)})

    @property
    def weights(self) -> tuple[float, float]:
        """Of the PSNR term and of the SSIM term, 1 together: .625 and .375 of the document's .5, .3 and .2."""
        total = self.w_psnr + self.w_ssim
        return self.w_psnr / total, self.w_ssim / total

    @model_validator(mode="after")
    def _weights_there_are(self) -> RestorationTaskSpec:
        if self.w_lpips is not None:
            got = f"got {self.w_lpips:g}, and LPIPS needs pretrained weights that grpoctl does not have"
            raise refusal("w_lpips", f"{got}; allowed: null, which spreads its share over w_psnr and w_ssim")
        if not 0 < self.w_psnr + self.w_ssim <= 1 + 1e-9:
            got = f"got w_psnr {self.w_psnr:g} and w_ssim {self.w_ssim:g}"
            raise refusal("w_psnr", f"{got}; allowed: together above 0 and at most 1")
        return self

    @model_validator(mode="after")
    def _degradations_differ(self) -> RestorationTaskSpec:
        if twice := next((name for name in self.degradations if self.degradations.count(name) > 1), None):
            raise refusal("degradations", f"got {twice} twice; allowed: each once")
        return self


class ExternalTaskSpec(TaskConfig):
    """Whatever a command trains on (`trainer.kind: command`): nothing is known of its problems and rewards."""

    name: Literal["external"]

    scores: ClassVar[str] = "external"

    train_prompts: PositiveInt = 1_000_000_000  # unknown: only `epochs` asks for it

    @property
    def reward_range(self) -> None:
        """Nobody knows."""
        return None


BuiltInTask = (
    WorkflowDslTaskSpec
    | ArithmeticTaskSpec
    | Gsm8kTaskSpec
    | CustomTaskSpec
    | ExampleSelectionTaskSpec
    | RestorationTaskSpec
    | ExternalTaskSpec
)
BUILT_IN: tuple[str, ...] = tuple(get_args(task.model_fields["name"].annotation)[0] for task in get_args(BuiltInTask))


def task_config(name: str) -> type[TaskConfig] | None:
    """The settings' class of a task that a package adds; None for a built-in or unknown name. Raises SpecError."""
    if name in BUILT_IN:
        return None
    return plugins.config_class("grpoctl.tasks", name, BUILT_IN, TaskConfig, "scores")


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
