"""Did the weights that a run was to start from fit it?

## init-from

Severity: warning.

Means: `init_from` found weights that this policy does not have, or did not find some that it has, or found another
shape: those kept their own start.

Looks at: `init/taken`, `init/missing`, `init/odd_shape` and `init/unknown`.

Confounder: a deliberate change of the architecture or of the adapter's size.

Do: compare the two specs' `model` if the counts are a surprise.
"""

from __future__ import annotations

from core.health.finding import Finding, StepTable

_WHAT = {
    "init/missing": "of this policy were not there and kept their own start",
    "init/odd_shape": "had another shape there and kept their own start",
    "init/unknown": "of that run were left out, this policy has none of their name",
}


def initial_weights(table: StepTable) -> Finding | None:
    """A warning where init_from left something unmatched; None where all fitted or nothing was asked."""
    row = table[0] if table else {}
    counts = {name: int(row.get(name) or 0) for name in ("init/taken", *_WHAT)}
    odd = {name: count for name, count in counts.items() if name != "init/taken" and count}
    if not odd:
        return None
    parts = "; ".join(f"{count} {_WHAT[name]}" for name, count in odd.items())
    return Finding(
        id="init-from",
        severity="warning",
        summary=f"init_from gave {counts['init/taken']} weights; {parts}",
        evidence=dict(counts),
    )
