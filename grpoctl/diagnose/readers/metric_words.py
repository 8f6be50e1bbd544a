"""Which metric of ours a column's words mean: `avg reward`, `resp len`, `KL div`, `truncated %`, `平均 reward`.

People call the columns of a table as they like. A name is read word by word: words that say nothing (avg, train, per)
are left out, and what is left has to be all of one row below, or nobody knows. What is not here: names that trainers
log under (metric_names), which go first.
"""

from __future__ import annotations

import re
from functools import lru_cache

_MARKS = re.compile(r"[*`_~\\]+")
_REMARK = re.compile(r"[(\[{（]([^()\[\]{}（）]*)[)\]}）]")
_WORD = re.compile(r"[a-z]+\d+[a-z]*|[a-z]+@?|@|\d+|%|[Δδ]|[^\W\d_a-z]+")
_COUNTED = re.compile(r"\b(tokens|toks?) ?/ ?(completion|response|sample|rollout|answer)s?\b", re.IGNORECASE)
_AT_TEMPERATURE = re.compile(r"@\s*(?:t|temp|temperature)\s*=?\s*\d+(?:\.\d+)?", re.IGNORECASE)  # `exact @ t0.7`
_AT_K = re.compile(r"\b(pass|avg|mean|maj)(?:@k\b|-of-k\b)", re.IGNORECASE)  # of so many samples: pass@k, mean-of-k
_WEIGHT_OF_KL = re.compile(r"\W*kl[\s_-](?:penalty|coef\w*|weight)\b", re.IGNORECASE)
_AT = re.compile(r"\b(pass|maj)[ _-]at[ _-](\d{1,4})\b", re.IGNORECASE)  # pass_at_1
_NO_NAME = re.compile(r"[/\u2212=+]| [-\u2013] ")  # a ratio or a difference of two
_DECIMAL = re.compile(r"\s[-+]?\d*\.\d+\s*%?\s*\Z")  # `eval reward 0.5`
_VALUED = re.compile(r"\s[-+]?\d")  # `reward 0.12`: a name with its value
_TASK_DONE = re.compile(
    r"\b(?:task|goal|mission)s?[ _](?:completion|completed|achievement)s?"
    r"(?=(?:[ _](?:rate|ratio|share|pct|percent)|\s?%)?\s*\Z)",
    re.IGNORECASE,
)
_FROM_START = re.compile(  # KL from ref, kl_vs_base: of the reference, and of no sampler or step
    r"\bkl[ _](?:from|vs\.?|versus)[ _](?:the[ _])?(?:ref(?:erence)?|sft|base|init(?:ial)?)(?=[ _]|\s*\Z)",
    re.IGNORECASE,
)
_ITS_ACCURACY = re.compile(r"(?<=.)acc(?:uracy)?\Z")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CHINESE = {  # and Japanese, and others where they have letters of their own
    "Antwortlänge": " response length ", "Länge": " length ",
    "零方差": " zero variance ", "方差": " variance ", "组": " group ",
    "中位数": " median ", "中位": " median ", "中央値": " median ",
    "平均": " avg ", "均值": " mean ", "奖励": " reward ", "得分": " score ", "分数": " score ", "熵": " entropy ",
    "损失": " loss ", "学习率": " lr ", "梯度范数": " grad norm ", "梯度": " grad ", "回复": " response ",
    "响应": " response ", "回答": " response ", "输出": " output ", "长度": " length ", "准确率": " accuracy ",
    "正确率": " accuracy ", "成功率": " success rate ", "截断": " truncated ", "比例": " ratio ", "验证": " val ",
    "比": " ratio ", "生成": " generated ",
    "测试": " test ", "步数": " step ", "训练": " train ", "标准差": " std ", "最大": " max ", "最小": " min ",
    "散度": " divergence ", "答对": " correct ", "正确": " correct ", "惩罚": " penalty ", "格式": " format ",
    "数值": " ", "严格": " strict ", "遵循": " compliance ", "达到长度上限": " truncated ",
    "策略": " policy ", "截断率": " truncated ", "集": " ",
    "占比": " ratio ", "率": " rate ",
    "報酬": " reward ", "平均長": " avg length ", "長": " length ", "エントロピー": " entropy ",
    "損失": " loss ", "勾配ノルム": " grad norm ", "学習率": " lr ", "打ち切り": " truncated ",
    "正答率": " accuracy ", "正解率": " accuracy ",
    "pérdida": " loss ", "éxito": " success ", "entropía": " entropy ", "validación": " val ", "evaluación": " eval ",
    "précision": " accuracy ", "exactitude": " accuracy ", "récompense": " reward ", "réponse": " response ",
    "réussite": " success ", "média": " avg ", "médio": " avg ", "médias": " avg ", "acurácia": " accuracy ",
    "precisión": " accuracy ", "validação": " val ", "avaliação": " eval ", "étape": " step ",
    "検証": " val ", "形式": " format ", "応答": " response ", "ダイバージェンス": " divergence ", "標準偏差": " std ",
}  # fmt: skip
_EASTERN = sorted(
    ((word.lower(), english) for word, english in _CHINESE.items()), key=lambda pair: -len(pair[0])
)  # the longest first: 截断率 before 率
_SAYS_NOTHING = frozenset({
    "avg", "mean", "average", "averaged", "train", "training", "batch", "rollout", "policy", "the", "of", "per",
    "median", "a", "in", "on", "at", "by", "to", "over", "value", "curr", "current", "token", "tokens", "step", "final",
    "total", "overall", "raw", "actor", "rolling", "smoothed", "ema", "running", "approx", "estimated", "est",
    "ref", "reference", "all", "group", "trainer", "stats", "metrics", "ppo", "grpo", "rl", "learner", "optim", "task",
    "de", "la", "del", "du", "do", "da", "medio", "media", "promedio", "moyenne", "moyen", "средняя", "средний",
    "среднее", "средн", "entrenamiento", "treino", "paso", "par", "por", "на",
    "windowed", "window", "online", "trajectory", "traj",
    "ep", "episode", "episodes", "env", "with", "update", "emit", "emitting", "native", "canonical", "mittel",
})  # fmt: skip
_HELD_OUT = frozenset({
    "eval", "val", "validation", "test", "dev", "heldout", "held", "out", "evaluation", "benchmark",
    "validierung", "validacion", "evaluacion", "avaliacao", "валидация", "тест",
})  # fmt: skip
_SETS = frozenset({
    "gsm8k", "gsm", "math", "math500", "aime", "aime24", "aime25", "amc", "mbpp", "humaneval", "olympiad",
    "minerva", "livecodebench",
})  # fmt: skip
_BENCHMARKS = frozenset({  # which are trained on as well: a name is of an evaluation where it is no more than that
    "amc23", "hmmt", "hmmt25", "olympiadbench", "lcb", "gpqa", "mmlu", "bbh", "ifeval", "hotpotqa", "2wiki",
    "2wikimultihopqa", "musique", "bamboogle", "nq", "triviaqa", "popqa", "simpleqa", "truthfulqa", "swebench", "pope",
    "mmstar", "mmmu", "mathvista", "mathverse", "mmbench", "hellaswag",
})  # fmt: skip
_ASIDE = _SAYS_NOTHING | _HELD_OUT | _SETS
_MEANS_OF = frozenset({"mean", "avg", "average"})
_PLACES = frozenset({  # what a path of a metric begins with, beside the names that trainers are known for
    "train", "trainer", "training", "actor", "policy", "rollout", "stats", "metrics", "ppo_actor", "grpo_actor",
    "grpo", "ppo", "reward", "rl", "learner", "groups", "batch", "optim", "generation", "gen",
})  # fmt: skip
# A word -> the word that stands for it below.
_SAME = {
    "recall@": "accuracy", "ndcg@": "accuracy", "hit@": "accuracy", "hits@": "accuracy", "precision@": "accuracy",
    "mrr@": "accuracy", "map@": "accuracy", "reward@": "reward", "score@": "reward", "acc@": "accuracy",
    "accuracy@": "accuracy",
    "rewards": "reward", "rew": "reward", "ret": "reward", "score": "reward", "scores": "reward", "return": "reward",
    "returns": "reward", "rwd": "reward",
    "acc": "accuracy", "correct": "accuracy", "correctness": "accuracy", "solved": "accuracy", "pass": "accuracy",
    "pass@": "accuracy", "avg@": "accuracy", "mean@": "accuracy", "maj@": "accuracy", "success": "accuracy",
    "solve": "accuracy", "win": "accuracy", "winrate": "accuracy", "em": "accuracy", "ndcg": "accuracy",
    "mrr": "accuracy", "resolve": "accuracy", "resolved": "accuracy", "solves": "accuracy", "proved": "accuracy",
    "proven": "accuracy", "parse": "parsed", "parseable": "parsed", "parsable": "parsed",
    "genuine": "honest", "legit": "honest", "legitimate": "honest",
    "kld": "kl", "ent": "entropy", "gradient": "grad", "grads": "grad", "gnorm": "gradnorm",
    "lengths": "length", "len": "length", "resp": "response", "responses": "response", "completions": "response",
    "res": "response",
    "completion": "response", "comp": "response", "output": "response", "outputs": "response", "gen": "response",
    "generation": "response", "generated": "response", "generations": "response", "answer": "response",
    "seq": "response", "sequence": "response", "cot": "response", "toks": "tokens", "tok": "tokens",
    "trunc": "truncated", "truncation": "truncated", "truncations": "truncated", "cutoff": "truncated",
    "overlong": "truncated", "clipped": "clip", "clipping": "clip", "clipfrac": "clipshare", "clipratio": "clipshare",
    "frac": "share", "fraction": "share", "ratio": "share", "rate": "share", "proportion": "share", "percent": "share",
    "ratios": "share", "rates": "share",
    "%": "share", "pct": "share", "percentage": "share", "deviation": "std", "sd": "std", "stdev": "std",
    "stddev": "std", "spread": "std", "dispersion": "std", "equal": "same", "identical": "same", "constant": "same",
    "zeros": "zero", "no": "zero", "non": "nonzero", "groups": "group", "prompts": "group", "variance": "var",
    "advantages": "advantage", "adv": "advantage", "unique": "distinct", "div": "divergence", "losses": "loss",
    "successes": "accuracy", "succ": "accuracy", "tools": "tool", "calls": "call",
    "belohnung": "reward", "belohnungen": "reward", "lernrate": "lr", "verlust": "loss", "entropie": "entropy",
    "genauigkeit": "accuracy", "abgeschnitten": "truncated", "streuung": "std", "standardabweichung": "std",
    "recompensa": "reward", "perdida": "loss", "tasa": "share", "exito": "accuracy", "longitud": "length",
    "respuesta": "response", "divergencia": "divergence", "entropia": "entropy", "perda": "loss", "taxa": "share",
    "sucesso": "accuracy", "comprimento": "length", "resposta": "response", "perte": "loss", "taux": "share",
    "longueur": "length", "recompense": "reward", "sr": "accuracy",
    "награда": "reward", "вознаграждение": "reward", "потери": "loss", "лосс": "loss", "энтропия": "entropy",
    "длина": "length", "ответа": "response", "ответов": "response", "точность": "accuracy", "доля": "share",
    "дивергенция": "divergence", "кл": "kl",
    "minimum": "min", "maximum": "max", "highest": "max", "lowest": "min", "learning": "learn", "logp": "logprob",
    "logprobs": "logprob", "formatting": "format", "formatted": "format",
}  # fmt: skip
# What is left of a name, in any order -> the metric.
_MEANS: dict[frozenset[str], str] = {
    frozenset(words.split()): metric
    for metric, names in {
        "reward/mean": ("reward", "proxy", "proxy reward", "proxy rm", "proxy rm reward"),
        "reward/std": ("reward std",),
        "reward/true": ("gold reward", "gold", "true reward", "oracle reward", "oracle", "gold rm", "gold rm reward",
                        "honest accuracy", "honest accuracy share"),
        "reward/max": ("reward max",),
        "reward/min": ("reward min",),
        "rewards/accuracy": ("accuracy", "accuracy share", "accuracy reward", "accuracy response", "exact match",
                             "exact match share", "exact", "exact share", "exact reward"),
        "rewards/format": ("format", "format share", "format reward", "format accuracy", "format compliance",
                           "format compliance share", "format adherence", "format adherence share"),
        "kl": ("kl", "kl sft", "kl base", "kl init", "kl divergence", "kl loss", "kl penalty"),
        "sampler/kl": ("mismatch kl", "kl mismatch", "response kl error", "sampler kl", "vllm kl", "inference kl"),
        "rollout/logprob_gap": ("logprob diff", "logprob gap", "logprob difference", "logprob mismatch"),
        "sampler/prob_gap": ("prob diff", "probs diff", "prob gap"),
        "entropy": ("entropy",),
        "grad_norm": ("grad norm", "gradnorm", "grad"),
        "learning_rate": ("lr", "learn share"),
        "loss": ("loss",),
        "policy/loss": ("pg loss",),
        "critic/loss": ("vf loss", "critic loss"),
        "critic/explained": ("explained var", "expl var", "explained variance", "expl variance"),
        "policy/clip_share": ("clip share", "clipshare"),
        "completions/length": ("response length", "length", "response"),
        "completions/longest": ("max length", "max response length"),
        "completions/shortest": ("min length", "min response length"),
        "completions/truncated": ("truncated", "truncated share", "truncated response", "truncated response share",
                                  "response clip share", "clip response", "clip length", "length clip share",
                                  "response length clip share", "response clipshare", "hit max length",
                                  "cap hit share", "hit cap", "hit cap share", "length cap hit share", "at cap",
                                  "length truncated share", "length truncated",
                                  "cut off", "cut off share", "hitting max length", "max length hit share", "zero eos",
                                  "zero eos share"),
        "completions/valid": ("valid", "valid share", "valid response", "valid response share", "validity", "parsed",
                              "parsed share", "valid json", "valid json share", "valid action", "valid action share",
                              "executable", "executable share", "format valid", "format valid share", "syntax valid",
                              "syntax valid share"),
        "completions/distinct": ("distinct", "distinct share", "distinct response", "distinct response share"),
        "groups/dead": ("zero std", "zero std share", "zero var", "zero var share", "dead", "dead share",
                        "zero advantage", "zero advantage share", "degenerate", "degenerate share",
                        "zero signal", "uniform", "uniform share", "zero reward std",
                        "zero reward std share", "zero grad", "zero reward var", "zero reward var share", "same",
                        "same share", "same reward", "same reward share", "zero reward signal", "dead reward",
                        "zero signal share", "flat", "flat share", "uninformative", "uninformative share",
                        "zero grad share", "zero variance", "collapsed share"),
        "tools/calls": ("tool call", "tool call share", "tool call frequency", "tool call count", "tool call response"),
        "advantage/std_all": ("advantage std",),
        "advantage/max": ("advantage max",),
        "advantage/min": ("advantage min",),
    }.items()
    for words in names
}  # fmt: skip
_OF_HELD_OUT = {
    "reward/mean": "eval/reward", "loss": "eval/loss", "completions/length": "eval/length",
    "completions/truncated": "eval/truncated", "completions/valid": "eval/valid",
}  # fmt: skip
_SCORES = frozenset({
    "reward", "accuracy", "penalty", "bonus", "precision", "recall", "f1", "bleu", "rouge", "coverage",
})  # fmt: skip
_OF_A_FORM = frozenset({"format", "xml", "numeric", "structure", "tag", "tags"})  # `soft format`, `Answer Numeric`
_OF_FORM = _OF_A_FORM | {
    "exact",
    "approximate",
    "soft",
    "strict",
    "int",
    "match",
    "response",
    "number",
    "check",
    "json",
}
_NO_PARTS = (
    frozenset(
        [
            "best",
            "threshold",
            "weight",
            "coef",
            "coefficient",
            "std",
            "min",
            "max",
            "delta",
            "Δ",
            "δ",
            "target",
            "baseline",
            "base",
            "old",
            "new",
            "var",
            "time",
            "total",
            "zero",
            "count",
            "num",
            "gap",
            "drop",
            "change",
        ]
    )
    | _HELD_OUT
)
_LIVE = frozenset(map(frozenset, (
    {"live"}, {"mixed"}, {"informative"}, {"effective"}, {"useful"}, {"contributing"}, {"nonzero", "std"},
    {"mixed", "reward"}, {"nonzero", "var"}, {"nonzero", "advantage"}, {"nonzero", "reward", "std"},
    {"nonzero", "reward", "var"},
)))  # fmt: skip
_PERCENT = re.compile(r"%|pct|percent", re.IGNORECASE)
_COUNTING = frozenset({  # words of how rewards were counted, spread and computed: no part is called so
    "median", "quantile", "percentile", "n", "k", "lr", "scale", "scaled", "norm", "normalized", "normalised", "clip",
    "minus", "step", "steps", "tokens", "length", "seconds", "range", "sum", "ema", "iqr", "sem", "stderr", "se",
    "missing", "history", "version", "loss", "kl", "advantage", "temperature", "beta", "size", "epoch", "timeout",
    "timeouts", "error", "errors", "failures", "failed", "cache", "hits", "latency", "duration", "ms", "workers",
    "queue", "calls", "samples", "counts", "skew", "kurtosis", "hist", "histogram", "entropy", "nonzero", "positive",
    "pos", "distinct",
})  # fmt: skip
_FEW_WORDS = 4
_NO_SCORE = frozenset({  # of an evaluation, beside its score
    "length", "response", "tokens", "truncated", "format", "valid", "batch", "interval", "every", "prompts", "split",
    "seed", "set", "hack", "hacked", "hacking", "invalid", "runtime", "per", "second", "rate", "share", "grad", "lr",
})  # fmt: skip
_OF_PLAY = frozenset({"ep", "episode", "episodes"})
_CODE = re.compile(r"[a-z]\d{1,3}")
_QUANTILE = re.compile(r"[pq]_?\d+")
_OWNERS = {"value": "critic", "policy": "policy", "actor": "policy"}  # of a loss
_LONGEST = 60  # characters of a name


