"""Small runs to report on: four steps of K completions, an evaluation before and after, four problems asked both times.

Numbers that can be checked on paper; prompts and answers that would do harm in a careless page.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpoctl.files import read_json, replace_json, replace_rows
from grpoctl.runs.problems import write_problems
from grpoctl.runs.run_dir import RunDir
from tests.conftest import Recorded

STEPS = 4
EVIL = (
    "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">",
    "</script><script>document.title='taken'</script><!-- ]]> {{ 7 * 7 }}",
    "javascript:alert(1) \u202egnp.exe\u202c \x00 \x1b[2J half a pair: \ud83d whole: \U0001f600",
    '=HYPERLINK("http://127.0.0.1:9/x") [x](javascript:alert(1)) `code` **bold** | cell "q" \'a\' &lt;b&gt; \u2028',
)
START = 0.5  # of every problem
WORSE, BETTER, SAME, MUCH_WORSE = 0.4, 0.9, 0.5, 0.1
ENDS = (WORSE, BETTER, SAME, MUCH_WORSE)  # mean 0.475


def run(recorded: Recorded, seed: int = 0, *, k: int = 8, ends: Sequence[float] = ENDS, text: str = "fine") -> RunDir:
    """A run of p31 (K=8 is its own) whose problems earn these at its end, seed s a hundredth of s more."""
    made = recorded(steps=STEPS, seed=seed, **({} if k == 8 else {"num_generations": k}))
    rewards = {0: [START] * len(ends), STEPS: [end + 0.01 * seed for end in ends]}
    means = {step: sum(of_step) / len(of_step) for step, of_step in rewards.items()}
    rows: list[dict[str, object]] = [{"step": 0, "completions": 0, "eval/reward": means[0], "eval/reward_se": 0.01}]
    for step in range(1, STEPS + 1):
        dead = step / STEPS  # 0.25, 0.5, 0.75, 1
        row = {"step": step, "stage": 0, "update": int(step != 2), "completions": k * step, "groups/dead": dead}
        rows.append({**row, **({"eval/reward": means[STEPS], "eval/reward_se": 0.01} if step == STEPS else {})})
    replace_rows(made.metrics, rows)
    problems = [
        {
            "step": step, "place": place, "draw": 0, "prompt_id": f"e{place}", "problem": f"{place:016x}",
            "reward": reward, "valid": True, "right": None, "prompt": EVIL[place % len(EVIL)],
            "output": f"{text} {EVIL[place % len(EVIL)]}",
        }
        for step, of_step in rewards.items()
        for place, reward in enumerate(of_step)
    ]  # fmt: skip
    replace_rows(made.problem_rows, problems)
    write_problems(made)
    made.problem_rows.unlink()
    result = read_json(made.result) or {}
    overrides = [] if k == 8 else [f"num_generations={k}"]
    parts = {"overrides": overrides, "start": {"eval/reward": means[0], "eval/reward_se": 0.01}}
    final = {"eval/reward": means[STEPS], "eval/reward_se": 0.01, "steps": STEPS, "completions": k * STEPS}
    findings = [{"id": "dead-groups", "severity": "warning", "summary": EVIL[0], "confidence": "strong"}]
    replace_json(
        made.result, {**result, **parts, "final": final, "best": {"step": STEPS, **final}, "findings": findings}
    )
    return made


def two_sides(recorded: Recorded, seeds: Sequence[int] = (0, 1, 2)) -> list[RunDir]:
    """Three seeds of K=2 that stay where they were, then three of p31 with ENDS."""
    first = [run(recorded, seed, k=2, ends=(START,) * 4, text="A") for seed in seeds]
    return [*first, *(run(recorded, seed, text="B") for seed in seeds)]
