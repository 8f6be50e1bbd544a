"""The known key that an unknown one was probably meant to be: by its place, its spelling, or its name elsewhere."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from grpoctl.specs.aliases import ALIASES
from grpoctl.specs.layers import Keys, dotted
from grpoctl.specs.schema import Field, fields, item_fields

_CUTOFF = 0.7  # difflib's ratio: `learnin_rate` 0.96, `bta` 0.86, `foo` against `top_k` 0.25


def hint(keys: Keys, tree: Mapping[str, object]) -> str:
    """`did you mean stages.grpo.beta?`, whose key it is instead, or which keys are known at that place."""
    known = _known(tree, keys)
    name = str(keys[-1])
    elsewhere = fields(tree, all_tasks=True).get(keys)
    if keys[:-1] == ("task",) and elsewhere is not None:
        task = tree["task"]
        assert isinstance(task, Mapping)
        return f"{name} is a key of the task {elsewhere.task}, this one is {task.get('name')}"
    found = nearest(keys, known)
    if found is not None:
        return f"did you mean {dotted(found)}?"
    siblings = [str(path[-1]) for path in known if path[:-1] == keys[:-1]]
    return f"known here: {', '.join(siblings)}" if siblings else "`grpoctl show` prints the known keys"


def _known(tree: Mapping[str, object], keys: Keys) -> dict[Keys, Field]:
    """The keys a file may hold: those of the spec, less the profile it is loaded with, and those of the loader."""
    items = item_fields(tree, keys)
    if items:  # what is written into a list's item belongs to it, whatever is called alike elsewhere
        return items
    known = {path: field for path, field in fields(tree).items() if path != ("profile",)}
    return {**known, ("extends",): Field(annotation=str), ("profiles",): Field(annotation=dict)}


def nearest(keys: Keys, known: Mapping[Keys, Field]) -> Keys | None:
    """The known key nearest to an unknown one, or None. Of two of the same name, the one nearer by."""
    name = str(keys[-1]).lower().replace("-", "_")
    if name in ALIASES:
        return _ending(ALIASES[name], keys, known)
    own = _ending(name, keys, known)
    if own is not None:
        return own
    pool = {str(path[-1]) for path in known} | set(ALIASES)
    close = difflib.get_close_matches(name, sorted(pool), n=1, cutoff=_CUTOFF)
    return _ending(ALIASES.get(close[0], close[0]), keys, known) if close else None


def _ending(ours: str, keys: Keys, known: Mapping[Keys, Field]) -> Keys | None:
    """The known key that ends in the dotted name `ours`; of several, the one whose path is most like `keys`."""
    tail = tuple(ours.split("."))
    found = [path for path in known if path[-len(tail) :] == tail]

    def shared(path: Keys) -> int:
        return next((n for n, pair in enumerate(zip(path, keys, strict=False)) if pair[0] != pair[1]), len(path))

    return max(found, key=shared, default=None)