@lru_cache(maxsize=200_000)
def metric_by_words(name: str) -> str | None:
    """The metric that the words mean; None where a word is left that nobody knows. Paths (`a/b`) have no words."""
    path = name.lower().strip().split("/")
    of_trained = path[0] == "reward" and path[-1] in _SETS  # reward/math: where prompts of several sets are trained on
    if len(name) > _LONGEST or _DECIMAL.search(name) or of_trained:
        return None
    name = _AT.sub(r"\1@\2", _AT_K.sub(r"\1@1", name))
    plain = _AT_TEMPERATURE.sub(" ", _COUNTED.sub("response tokens", _MARKS.sub(" ", name)))
    if len(path) > 1 and path[-1] in _MEANS_OF:  # Score/mean
        return metric_by_words("/".join(name.strip().split("/")[:-1]))
    if len(path) > 1 and path[0] in _HELD_OUT | _PLACES:
        return _of_words(plain.replace("/", " "), path=True)  # eval/pass_at_1, policy/policy_kl
    return _with_remarks(plain, " ".join(_REMARK.findall(plain)))


def _with_remarks(plain: str, remarks: str) -> str | None:
    """The metric of a name by what stands in its brackets, too: `reward (eval)`, `KL penalty (β)`."""
    words = set(_words(remarks))
    weight = _WEIGHT_OF_KL.match(plain)
    if weight is not None and (remarks or plain[weight.end() :]).strip().lower() in ("β", "beta"):
        return "beta"
    if words and words <= _HELD_OUT | {"std", "max", "min"}:
        return _of_words(plain)
    if (metric := _of_words(_REMARK.sub(" ", plain))) is not None:
        return metric
    return "reward/mean" if words - _SAYS_NOTHING == {"reward"} else None  # `strict match (the reward)`


