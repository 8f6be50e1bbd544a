"""Our GRPO step beside that of trl 1.16's GRPOTrainer: same weights, adapter, prompts, optimiser, loss, threads.

    python benchmarks/against_trl.py                        both prompt lengths, beta 0 and 0.01, fixed and natural ends
    python benchmarks/against_trl.py --prompt-tokens 57 --beta 0 --length fixed --theirs 'bf16 weights' --ours bfloat16
    python benchmarks/against_trl.py --theirs none --without shared_prompts --without fused_head     ours alone
    python benchmarks/against_trl.py --quick --json OUT     a tiny random model, a minute

First the loss and gradient of one frozen batch are compared in fp32, ours with TRL's and with our plain path; where
they differ nothing is timed and the exit code is 1. Then both tools step in turn: one of TRL's, one of each of ours.
Needs trl (the dev extra). What is timed of ours is what `grpoctl run` does, without evaluations and checkpoints.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pydantic import ValidationError

from benchmarks.trl_step.equality import Equality, equality
from benchmarks.trl_step.facts import facts
from benchmarks.trl_step.peak import both_peaks
from benchmarks.trl_step.report import memory_lines, table
from benchmarks.trl_step.rows import Headline, Run, headline, taken_in_turn
from benchmarks.trl_step.setting import Own, Setting, questions, spec_of, write_questions
from benchmarks.trl_step.theirs import PRECISIONS
from benchmarks.trl_step.weights import TINY_LLAMA, folder_of, random_model, tokenizer_of
from core.policies.savings import Savings

SOURCE = "HuggingFaceTB/SmolLM2-135M-Instruct"
QUICK = Setting(prompt_tokens=120, new_tokens=8, groups=2, size=4, threads=1)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 1 where the two tools do not take the same step."""
    asked = _asked(argv)
    with tempfile.TemporaryDirectory() as name:
        model = random_model(TINY_LLAMA, Path(name)) if asked.quick else folder_of(asked.source)
        settings = list(_settings(asked))
        equalities = list(_equalities(settings, model))
        for same in equalities:
            print(same.line(), flush=True)
        if not all(same.holds for same in equalities):
            print("error: the two tools do not take the same step, so that their times say nothing", file=sys.stderr)
            return 1
        found = Found(equalities=equalities)
        for setting in settings:
            own = list(_runs(asked, setting, model))
            found.runs.extend(own)
            best = headline(own)
            found.headlines.extend([] if best is None else [best])
            found.write(asked)  # after each setting: all of them take hours
            if best is not None and best.setting.fixed and not asked.no_memory:
                found.peaks.extend(_peaks(best, setting, model))
                found.write(asked)
    print("\n".join([*table(found.runs, found.headlines), *memory_lines(found.peaks)]))
    return 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What was measured so far."""

    equalities: Sequence[Equality]
    runs: list[Run] = field(default_factory=list)
    headlines: list[Headline] = field(default_factory=list)
    peaks: list[Any] = field(default_factory=list)

    def write(self, asked: argparse.Namespace) -> None:
        """All of it, where a file was asked for."""
        if asked.json is None:
            return
        whole = {
            "schema": 1,
            "what": "against_trl",
            **facts(),
            "model": "a tiny random llama" if asked.quick else asked.source,
            "equality": [{**asdict(same), "holds": same.holds} for same in self.equalities],
            "runs": [run.as_json() for run in self.runs],
            "headlines": [one.as_json() for one in self.headlines],
            "memory": self.peaks,
        }
        asked.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def _asked(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options; what is none is refused before the first hour is spent."""
    parser = _parser()
    asked = parser.parse_args(argv)
    try:
        Savings().without(*asked.without)
    except ValueError as error:
        parser.error(str(error))
    for dtype in asked.ours:
        try:
            spec_of(Setting(), Own(dtype=dtype), Path(), Path())
        except ValidationError:
            parser.error(f"got --ours {dtype}, which is no model.dtype, nor autocast")
    return asked


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=SOURCE, help="model.source")
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[57, 165])
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--beta", type=float, nargs="+", default=[0.0, 0.01])
    parser.add_argument("--length", choices=("fixed", "natural"), nargs="+", default=["fixed", "natural"])
    parser.add_argument("--theirs", nargs="+", choices=(*PRECISIONS, "none"), default=list(PRECISIONS))
    parser.add_argument("--ours", nargs="+", default=["float32", "bfloat16"], help="model.dtype, or autocast")
    parser.add_argument("--without", nargs="+", action="extend", default=[], metavar="NAME", help="a saving, measured")
    parser.add_argument("--steps", type=int, default=5, help="measured steps, after two that are left out")
    parser.add_argument("--micro-batches", type=int, default=1, help="of both tools, where a step's rows do not fit")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-memory", action="store_true", help="without the peaks, each of a process of its own")
    parser.add_argument("--quick", action="store_true", help="a tiny random model: does it run, are the steps equal?")
    parser.add_argument("--json", type=Path, default=None, help="everything, all samples included")
    return parser


def _settings(asked: argparse.Namespace) -> Iterator[Setting]:
    if asked.quick:
        yield from (replace(QUICK, fixed=True), replace(QUICK, fixed=False, beta=0.01))
        return
    for tokens, beta, length in product(asked.prompt_tokens, asked.beta, asked.length):
        yield Setting(
            prompt_tokens=tokens,
            new_tokens=asked.new_tokens,
            beta=beta,
            fixed=length == "fixed",
            micro_batches=asked.micro_batches,
            threads=asked.threads,
        )


def _equalities(settings: Sequence[Setting], model: Path) -> Iterator[Equality]:
    """Of every prompt length and beta once; no completion's length is fixed in them."""
    for setting in dict.fromkeys(replace(setting, fixed=False) for setting in settings):
        with tempfile.TemporaryDirectory() as folder:
            data = write_questions(questions(tokenizer_of(model), setting), Path(folder))
            yield equality(setting, model, data)


def _runs(asked: argparse.Namespace, setting: Setting, model: Path) -> Iterator[Run]:
    """One for each of TRL's precisions, all of ours in each; a saving that is off is measured beside itself on."""
    owns = [Own(dtype=dtype) for dtype in asked.ours]
    owns += [Own(dtype=dtype, without=(name,)) for dtype in asked.ours for name in asked.without]
    steps = min(asked.steps, 2) if asked.quick else asked.steps
    theirs = [None] if "none" in asked.theirs else list(asked.theirs)
    for name in theirs[:2] if asked.quick else theirs:
        run = taken_in_turn(setting, name, owns, model, steps)
        print(_progress(run), file=sys.stderr, flush=True)
        yield run


def _progress(run: Run) -> str:
    both = ([] if run.theirs is None else [run.theirs]) + list(run.ours)
    said = ", ".join(f"{one.tool} {one.how} {one.seconds:.2f} s" for one in both)
    setting = run.setting
    return f"{setting.prompt_tokens} tokens, beta {setting.beta:g}, {'fixed' if setting.fixed else 'natural'}: {said}"


def _peaks(best: Headline, setting: Setting, model: Path) -> list[dict[str, Any]]:
    """Of each tool at its fastest; nothing where a process died, most likely of memory: times are not lost with it."""
    try:
        return [both_peaks(setting, model, theirs=best.theirs.how, ours=best.ours.how)]
    except CalledProcessError as error:
        print(f"peak memory was not measured: a process ended with {error.returncode}", file=sys.stderr)
        return []


if __name__ == "__main__":
    sys.exit(main())
