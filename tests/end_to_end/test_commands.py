"""Every command on real runs: one JSON document where it is asked for, tables where it is not, pipes and terminals."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.end_to_end.cli import GRPOCTL, Cli, eventually, rows_of, step_of
from tests.end_to_end.scenarios import PAIR, FullRun, Pair

pytestmark = pytest.mark.process


def test_capitals_and_several_seeds(pair: Pair) -> None:
    for name, done in pair.done.items():  # P30-sound was typed with a capital
        assert done.returncode == 0, done.stderr
        assert done.document.keys() == {"schema", "runs"}
        assert [(run["experiment"], run["seed"], run["status"]) for run in done.document["runs"]] == [
            (name, 0, "COMPLETED"),
            (name, 1, "COMPLETED"),
        ]
        texts = [(Path(run["run_dir"]) / "samples.jsonl").read_text() for run in done.document["runs"]]
        assert texts[0] != texts[1]


def test_compare_tells_what_changed_and_what_came_of_it(pair: Pair) -> None:
    document = pair.cli.run("compare", "p30-sound", "p31", "--json").document
    assert document.keys() >= {"schema", "changed", "metrics", "runs"}
    assert document["schema"] == 1
    assert document["changed"] == {
        "stages.grpo.num_generations": [2, 8],
        "stages.grpo.prompts_per_step": [3, 2],
    }
    ran = {name: [run["run_id"] for run in done.document["runs"]] for name, done in pair.done.items()}
    assert document["runs"] == {"a": ran["p30-sound"], "b": ran["p31"]}
    reward = document["metrics"]["eval/reward"]
    for side, name in (("a", "p30-sound"), ("b", "p31")):
        finals = [run["final"]["eval/reward"] for run in pair.done[name].document["runs"]]
        assert reward[side]["n"] == 2
        assert reward[side]["mean"] == pytest.approx(sum(finals) / 2)
        low, high = reward[side]["interval"]
        assert low < reward[side]["mean"] < high
    assert document["metrics"]["completions"]["a"]["mean"] == 4 * 2 * 3
    assert document["metrics"]["completions"]["b"]["mean"] == 4 * 8 * 2


def test_compare_in_words(pair: Pair) -> None:
    said = pair.cli.run("compare", "P30-sound", "p31").stdout
    assert said.startswith("Verdict")
    assert said.index("num_generations") < said.index("Means over seeds")  # changed settings before numbers
    assert "2 settings differ" in said
    assert "unequal completions" in said


def test_compare_does_not_mix_profiles_or_invent_runs(pair: Pair) -> None:
    for names in (("p31", "p30"), ("p31", "nothing")):
        done = pair.cli.run("compare", *names, "--json")
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


JSON_COMMANDS: list[tuple[tuple[str, ...], set[str]]] = [
    (("ls",), {"home", "experiments", "sweeps", "runs"}),
    (("show", "p31"), {"experiment", "revision", "spec", "changed", "runs"}),
    (("show", "p31", "--profile", "tiny"), {"experiment", "revision", "spec", "changed", "runs"}),
    (("show", "p31", "--samples"), {"run_id", "tables"}),
    (("show", "p31", "--step", "2", "--worst", "3"), {"run_id", "step", "samples"}),
    (("show", "p31-tiny-s0"), {"run_id", "status", "final", "findings"}),
    (("validate",), {"ok", "specs"}),
    (("validate", "p31"), {"ok", "specs"}),
    (("check", "p31", "method=dapo"), {"experiment", "stages", "inert", "warnings"}),
    (("doctor",), {"ok", "checks", "cuda"}),
    (("sync",), {"store", "runs"}),
    (("run", "p31", "--dry-run"), {"dry_run", "experiment", "spec", "spec_sha", "runs"}),
]


@pytest.mark.parametrize(
    ("argv", "keys"), JSON_COMMANDS, ids=lambda part: " ".join(part) if isinstance(part, tuple) else ""
)
def test_json_is_one_document_and_nothing_else(p31: FullRun, argv: tuple[str, ...], keys: set[str]) -> None:
    runs = {run.id for run in p31.cli.home.runs()}
    done = p31.cli.run(*argv, "--json")
    assert done.returncode == 0, done.stderr
    assert done.document["schema"] == 1
    assert done.document.keys() >= keys
    assert done.stderr == ""
    assert {run.id for run in p31.cli.home.runs()} == runs


def test_the_worst_of_a_step_come_first(p31: FullRun) -> None:
    samples = p31.cli.run("show", "p31", "--step", "2", "--worst", "3", "--json").document["samples"]
    rewards = sorted(row["reward"] for row in rows_of(p31.dir.samples) if row["step"] == 2)
    assert [sample["reward"] for sample in samples] == rewards[:3]
    assert all(sample.keys() >= {"prompt", "text", "reward", "advantage"} for sample in samples)
    assert all(isinstance(sample["prompt"], str) for sample in samples)


def test_the_samples_in_tables_count_what_was_written(p31: FullRun) -> None:
    samples = rows_of(p31.dir.samples)
    outputs = p31.cli.run("show", "p31", "--samples", "--json").document["tables"][0]
    counted = {row[0]: row[1] for row in outputs["rows"]}
    assert int(counted["outputs"]) == len(samples)
    assert int(counted["valid"]) == sum(sample["valid"] for sample in samples)
    assert "Top 10 patterns" in p31.cli.run("show", "p31", "--samples").stdout


def test_a_dry_run_writes_nothing(cli: Cli) -> None:
    done = cli.run("run", "p31", "--dry-run", "--seeds", "3,4", "--json", "beta=0.01")
    document = done.document
    assert [run["seed"] for run in document["runs"]] == [3, 4]
    assert document["spec"]["stages"]["grpo"]["beta"] == 0.01
    assert not cli.home.path.exists()
    assert cli.run("run", "p31", "--dry-run", "--json").document["spec_sha"] != document["spec_sha"]
    upper, lower = (cli.run("run", name, "--dry-run").stdout.splitlines() for name in ("P31", "p31"))
    assert upper[:-1] == lower[:-1]
    assert (upper[-1].split()[-1], lower[-1].split()[-1]) == ("P31", "p31")  # the command as it was typed


@pytest.mark.parametrize("arguments", [["ls"], ["ls", "--json"], ["show", "p31"], ["--help"]], ids=" ".join)
def test_a_reader_that_leaves_is_no_error(p31: FullRun, arguments: list[str]) -> None:
    line = f'"$0" {" ".join(arguments)} | head -n 1; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", line, str(GRPOCTL)], env=p31.cli.env, cwd=p31.cli.folder, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("redirection", [">&-", "> /dev/full"])
def test_output_that_cannot_be_written_is_no_traceback(cli: Cli, redirection: str) -> None:
    cli.folder.mkdir()
    done = subprocess.run(
        ["bash", "-c", f'"$0" ls --json {redirection}', str(GRPOCTL)], env=cli.env, cwd=cli.folder, capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == (0 if redirection == ">&-" else 3)
    assert len(done.stderr.splitlines()) == (0 if redirection == ">&-" else 1)


class Terminal:
    """A terminal of 80 columns, and everything that was written to it."""

    def __init__(self) -> None:
        self._ours, self._theirs = pty.openpty()
        termios.tcsetwinsize(self._theirs, (24, 80))
        self.path = Path(os.ttyname(self._theirs))
        self.before = termios.tcgetattr(self._theirs)
        self._seen = bytearray()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._ours, 4096):
                self._seen += piece
        except OSError:  # the terminal was closed
            return

    @property
    def text(self) -> str:
        """What was written so far, control sequences and all."""
        return self._seen.decode(errors="replace")

    @property
    def settings(self) -> list[Any]:
        """The terminal's modes as they are now."""
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        """Hang up."""
        os.close(self._theirs)
        self._reader.join(10)
        os.close(self._ours)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