@lru_cache(maxsize=200_000)
def part_by_words(name: str) -> str | None:
    """`rewards/NAME` where a table's column is called a score of something (`strict acc`, `tool reward`, `recall`), or
    `eval/slices/NAME` where it says that it was evaluated.
    """
    if len(name) > _LONGEST:
        return None
    plain = _REMARK.sub(" ", _MARKS.sub(" ", name))
    words = _words(plain)
    if (held_out := _held_out_by_words(plain)) is not None:
        return held_out
    of_form = len(words) > 1 and {*words} <= _OF_FORM | _SCORES and not _OF_A_FORM.isdisjoint(words)
    if _NO_NAME.search(plain) or _VALUED.search(plain) or not _NO_PARTS.isdisjoint(words):
        return None
    if _SCORES.isdisjoint(words) and not of_form:
        return None
    slug = "_".join(re.findall(r"\w+", plain.lower()))
    if any(word.endswith("@") for word in _raw_words(plain)):
        return f"eval/slices/{slug}"  # Pass@1 clean
    return f"rewards/{slug}" if slug else None


def _held_out_by_words(plain: str) -> str | None:
    """`eval/slices/NAME` of a column that says that it is an evaluation of something (`eval edit_similarity`)."""
    first, *rest = _raw_words(plain.replace("_", " ").replace("/", " ")) or [""]
    known = {*rest} - _HELD_OUT
    if first not in ("eval", "val", "validation", "heldout") or not known or len(rest) > _FEW_WORDS:
        return None
    if not (_COUNTING | _NO_PARTS | _NO_SCORE).isdisjoint({*rest, *(_SAME.get(word, word) for word in rest)}):
        return None
    return f"eval/slices/{'_'.join(word.rstrip('@') for word in rest if word != '@')}"


