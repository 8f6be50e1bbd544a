"""What one run reached, as labelled sentences and table rows. Colour, wrapping and printing are in grpoctl.console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.health.rules.gains import HEADLINE, Ruler, gain_since
from core.health.statistics import clipped, t_interval
from core.metrics import EVAL, limits
from grpoctl.analysis.collect import RunRecord, number
from grpoctl.runs.status import Status
from grpoctl.sections import Line, Tone
from grpoctl.wording import estimate_text, gain_text, label, met_text, metric_text, plural

_TONES: Mapping[str, Tone] = {"COMPLETED": "good", "STOPPED_EARLY": "good", "PRUNED": "warn", "INTERRUPTED": "warn"}
_MET: Mapping[str, Tone] = {"met": "good", "refuted": "bad", "not shown": "warn", "untested": "warn"}
_UNEXPLAINED = frozenset({"STOPPED_EARLY", "PRUNED", "FAILED", "INTERRUPTED"})  # what no finding explains
# Findings of severity error after which a run's numbers are not those of the policy that was trained.
_UNSOUND = frozenset({"rollout-integrity", "rollout-mode", "stale-sampler", "scoring-noise", "sampler-mismatch"})
_SEVERITIES: Mapping[str, Tone] = {"error": "bad", "critical": "bad", "info": "plain"}


def sentences(result: Mapping[str, Any]) -> list[Line]:
    """How the run ended, what it and its stages gained, its expectations and its findings, in this order.

    Where a finding is more than information: also the command that tells the evidence.
    """
    warning = no_better_than_start(result)
    return [
        _ending(result),
        Line(label="Reached", text=reached(result)),
        *stage_lines(result),
        *([Line(label="Weights", mark="WARNING", tone="warn", text=warning)] if warning else []),
        *sampler_lines(result),
        *_unknown(result),
        *(_expectation(entry) for entry in result.get("expects", ())),
        *(_finding(entry) for entry in result.get("findings", ())),
        *_evidence(result),
    ]


def reached(result: Mapping[str, Any]) -> str:
    """The final eval/reward against the start, with the interval of the change."""
    return gain_text(run_gain_of(result), unsound=unsound_by(result) is not None)


def unsound_by(result: Mapping[str, Any]) -> str | None:
    """Why the numbers of a run are not those of the policy that it trained; None where nothing says so."""
    if result.get("status") == Status.INVALID_ROLLOUT:
        return str(Status.INVALID_ROLLOUT)
    entries = result.get("findings")
    errors = [entry["id"] for entry in entries if entry.get("severity") == "error"] if isinstance(entries, list) else []
    return next((str(name) for name in errors if name in _UNSOUND), None)


def stage_lines(result: Mapping[str, Any]) -> list[Line]:
    """What each stage gained, where there are several: the whole run's gain is not the last one's."""
    stages = result.get("stages") or {}
    if len(stages) < 2:
        return []
    unsound = unsound_by(result) is not None
    return [Line(label="Stage", text=f"{name}: {gain_text(entry, unsound=unsound)}") for name, entry in stages.items()]


def sampler_lines(result: Mapping[str, Any]) -> list[Line]:
    """How far sampler and trainer were apart on the last step, and from where on it would have been noticed."""
    final = result.get("final") or {}
    gap, detectable = (number(final.get(name)) for name in ("rollout/logprob_gap", "rollout/detectable_gap"))
    if gap is None or detectable is None or gap > detectable:
        return []
    factor = "token" if "completions/length" in final else "factor"  # a length is recorded of tokens alone
    text = f"{gap:.2g} nats a {factor} from the trainer; a gap from {detectable:.2g} on would be noticed"
    return [Line(label="Sampler", text=text)]


def _unknown(result: Mapping[str, Any]) -> list[Line]:
    """What nobody looked at in a run that another program trained."""
    if result.get("trainer") != "command":
        return []
    text = (
        "a command trained it: its rollouts, samples and held-out answers were not seen, and nothing vouches for them"
    )
    return [Line(label="Unknown", text=text)]


def run_gain_of(result: Mapping[str, Any], part: str = "final") -> dict[str, Any]:
    """start, end, gain, interval of the run, by its evaluations at the start and at `part` (final or best)."""
    rows = [{**(result.get("start") or {}), "step": 0}, {**(result.get(part) or {}), "step": 1, "stage": 0}]
    first = next(iter(result.get("stages") or {"": None}))
    return gain_since(rows, [first], first, ruler_of(result)).document()


def ruler_of(result: Mapping[str, Any]) -> Ruler:
    """How gains of the run are measured; results of older versions do not say how many prompts there were."""
    prompts, known = result.get("eval_clusters") or result.get("eval_prompts"), result.get("reward_range")
    return Ruler(prompts=prompts, reward_range=None if known is None else (known[0], known[1]))


def no_better_than_start(result: Mapping[str, Any], step: int | None = None) -> str | None:
    """A warning where the weights that are kept are no better than those before training; None where they are.

    They are those of the best evaluation, unless `step` is another one. A run that ended before it was evaluated has
    none to judge.
    """
    best = (result.get("best") or {}).get("step")
    last = step is not None and best is not None and int(best) != step
    gain = run_gain_of(result, "final" if last else "best")
    if not best or gain["gain"] is None or (gain["interval"] is None and gain["gain"] > 0):
        return None
    if gain["interval"] is not None and gain["interval"][0] > 0:
        return None
    which = "the weights at the end" if last else "the kept weights (best evaluation)"
    better = "not significantly better" if gain["interval"] is not None else "no better"
    return f"{which} are {better} than before training: {gain_text(gain)}"


def evaluations(result: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Rows (metric, start, final, best) of the evaluations; the reward's final one with its interval over prompts."""
    run = RunRecord(result=result, spec={}, rows=())
    rows = []
    for metric in EVAL:
        values = [run.value(metric.name, part) for part in ("start", "final", "best")]
        if metric.name == f"{HEADLINE}_se" or values == [None] * 3:
            continue
        start, final, best = (metric_text(metric.name, value) for value in values)
        if metric.name == HEADLINE:
            final = evaluated_text(result, result.get("final") or {})
        rows.append((metric.name, start, final, best))
    return rows


