"""A task's problems, looked at as texts: how many, which repeat, which leak into the held-out ones, how long they are.

And the tokenizer and the model, where they are on this machine: a check downloads nothing. Not here: what a model earns
on the problems (sampling), and how it is printed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from core.config import ModelSpec, RunSpec
from core.errors import SpecError, TaskError
from core.health.dataset import Nearness, Overlap, leaks, lengths, repeats
from core.health.finding import Finding
from core.tasks.base import Example, Split, Task
from core.tasks.text import prompt_of
from grpoctl.wording import plural

SPLITS: tuple[Split, ...] = ("train", "eval", "test")
COMPARED = 20_000  # problems of a split whose likeness is looked for: it takes a millisecond each
SHOWN = 5  # pairs of ids
Measure = Callable[[Sequence[str]], list[int]]  # the lengths of some texts


def characters(texts: Sequence[str]) -> list[int]:
    """Lengths where no tokenizer is at hand."""
    return [len(text) for text in texts]


def look(task: Task, *, prompts: Callable[[Sequence[Example]], list[int]], answers: Measure) -> dict[str, Any]:
    """`splits` and `leakage` of the document; `prompts` and `answers` measure lengths.

    Raises SpecError where the training or held-out problems cannot be had; without a test file there are none to test.
    """
    examples, absent = _examples(task)
    texts = {split: {one.id: text_of(one) for one in found} for split, found in examples.items()}
    compared = {split: dict(islice(found.items(), COMPARED)) for split, found in texts.items()}
    nearness = Nearness(text for found in compared.values() for text in found.values())
    splits = {}
    for split, found in examples.items():
        same, near = repeats(texts[split]), nearness.near(compared[split])
        splits[split] = {
            "problems": len(found),
            "duplicates": len(same),
            "near_duplicates": len(near),
            "examples": _shown([*same, *near]),
            "prompt": _lengths(prompts(found)),
            "answer": _lengths(answers(targets(task, found))),
        }
    leakage = {}
    for split in ("eval", "test"):
        same, near = leaks(texts[split], texts["train"]), nearness.near(compared[split], compared["train"])
        known = {one.one for one in same}
        near = [one for one in near if one.one not in known]
        leakage[split] = {"duplicates": len(same), "near_duplicates": len(near), "examples": _shown([*same, *near])}
    return {
        "splits": splits,
        "leakage": leakage,
        "compared": {split: len(found) for split, found in compared.items()},
        "absent": absent,
    }


def _examples(task: Task) -> tuple[dict[Split, Sequence[Example]], str | None]:
    """The problems of each split, and why there are none to test where their file is at fault."""
    found: dict[Split, Sequence[Example]] = {split: task.examples(split) for split in ("train", "eval")}
    try:
        return {**found, "test": task.examples("test")}, None
    except SpecError as error:
        return {**found, "test": ()}, str(error)


def text_of(example: Example) -> str:
    """What a problem says: its prompt, or all messages of its conversation."""
    return prompt_of(example).words


def targets(task: Task, examples: Sequence[Example]) -> list[str]:
    """The task's own answers to the first so many; none where it has none."""
    try:
        return [task.target(example) for example in examples[:COMPARED]]
    except TaskError:
        return []


def findings(spec: RunSpec, document: Mapping[str, Any], too_long: float | None) -> list[Finding]:
    """What of this is worth a warning; `too_long` is the share of answers above the run's completion length."""
    found = []
    for split, seen in document["leakage"].items():
        if seen["duplicates"]:
            text = f"{plural(seen['duplicates'], 'problem')} of {split} also in train"
            found.append(_finding("leakage", text, seen))
        if seen["near_duplicates"]:
            text = f"{plural(seen['near_duplicates'], 'problem')} of {split} nearly the same as one in train"
            found.append(_finding("near-leakage", text, seen))
    same = document["splits"]["train"]["duplicates"]
    if same:
        text = f"{plural(same, 'problem')} of {document['splits']['train']['problems']} in train are duplicates"
        found.append(_finding("duplicates", text, document["splits"]["train"]))
    if too_long is not None and too_long > 0.05:
        text = (
            f"{100 * too_long:.0f}% of the task's own answers are longer than max_completion_length = "
            f"{spec.max_completion_length}"
        )
        found.append(Finding(id="answers-cut", severity="warning", summary=text, evidence={"share": too_long}))
    return found


def _finding(name: str, text: str, seen: Mapping[str, Any]) -> Finding:
    one = seen["examples"][0]
    return Finding(
        id=name, severity="warning", summary=f"{text} (e.g. {one['id']} and {one['other']})",
        evidence={"duplicates": seen["duplicates"], "near_duplicates": seen["near_duplicates"]},
    )  # fmt: skip


def _lengths(values: Sequence[int]) -> dict[str, int] | None:
    found = lengths(values)
    return None if found is None else asdict(found)


def _shown(overlaps: Sequence[Overlap]) -> list[dict[str, object]]:
    return [{"id": one.one, "other": one.other, "likeness": round(one.likeness, 3)} for one in overlaps[:SHOWN]]


def absent(spec: ModelSpec) -> str | None:
    """Why the model is not to be tried here; None where it is at hand, built here, or a path that loading judges."""
    from core.models.catalogue import local_folder

    path = Path(os.path.expanduser(spec.source))
    named = spec.source.startswith((".", "/", "~", "builtin:")) or path.exists()
    if named or local_folder(spec.source, spec.revision) is not None:
        return None
    return f"{spec.source} is not on this machine; choose another --profile, or give model.source=FOLDER"


def tokenizer_of(spec: ModelSpec) -> Any | None:
    """The model's tokenizer; None where it is not at hand, or cannot be read."""
    from core.models.catalogue import local_folder

    folder = local_folder(spec.source, spec.revision)
    if folder is None:
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=spec.trust_remote_code)
    except (OSError, ValueError, KeyError):
        return None  # lengths are then counted in characters, and the report says so
