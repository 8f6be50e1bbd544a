"""Writes docs/trl.md: how a spec and TRL's GRPOConfig go together, from the tables of core.config.trl.

python docs/generate_trl.py
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core.config.trl.fields import INHERITED_FIELDS, KEYS, OWN_FIELDS, STAGE, VERL, VERL_VERSION, TrlField
from core.config.trl.values import words

PAGE = Path(__file__).resolve().parent / "trl.md"
HEAD = """\
# Specs and TRL

<!-- Written by `python docs/generate_trl.py` from core/config/trl; change it there. -->

`grpoctl export p31 --to trl` writes a script that trains p31 with TRL alone, `grpoctl import trl config.yaml` makes
a spec of a GRPOConfig, and a spec with `trainer: {kind: trl}` is trained by TRL's GRPOTrainer: see
[trainers.md](trainers.md#trl).

The tables are of TRL 1.16 and transformers 5; a test compares them with the installed classes. **mapped**: set by a
key of the spec. **passed**: `trainer.args.NAME` passes it on by name; values of another kind than its note's are
refused before anything starts. **refused**: grpoctl does it, or no spec has it.
`GRPO` stands for `stages.grpo`.
"""


def page() -> str:
    """The whole of docs/trl.md."""
    ours = ["| key | is | TRL's field | note |", "|---|---|---|---|"]
    for row in KEYS.values():
        fields = ", ".join(f"`{name}`" for name in row.fields)
        ours.append(f"| `{_short(row.key)}` | {row.how} | {fields} | {_short(row.note)} |")
    theirs = ["| key | verl |", "|---|---|"]
    theirs += [f"| `{_short(key)}` | `{names[0]}` |" for key, names in VERL.items()]
    return "\n".join(
        [
            HEAD,
            "## Every key of a spec\n",
            "A key that is refused may stand at its default. What stands below a key goes with it. **grpoctl**:",
            "grpoctl does it itself, around TRL's trainer.\n",
            *ours,
            "",
            f"## GRPOConfig's own fields ({len(OWN_FIELDS)})\n",
            *_table(OWN_FIELDS),
            "",
            f"## TrainingArguments' fields ({len(INHERITED_FIELDS)})\n",
            *_table(INHERITED_FIELDS),
            "",
            "## verl's names\n",
            "What `grpoctl export --to verl` writes, and what a hint for an unknown key goes by. Each name was",
            f"compared with `ppo_trainer.yaml` of verl {VERL_VERSION} (commit b178a3cd). Beside these",
            "stands what verl asks for and no spec says: `rollout.name`, micro-batches, GPUs, `trainer.logger`.\n",
            *theirs,
            "",
        ]
    )


def _table(fields: Mapping[str, TrlField]) -> list[str]:
    rows = ["| field | is | key | note |", "|---|---|---|---|"]
    for field in fields.values():
        key = f"`{_short(field.key)}`" if field.key else f"`trainer.args.{field.name}`" if field.how == "passed" else ""
        takes = " or ".join(words(field.name)) if field.how == "passed" else ""
        note = "; ".join(filter(None, [takes, field.note]))
        rows.append(f"| `{field.name}` | {field.how} | {key} | {_short(note)} |")
    return rows


def _short(text: str) -> str:
    return text.replace(STAGE, "GRPO")


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
