"""What happened in a run, counted: names and numbers that no opinion enters."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from core.health.case import Case
from core.health.finding import Row, steps_of
from core.health.rules.rollout_mode import contrast
from core.health.statistics import series

SHOWN = 10  # rows that the first and the last reward are means of


def facts(case: Case) -> dict[str, float]:
    """Flat name -> number; a name whose number is not known is left out.

    steps, updates, last_step, reward/first and reward/last (means of ten rows); after an update and after a skipped
    one (where validity is known): steps, all-invalid steps, completions, invalid ones; all-invalid steps that skipped
    their update, and those of them that were sound on the next step (healed).
    """
    rows = steps_of(case.rows)
    if not rows:
        return {}
    last = rows[-1]["step"] or 0
    found: dict[str, float] = {"steps": len(rows), "last_step": int(last) if last == int(last) else last}
    made = [row["update"] == 1 for row in rows if row.get("update") is not None]
    if case.averaged_over > 1:  # a row stands for several steps: nothing is known of one of them
        found["steps"] = found["last_step"]
        found |= {"updates": found["steps"]} if made and all(made) else {}
    elif made:
        found |= {"updates": sum(made)} | _steps_after(rows)
    return found | _samples(case, rows) | _rewards(rows)


def _steps_after(rows: Sequence[Row]) -> dict[str, float]:
    if not any(row.get("completions/valid") is not None for row in rows):
        return {}
    c = contrast(rows)
    return {
        "followed_updates": c.after_update,
        "followed_skips": c.after_skip,
        "collapsed_after_update": c.collapsed_after_update,
        "collapsed_after_skip": c.collapsed_after_skip,
        "collapsed_and_skipped": c.collapsed_and_skipped,
        "healed": c.collapsed_and_skipped - c.still_collapsed,
    }


def _samples(case: Case, rows: Sequence[Row]) -> dict[str, float]:
    """Completions and valid ones, and how many of them stand on a step after an update or a skipped one."""
    if not case.samples:
        return {}
    found: dict[str, float] = {"samples": len(case.samples)}
    known = [sample for sample in case.samples if sample.valid is not None]
    if not known:
        return found
    found["valid"] = sum(sample.valid is True for sample in known)
    updates = {int(row["step"] or 0): row.get("update") for row in rows}
    for word, value in (("update", 1), ("skip", 0)):
        after = [sample for sample in known if updates.get(sample.step - 1) == value]
        if value in updates.values() and case.averaged_over == 1:
            found[f"samples_after_{word}"] = len(after)
            found[f"invalid_after_{word}"] = sum(sample.valid is False for sample in after)
    return found


def _rewards(rows: Sequence[Row]) -> dict[str, float]:
    rewards = [reward for _, reward in series(rows, "reward/mean")]
    if not rewards:
        return {}
    return {f"reward/{which}": fmean(some) for which, some in (("first", rewards[:SHOWN]), ("last", rewards[-SHOWN:]))}
