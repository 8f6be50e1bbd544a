"""A line of a log as pairs `NAME: NUMBER` that its metrics are read from, however they were printed.

Lists and tensors of a step's rewards, `Rewards - Mean: 0.5, Std: 0.2`, `μ=0.3, σ=0.1`, `R̄=0.2`, tuples, numbers with
commas between thousands. What is not here: which names are metrics, and which line is which step (console_lines).
"""

from __future__ import annotations

import math
import re

from grpoctl.diagnose.readers.trainer_log import LISTED

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+|[kKMB](?![A-Za-z]))?%?|[-+]?(?:nan|inf|NaN|Infinity)"
_WRAPPED = re.compile(
    r"\b(?:np|numpy|torch)\.\w+\(([^()]{0,1000})\)|\b(?:tensor|array)\(([^(),]{0,1000})[^()]{0,1000}\)"
)  # np.float64(0.5)
_MEAN_OF = re.compile(  # Entropy: mean=0.37, min=0.03; Rewards - Mean: 0.5, Std: 0.2
    rf"\b(?P<name>[A-Za-z]\w*)(?::|\s-)\s*(?:mean|avg)\s*[=:]\s*(?P<mean>{NUMBER})(?:,\s*std\s*[=:]\s*(?P<sd>{NUMBER}))?",
    re.IGNORECASE,
)
_MEAN_AND_SD = re.compile(  # Total Rewards:  μ=0.289, σ=0.039, cov=100.00% of one function
    rf"(?:[•*-]\s*)?(\w[\w -]{{0,60}}):\s*μ\s*=\s*({NUMBER}),\s*σ\s*=\s*({NUMBER})(,\s*cov\s*=)?"
)
_OF_LENGTHS = re.compile(r"^\s*[•*-]\s*(Avg tokens|Hit limit):\s*([.\d]+%?)\s*$")  # beside them: settings are spelt so
_MLX = {"Avg tokens": "completions/length", "Hit limit": "completions/truncated"}
_PAIRED = re.compile(r"\(\s*(['\"])([\w/@. -]{1,100})\1\s*,\s*([^(),]{1,40})\)")  # ('kl', 0.02), of a printed list
_OF_COMPLETIONS = re.compile(  # rewards=['0.8', '0.01'] of a step; rewards: tensor([-1., 0.5]); advantages is [0. 0.]
    r"(?<!eval )(?<!val )(?<!test )\b(?:gathered_|all_|batch_)?(?:"
    r"(?P<many>rewards|advantages)\s{0,9}(?:[=:]|is)\s{0,9}\[(?P<list>[^\[\]]{3,4000})\]"
    r"|(?P<one>reward|advantage)s?\s{0,9}(?:[=:]|is)?\s{0,9}(?:tensor|array)\(\s*\[(?P<tensor>[^\[\]]{3,4000})\][^()]{0,80}\))"
)
_ONE_EACH = re.compile(  # avg_rewards: 0.4,0.8,0.6
    r"(?<!\w)(\w{0,40}?(?:rewards|scores|returns))\s{0,9}[:=]\s{0,9}"
    r"([-+]?\d*\.\d+(?:,\s?[-+]?\d*\.\d+){2,})(?![\d.,])"
)
_OF_A_STEP = re.compile(  # returns of step 12: 6.37
    rf"^[\W\d]{{0,60}}(?:(?:INFO|DEBUG|WARNING)\b[\W\d]{{0,60}})?"
    rf"((?:(?:mean|avg|average) )?[A-Za-z]\w{{0,30}}) (?:of|at|for|in) (step|iteration|epoch) (\d{{1,9}})\s?[:=]"
    rf"\s?(?={NUMBER})",
    re.IGNORECASE,
)
_LOGURU = re.compile(
    r"\|\s{1,20}[\w.]{1,100}:[\w.<>]{1,100}:\d{1,6}\s-\s"
)  # | module:function:12 - , where loguru was called
_BOLD = re.compile(r"\*\*([^*:：]{1,60})([:：])\*\*\s{0,9}")  # **Mean reward:** 0.5
_PLACE = re.compile(r"step|iter|epoch", re.IGNORECASE)
_BEGINS_AT_A_STEP = re.compile(r"\W{0,20}(?:step|iter(?:ation)?|update)\s?\d{1,9}\s?[:(]", re.IGNORECASE)
_QUOTED = re.compile(  # `train/loss` 0.02 of such a line
    rf"`([A-Za-z][\w/.@-]{{0,80}})`(?=\s[*~≈`]{{0,3}}(?:{NUMBER}))"
)
_LONGEST_MARKED = 1000  # characters of such a line
_IN_BOLD = re.compile(rf"\*\*({NUMBER})\*\*")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,]|\.\d*,)")  # 1,048,576
_OVERLINED = re.compile(r"\b([A-Za-z])[\u0300-\u0305]")  # R̄
_LETTERS = {"∇": "grad_norm", "π": "pg_loss"}  # before a value
_BY_LETTER = re.compile(r"(?<!\w)([∇π])(?=\s?[=:])")