def evaluated_text(result: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """The reward of one evaluation with its 95 % interval over prompts (Student's t), within what is possible."""
    value, error, ruler = number(part.get(HEADLINE)), number(part.get(f"{HEADLINE}_se")), ruler_of(result)
    if value is None or not error:
        return metric_text(HEADLINE, value)
    interval = t_interval(value, [(error**2, ruler.df)])
    return estimate_text(HEADLINE, value, clipped(interval, *limits(HEADLINE, ruler.reward_range)))


LEGEND = "±, [ ]: 95 % t interval over prompts; gains paired by prompt"  # what intervals of one run are
UNPAIRED_LEGEND = "±, [ ]: 95 % t interval over prompts; gains not paired"


def legend_of(result: Mapping[str, Any]) -> str:
    """What the intervals of one run are, in one line; empty where it has none."""
    evaluated = evaluated_text(result, result.get("final") or {})
    if not any(sign in text for text in (evaluated, reached(result)) for sign in "±["):
        return ""
    paired = any(name.startswith("eval/gain_se/") for name in result.get("final") or {})
    legend = LEGEND if paired else UNPAIRED_LEGEND
    count = result.get("eval_clusters")
    return legend.replace("over prompts", f"over {count} clusters of prompts") if count else legend


GAIN_LEGEND = "±, [ ]: 95 % t interval over seeds, and over the prompts of both evaluations"  # of mean gains


def beside_the_record(result: Mapping[str, Any], recorded: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Rows (metric, what the document says, what this run has) of a historical record."""
    run = RunRecord(result=result, spec={}, rows=())
    return [
        (name, metric_text(name, documented), metric_text(name, run.value(name)))
        for name, documented in recorded.items()
    ]


def _ending(result: Mapping[str, Any]) -> Line:
    seconds = number(result.get("seconds"))
    done = [plural(int(result["steps"]), "step")]
    if result.get("trainer") != "command":  # what it did at a step was not seen
        done.append(plural(int(result["updates"]), "update"))
    done += [f"{seconds:.1f} s"] if seconds is not None else []
    status = str(result["status"])
    what = f"{label(result)}, profile {result['profile']}, seed {result['seed']}: {', '.join(done)}"
    if status in _UNEXPLAINED and result.get("message"):
        what += f"; {str(result['message']).splitlines()[0]}"  # a traceback may follow: said as the error
    return Line(label="Run", mark=status, tone=_TONES.get(status, "bad"), text=what)


def _expectation(entry: Mapping[str, Any]) -> Line:
    metric, observed, interval = str(entry["expectation"]).split()[0], number(entry["observed"]), entry.get("interval")
    seen = f"observed {estimate_text(metric, observed, interval, signed=bool(interval))}"
    seen = "not observed" if observed is None else seen
    mark, tone = met_in_words(entry)
    return Line(label="Expected", mark=mark, tone=tone, text=f"{entry['expectation']} ({seen})")


def met_in_words(entry: Mapping[str, Any]) -> tuple[str, Tone]:
    """Whether an expectation is met, and the tone of it; a gain whose interval leaves both open is `not shown`."""
    word = met_text(entry)
    return word, _MET[word]


def _finding(entry: Mapping[str, Any]) -> Line:
    severity = str(entry["severity"])
    tone = _SEVERITIES.get(severity.lower(), "warn")
    sure = f" ({entry['confidence']})" if entry.get("confidence") else ""
    ruled = ", ".join(str(cause).partition(":")[0] for cause in entry.get("rules_out") or ())
    text = f"{entry['id']}{sure}: {entry['summary']}" + (f"; ruled out: {ruled}" if ruled else "")
    return Line(label="Finding", mark=severity.upper(), tone=tone, text=text)


def _evidence(result: Mapping[str, Any]) -> list[Line]:
    """The command that tells the evidence, if a finding is worth it."""
    if all(str(entry["severity"]).lower() == "info" for entry in result.get("findings", ())):
        return []
    return [Line(label="Evidence", text=f"grpoctl diagnose {result['run_id']}", verbatim=True)]