@lru_cache(maxsize=200_000)
def is_share_of_live_groups(name: str) -> bool:
    """Whether a name says a share of groups that teach (`frac_mixed_groups`, `live group rate`), and no percentage."""
    if len(name) > _LONGEST or _PERCENT.search(name) is not None:
        return False
    words = set(_words(_MARKS.sub(" ", name).replace("_", " ")))
    kind = frozenset(words - {"share", "group"} - _SAYS_NOTHING)
    return "share" in words and kind in _LIVE and ("group" in words or "nonzero" in kind)


def is_statistic(name: str) -> bool:
    """Whether a name under a reward is of how it was counted or weighed (`reward/p90`), and no part."""
    words = _words(name.replace("_", " "))
    return not _COUNTING.isdisjoint(words) or not _NO_PARTS.isdisjoint(words) or bool(_QUANTILE.fullmatch(name))


@lru_cache(maxsize=10_000)
def may_be_no_reward(name: str) -> bool:
    """Whether a name is of a reward only where nothing else is: a critic's `return`, what an update maximises (MLX)."""
    words = _raw_words(name.replace("_", " "))
    return not {"return", "returns", "ret"}.isdisjoint(words) or words[:2] == ["policy", "reward"]


def _of_words(text: str, *, path: bool = False) -> str | None:
    words = _words(text)
    if (whole := _ITS_ACCURACY.sub("", "".join(_raw_words(text)))) in _BENCHMARKS:
        return f"eval/slices/{whole}"  # HotpotQA, 2Wiki, MathVista accuracy
    left = frozenset(word for word in words if word not in _ASIDE and not word.isdigit() and word != "@")
    named = [word for word in words if word in _SETS]
    held_out = bool(named or not _HELD_OUT.isdisjoint(words))
    counted = any(word.endswith("@") for word in _raw_words(text))  # pass@1 is measured on a benchmark
    kinds = [word for word in left if held_out and len(left) == 1 and _CODE.fullmatch(word)]  # held-out d4
    if kinds or (named and not left):
        return f"eval/slices/{(kinds or named)[0]}"
    metric = _MEANS.get(left)
    twice = not path and any(words.count(word) > 1 for word in left)  # two names, one behind the other
    numbered = any(word.isdigit() for word in words) and not (held_out or counted)
    a_text = left == {"response"} and "tokens" not in words
    of_play = metric == "completions/length" and not _OF_PLAY.isdisjoint(words)  # steps of a game, and no tokens
    if metric is None or "/" in text or twice or numbered or a_text or of_play:
        return None
    if metric == "loss" and (owner := _owner(words)):  # `value loss`, not `loss value`
        return None if held_out else f"{owner}/loss"
    if metric == "rewards/accuracy" and (held_out or counted):
        return f"eval/slices/{'_'.join(named) or 'accuracy'}"
    return _OF_HELD_OUT.get(metric) if held_out else metric


def _owner(words: list[str]) -> str | None:
    """Whose loss it is, by a word before it."""
    return next((_OWNERS[word] for word in words[: words.index("loss")] if word in _OWNERS), None)


def _words(text: str) -> list[str]:
    return [_SAME.get(word, word) for word in _raw_words(text)]


def _raw_words(text: str) -> list[str]:
    text = _FROM_START.sub("kl", _TASK_DONE.sub("success", _CAMEL.sub(" ", text))).lower()
    for word, english in _EASTERN if not text.isascii() else ():
        text = text.replace(word, english)
    return _WORD.findall(text.replace("-", " ").replace("|g|", "grad norm"))