def unwrapped(text: str, nothing: str = "") -> str:
    """The text with the number that stands in np.float64(0.5), tensor(0.5, device='cuda:0'), `nothing` for none."""
    return _WRAPPED.sub(lambda match: (match[1] or match[2] or "").strip() or nothing, text) if "(" in text else text


def value_of(text: str) -> float | None:
    """The number; NaN and infinities as they are; 12% as 0.12; None for anything else."""
    try:
        return float(text)
    except ValueError:
        pass
    word = text.strip(" *~`+").replace("\u2212", "-")
    word = unwrapped(word)
    size = {"%": 0.01, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9}.get(word[-1:])
    try:
        return float(word) if size is None else float(word[:-1]) * size
    except ValueError:
        return None


def _told_by_list(match: re.Match[str]) -> str:
    """The pairs that stand for a list of rewards or advantages, with commas or (numpy's) without."""
    text = unwrapped(match["list"] or match["tensor"])
    listed = [one.strip().strip("'\"") for one in (text.split(",") if "," in text else text.split())]
    cells = LISTED[match["many"] or f"{match['one']}s"](listed)
    return " ".join(f"{name}={value!r}," for name, value in cells.items()) or match[0]


def respelled(text: str) -> str:
    """The text with lists, tensors, tuples and means spelt as `NAME: NUMBER`."""
    words = _OF_COMPLETIONS.sub(_told_by_list, text) if "reward" in text or "advantage" in text else text
    words = _LOGURU.sub("| ", words, 1) if "|" in words and " - " in words else words
    words = unwrapped(words)
    words = _BOLD.sub(r"**\1**\2 ", words) if ":**" in words or "：**" in words else words
    words = _ONE_EACH.sub(_told_by_mean_of_list, words) if "," in words else words
    words = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), words) if "," in words else words
    words = words if words.isascii() else _in_latin(words)
    words = _without_marks(words) if "`" in words else words
    words = _OF_A_STEP.sub(r"\2 \3 \1: ", words) if len(_PLACE.findall(words)) == 1 else words
    words = _PAIRED.sub(r" \2: \3 ", words) if "('" in words or '("' in words else words
    words = _MEAN_OF.sub(_told_by_words, words)
    words = _MEAN_AND_SD.sub(_told_by_mean, words) if "μ" in words else words
    length = _OF_LENGTHS.match(words)
    return words if length is None else f"{_MLX[length[1]]}: {length[2]}"


def _told_by_mean_of_list(match: re.Match[str]) -> str:
    """The pair that stands for a reward of each completion, or of each group: `avg_rewards: 0.4,0.8,0.6`."""
    values = [float(one) for one in match[2].split(",")]
    return f"{match[1]}: {math.fsum(values) / len(values):.6g}"


def _told_by_words(match: re.Match[str]) -> str:
    """The pairs that stand for `Rewards - Mean: 0.5, Std: 0.2`."""
    sd = f", {match['name']} std: {match['sd']}" if match["sd"] else ""
    return f"{match['name']}: {match['mean']}{sd}"


def _told_by_mean(match: re.Match[str]) -> str:
    """The pairs that stand for `NAME: μ=0.3, σ=0.1`; one with a coverage is of one reward function (mlx-lm-lora)."""
    name, mean, sd, of_function = match.groups()
    if of_function:
        return f"rewards/{'_'.join(name.split())}: {mean} cov="
    of_groups = name.lower().startswith("group reward")
    return f"{name}: {mean}, {'group_reward_std' if of_groups else f'{name} std'}: {sd}"


def _without_marks(text: str) -> str:
    """A line that begins with its step, without Markdown's marks around the names and values that stand in it."""
    if len(text) > _LONGEST_MARKED or _BEGINS_AT_A_STEP.match(text) is None:
        return text
    return _IN_BOLD.sub(r"\1", _QUOTED.sub(r"\1", text))


def _in_latin(text: str) -> str:
    """The text with a mean's mark and the letters that papers use for metrics spelt out, and a hyphen for a minus."""
    text = text.replace("\u2212", "-")
    text = _OVERLINED.sub(lambda match: "reward" if match[1] in "rR" else match[1], text)
    return _BY_LETTER.sub(lambda match: _LETTERS[match[1]], text)
