"""What the check says at its end: the table, the page `docs/gpu.md`, the JSON beside it, and the record of a device."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.gpu_check.parts import Done

SCHEMA = 1
SHOWN = 12  # digits of a commit
HEAD = ("part", "result", "figure", "seconds", "limit")


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The parts that were run, on what. `device` is empty in a rehearsal."""

    done: Sequence[Done]
    device: Mapping[str, Any]
    versions: Mapping[str, str | None]
    git: Mapping[str, Any]
    rehearsed: bool
    whole: bool  # no part was left out

    @property
    def failed(self) -> bool:
        """Whether a part failed."""
        return any(one.outcome.status == "FAIL" for one in self.done)

    @property
    def verifies(self) -> bool:
        """Whether this verifies a kind of device: nothing failed, and all that is needed was run and passed."""
        passed = all(one.outcome.status == "PASS" for one in self.done if one.part.needed)
        return self.whole and passed and not self.failed and not self.rehearsed

    @property
    def commit(self) -> str:
        """The commit, and whether files differ from it."""
        commit = str(self.git.get("commit") or "unknown")[:SHOWN]
        return f"{commit} with changes" if self.git.get("dirty") else commit

    def result(self, one: Done) -> str:
        """PASS, FAIL or SKIP; what a rehearsal goes through is never called passed."""
        return "REHEARSED" if self.rehearsed and one.outcome.status == "PASS" else one.outcome.status

    def rows(self) -> list[tuple[str, ...]]:
        """The table."""
        return [
            (
                one.part.title,
                self.result(one),
                one.outcome.figure,
                f"{one.seconds:.0f}",
                f"{one.part.limit(rehearsed=self.rehearsed):.0f}",
            )
            for one in self.done
        ]

    def verdict(self) -> str:
        """One line on the whole."""
        seconds = sum(one.seconds for one in self.done)
        failures = [one.part.name for one in self.done if one.outcome.status == "FAIL"]
        if self.rehearsed:
            end = f"failed: {', '.join(failures)}" if failures else "every part ran to its end"
            return f"REHEARSED on a CPU in {seconds:.0f} s, which verifies nothing of CUDA; {end}"
        if failures:
            return f"FAILED on {self.device['name']} in {seconds:.0f} s: {', '.join(failures)}"
        if self.verifies:
            skipped = [one.part.name for one in self.done if one.outcome.status == "SKIP"]
            rest = f"; not measured: {', '.join(skipped)}" if skipped else ""
            return f"PASSED on {self.device['name']} in {seconds:.0f} s{rest}"
        return f"nothing failed on {self.device['name']} in {seconds:.0f} s, but not every part was run: not verified"

    def record(self) -> dict[str, Any]:
        """What verifies this kind of device (grpoctl.resources.verified)."""
        device = {key: self.device[key] for key in ("name", "capability", "driver", "cuda")}
        return {**device, "torch": self.versions.get("torch"), "date": _today(), "commit": self.commit}

    def document(self) -> dict[str, Any]:
        """The JSON."""
        parts = [
            {
                **{key: value for key, value in asdict(one.part).items() if key != "seconds"},
                "result": self.result(one),
                "figure": one.outcome.figure,
                "seconds": round(one.seconds, 1),
                "limit": one.part.limit(rehearsed=self.rehearsed),
                "details": dict(one.outcome.details),
            }
            for one in self.done
        ]
        return {
            "schema": SCHEMA,
            "what": "gpu-check",
            "rehearsed": self.rehearsed,
            "verified": self.verifies,
            "date": _today(),
            "commit": self.commit,
            "device": dict(self.device) or None,
            "versions": dict(self.versions),
            "parts": parts,
        }

    def page(self) -> str:
        """The page, in markdown."""
        title = "# A rehearsal of `make gpu` on a CPU" if self.rehearsed else f"# `make gpu` on {self.device['name']}"
        about = "" if self.rehearsed else (
            f"{self.device['name']}, compute capability {self.device['capability']}, {self.device['memory_gib']} GiB; "
            f"driver {self.device['driver'] or 'unknown'}, CUDA {self.device['cuda']}; "
        )  # fmt: skip
        known = ", ".join(f"{name} {version or 'not installed'}" for name, version in self.versions.items())
        lines = [title, "", f"{_today()}, commit {self.commit}. {about}{known}.", "", f"**{self.verdict()}.**", ""]
        lines += [_cells(HEAD), "|" + "---|" * len(HEAD), *(_cells(row) for row in self.rows()), ""]
        lines += ["Written by `make gpu`; all numbers are in the JSON beside this page."]
        return "\n".join(lines) + "\n"


def _cells(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())
