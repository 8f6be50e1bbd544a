"""The known key that an unknown one was probably meant to be: by its place, its spelling, or its name elsewhere."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from grpoctl.config.aliases import ALIASES
from grpoctl.config.authored import OF_THE_FILE
from grpoctl.config.layers import Keys, dotted
from grpoctl.config.schema import Field, fields, item_fields

_CUTOFF = 0.7  # difflib's ratio of two words: learnin and learning 0.93, bta and beta 0.86, prompt and completion 0.38
_WHOLE = 0.9  # of two names without their underscores, where they have other words: learningrate
_ABBREVIATED = 3  # letters from which on a beginning stands for a word: grad for gradient


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


def nearest(keys: Keys, known: Mapping[Keys, Field], aliases: Mapping[str, str] = ALIASES) -> Keys | None:
    """The known key nearest to an unknown one, or None. Of two of the same name, the one nearer by.

    `aliases` has what keys are called elsewhere -> our name, as the end of a dotted key.
    """
    name = str(keys[-1]).lower().replace("-", "_")
    if name in aliases:
        return _ending(aliases[name], keys, known)
    own = _ending(name, keys, known)
    if own is not None:
        return own
    pool = sorted({str(path[-1]) for path in known} | set(aliases))
    close = max(pool, key=lambda other: _likeness(name, other))
    return _ending(aliases.get(close, close), keys, known) if _likeness(name, close) else None


def _likeness(name: str, other: str) -> float:
    """How alike two names are, 0 to 1: word by word, since what differs in one word (min_p, top_p) is another thing."""

    def ratio(one: str, two: str) -> float:
        return difflib.SequenceMatcher(None, one, two).ratio()

    words, others = name.split("_"), other.split("_")
    if len(words) != len(others):
        whole = ratio("".join(words), "".join(others))
        return whole if whole >= _WHOLE else 0.0
    alike = 0.0
    for one, two in zip(words, others, strict=True):
        short, long = sorted((one, two), key=len)
        found = 1.0 if len(short) >= _ABBREVIATED and long.startswith(short) else ratio(one, two)
        if found < _CUTOFF:
            return 0.0
        alike += found
    return alike / len(words)


def _ending(ours: str, keys: Keys, known: Mapping[Keys, Field]) -> Keys | None:
    """The known key that ends in the dotted name `ours`; of several, the one whose path is most like `keys`."""
    tail = tuple(ours.split("."))
    # `rollout.name` is no misplaced name of the file or of the task: what is nested elsewhere is called like it only
    files = {("task", "name"), *((name,) for name in OF_THE_FILE)} if len(keys) > 1 else set[Keys]()
    found = [p for p in known if p[-len(tail) :] == tail and (p not in files or p[:-1] == keys[:-1])]

    def shared(path: Keys) -> int:
        return next((n for n, pair in enumerate(zip(path, keys, strict=False)) if pair[0] != pair[1]), len(path))

    return max(found, key=shared, default=None)