def in_a_terminal(cli: Cli) -> Cli:
    """The user with a colour terminal."""
    return cli.with_environment(TERM="xterm-256color")


def is_left_clean(terminal: Terminal) -> bool:
    """The cursor is shown again, as often as it was hidden, and the modes are what they were."""
    hidden, shown = terminal.text.count("\x1b[?25l"), terminal.text.count("\x1b[?25h")
    return hidden <= shown and terminal.settings == terminal.before


def test_a_terminal_shows_a_bar_and_is_left_clean(lone: Cli, terminal: Terminal) -> None:
    process = in_a_terminal(lone).start("run", "p31", *PAIR, tty=terminal.path)
    assert process.wait().returncode == 0
    eventually(lambda: str(lone.only_run.path) in terminal.text.replace("\r\n", ""), "the verdict was read", 10)
    assert "\x1b[?25l" in terminal.text
    assert is_left_clean(terminal)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.text)
    bars = [line for line in re.split(r"[\r\n]+", plain) if re.search(r"━.* \d+/4 ", line)]
    assert re.search(r"4/4 .*reward +\d\.\d+ eval +\d\.\d+ kl .*valid +\d+% ok", bars[-1])
    assert max(map(len, bars)) <= 80
    assert plain.count("Reached") == 1


def test_what_libraries_warn_of_is_in_the_log_and_not_on_the_terminal(lone: Cli, terminal: Terminal) -> None:
    """peft warns of an adapter on tied embeddings, transformers of caching beside gradient checkpointing."""
    told = ("model.lora.target_modules=[q_proj,lm_head]", "model.gradient_checkpointing=true")
    process = in_a_terminal(lone).start("run", "p31", *PAIR, *told, tty=terminal.path)
    assert process.wait().returncode == 0
    eventually(lambda: "Files" in terminal.text, "the verdict was read", 10)
    assert "tie_word_embeddings" in lone.only_run.log.read_text()
    assert "tie_word_embeddings" not in terminal.text
    assert "Warning" not in terminal.text


def test_ctrl_c_in_a_terminal_gives_it_back(lone: Cli, terminal: Terminal) -> None:
    process = in_a_terminal(lone).start("run", "p31", tty=terminal.path)
    eventually(lambda: step_of(lone.first_run) >= 2, "the run has steps")
    process.send(signal.SIGINT)
    assert process.wait().returncode == 130
    eventually(lambda: "INTERRUPTED" in terminal.text, "the verdict was read", 10)
    assert is_left_clean(terminal)
    assert json.loads(lone.only_run.result.read_text())["status"] == "INTERRUPTED"


def test_a_pipe_gets_plain_lines(p31: FullRun, lone: Cli) -> None:
    done = lone.run("run", "p31", *PAIR)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + p31.done.stderr
    steps = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == ["0/4", "1/4", "2/4", "3/4", "4/4"]
    assert [line for line in done.stderr.splitlines() if not line.startswith("note: MLflow")] == []
