"""Counts taken from the log of P30: data only.

Origin: `logs/training_p30.log` of the public repository beita6969/colab-grpo (MIT), the run that document 000 analyses:
570 scored samples of Qwen2.5-7B-Instruct, 380 on math and 190 on qa problems; no code problem was ever drawn.
A row counts how many samples were given each level of `LEVELS`; the 33 samples whose workflow failed to run count as
0, as they did in training.

What is left out of the patterns, though it is in the domains' totals: text that the seed's parser took and that is no
workflow of the grammar (a `DSL:` prefix, a tag, a possessive s: 8 samples), and patterns seen once.

What is rewritten: the log's `Revise *`. The seed's clean-up stripped the digits off the end of a line (`Revise * 3`),
and its parser took a star without a number for three times; the log shows the code that ran, with three calls of Revise
in each of the 52 samples. They stand here under the workflow that ran.

In the same log `Review ? Revise : done` was run as `Review -> Revise`, always both. The table keeps what was written.
"""

from __future__ import annotations

from collections.abc import Mapping

LEVELS = (0.0, 0.2, 0.4, 0.7, 1.0)
Counts = tuple[int, int, int, int, int]  # how many samples were given each of LEVELS

VALID: Mapping[str, Counts] = {
    "math": (26, 67, 7, 0, 112),
    "qa": (49, 0, 0, 16, 49),
}
FALLBACK: Mapping[str, Counts] = {
    "math": (4, 78, 28, 0, 58),
    "qa": (35, 1, 2, 10, 28),
}
PATTERNS: Mapping[str, Mapping[str, Counts]] = {
    "math": {
        "Programmer -> Custom -> Review ? Revise : done": (16, 20, 2, 0, 33),
        "Programmer -> Custom -> Review -> (Revise) * 3": (6, 20, 1, 0, 21),
        "Programmer -> Custom": (0, 7, 2, 0, 19),
        "Custom -> Programmer -> Review ? Revise : done": (0, 10, 2, 0, 12),
        "Custom -> Programmer -> Custom -> Review ? Revise : done": (4, 3, 0, 0, 6),
        "Programmer": (0, 0, 0, 0, 6),
        "Custom -> Programmer -> Review -> (Revise) * 3": (0, 1, 0, 0, 3),
        "Programmer -> Review ? Revise : done": (0, 0, 0, 0, 3),
        "Review ? Revise : done": (0, 3, 0, 0, 0),
        "Custom -> Programmer -> Custom": (0, 0, 0, 0, 2),
    },
    "qa": {
        "Custom -> Review ? Revise : done": (47, 0, 0, 16, 49),
        "Custom -> Programmer -> Review ? Revise : done": (2, 0, 0, 0, 0),
    },
}
