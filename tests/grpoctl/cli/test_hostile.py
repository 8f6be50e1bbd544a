"""What a hostile file, a mistyped URL or an odd shell gives the command line: nothing drives the terminal, no password
is shown, nothing ends in a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpoctl.runs.run_dir import Home
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl, Said
from tests.grpoctl.one_process import outputs

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = "\x1b]0;owned\x07\x1b[31mred\u202eliver\x9b31m\u200b"
TEXTS = {key: f"{key} {HOSTILE}" for key in ("title", "question", "source")}
SWEEP = {
    "experiment": "p31", "axes": {"stages.grpo.learning_rate": [1e-5, 1e-3]}, "seeds": [0],
    "budget": {"completions": 16, "generation_batch_size": 8},
}  # fmt: skip
URLS = (
    "http//u:PW77@host", "http:/u:PW77@host", "u:PW77@host", "postgresql+psycopg//u:PW77@host/db",
    "http//u:PW77@x9@host", "postgresql+psycopg://u:PW77@[::1/db", "nosuch://u:PW77@x9@host/db",
)  # fmt: skip


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A folder with an experiment and a sweep whose texts hold control characters."""
    for kind, more in (("experiments", {"extends": "p31"}), ("sweeps", SWEEP)):
        (tmp_path / kind).mkdir()
        name = f"evil-{kind}"
        document = {"name": name, **TEXTS, **more}
        (tmp_path / kind / f"{name}.yaml").write_text(json.dumps(document), encoding="utf-8")  # YAML, too
    return tmp_path


@pytest.mark.parametrize(
    "argv",
    [
        ["show", "evil-experiments"],
        ["show", "evil-experiments", "--json"],
        ["show", "evil-sweeps"],
        ["show", "evil-sweeps", "--json"],
        ["run", "evil-experiments", "--dry-run", "--profile", "tiny"],
        ["run", "evil-experiments", "--dry-run", "--profile", "tiny", "--json"],
        ["sweep", "evil-sweeps", "--dry-run", "--profile", "tiny"],
        ["check", "evil-experiments"],
        ["validate", "evil-experiments"],
        ["ls"],
        ["ls", "--json"],
        ["show", HOSTILE],
        ["run", HOSTILE],
        [HOSTILE],
    ],
    ids=repr,
)
def test_texts_of_specs_drive_no_terminal(grpoctl: Grpoctl, evil: Path, argv: list[str]) -> None:
    said = grpoctl(*argv)
    assert said.out + said.err
    assert [char for char in said.out + said.err if not char.isprintable() and char not in "\n"] == []
    assert said.code == (2 if HOSTILE in argv else 0)
    if argv[:2] == ["show", "evil-experiments"]:
        shown = said.document["spec"]["title"] if "--json" in argv else said.out
        assert TEXTS["title"] == shown if "--json" in argv else "title \\x1b]0;owned\\x07\\x1b[31mred\\u202e" in shown


def test_what_a_reward_prints_drives_no_terminal(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded()
    run.log.write_text(f"INFO printed by rewards: {HOSTILE}\n\tindented 数\n", encoding="utf-8")
    said = grpoctl("logs", run.id)
    assert said.out.splitlines()[1] == "\tindented 数"
    assert "rewards: \\x1b]0;owned\\x07\\x1b[31mred\\u202eliver\\x9b31m\\u200b" in said.out


@pytest.mark.parametrize("url", URLS)
def test_no_command_shows_the_password_of_a_url(
    grpoctl: Grpoctl, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))  # doctor would read every model in the tester's cache
    said: list[Said] = [
        grpoctl("sweep", "lr-study", "--profile", "tiny", "--storage", url),
        grpoctl("diagnose", f"mlflow:{url}#run"),
        grpoctl("diagnose", url),
        grpoctl("show", url),
    ]
    assert {one.code for one in said} <= {2, 3}
    monkeypatch.setenv("GRPOCTL_STORAGE", url)
    said.append(grpoctl("sweep", "lr-study", "--profile", "tiny", "--detach"))
    monkeypatch.delenv("GRPOCTL_STORAGE")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
    said += [grpoctl("doctor"), grpoctl("sync"), grpoctl("ui", "--dry-run"), grpoctl("diagnose", "mlflow:run")]
    for one in said:
        assert [word for word in ("PW77", "x9@") if word in one.out + one.err] == []
        assert "Traceback" not in one.err
    assert all(len(one.err.splitlines()) == 1 for one in said if one.err)
    assert list(tmp_path.rglob("*")) == []  # nothing was made for a URL that was taken for a folder


def test_a_missing_driver_says_what_to_install_and_leaves_nothing(grpoctl: Grpoctl, home: Home) -> None:
    said = grpoctl("sweep", "lr-study", "--profile", "tiny", "--storage", "mysql+pymysql://me:geheim@host/db")
    assert said.code == 2
    assert "pip install 'pymysql'" in said.err
    assert "geheim" not in said.err
    assert not home.path.exists()


def test_a_traceback_shows_no_password(tmp_path: Path) -> None:
    done = _shell(f"grpoctl --debug diagnose 'mlflow:{URLS[1]}#run'", tmp_path)
    assert "Traceback" in done.stderr
    assert "PW77" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["~nosuchuser/x", "x" * 300, f"{'x' * 300}-t0001-s0", "/dev/null/x", "\udcff"])
@pytest.mark.parametrize("command", ["show", "logs", "stop", "diagnose", "sample", "eval", "promote", "compare"])
def test_a_name_that_can_be_no_path_is_not_found(grpoctl: Grpoctl, command: str, name: str) -> None:
    more = {"sample": ["hi"], "promote": ["--as", "y"], "compare": ["p31"]}.get(command, [])
    said = grpoctl(command, name, *more)
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert "Errno" not in said.err


def test_a_run_without_a_result_is_told_in_words(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(steps=3, ended="RUNNING", seed=2)
    lines = grpoctl("show", run.id).out.splitlines()
    assert [word for word in ("INTERRUPTED", "p31@", "seed 2", "step 3", "process died") if word not in lines[0]] == []
    assert "grpoctl run p31 -p tiny --seed 2 --resume" in lines[1]
    assert str(run.path) in lines[2]
    assert any(line.split() == ["reward/mean", "0.300"] for line in lines)
    assert "{" not in "".join(lines)


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("diagnose - <&-", 2, "standard input"),
        ("sample builtin:tiny - <&-", 2, "standard input"),
        ("diagnose - 0>/dev/null", 3, "standard input"),
        ("sample builtin:tiny - 0>/dev/null", 3, "standard input"),
        ("ls >/dev/full", 3, "standard output"),
        ("nosuch 2>/dev/full", 2, ""),
        ("ls <&- >&- 2>&-", 0, ""),
    ],
)
def test_streams_that_are_closed_or_full(tmp_path: Path, command: str, code: int, said: str) -> None:
    done = _shell(f"grpoctl {command}", tmp_path)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "Errno" not in done.stderr
    assert len(done.stderr.splitlines()) == bool(said)


@pytest.mark.process
def test_the_c_locale_shows_everything(recorded: Recorded, home: Home, tmp_path: Path) -> None:
    run = recorded()
    commands = (f"show {run.id}", "ls", "compare p31 p31", "show p31", f"diagnose {run.id}", f"show {run.id} --json")
    words, *others = outputs(
        commands, tmp_path, GRPOCTL_HOME=str(home.path), LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    assert all(shown.isascii() for shown in (words, *others))
    assert "0.600 ? 0.020" in words


def _shell(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a shell makes of the command line, in the folder."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GRPOCTL_", "MLFLOW_", "COLUMNS"))}
    program = f"{sys.executable} -P -m grpoctl.app"
    return subprocess.run(
        ["/bin/sh", "-c", command.replace("grpoctl", program, 1)],
        cwd=folder,
        env={**kept, "GRPOCTL_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_a_mistyped_store_has_no_pages_and_no_command(grpoctl: Grpoctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http//u:PW@host")
    said = grpoctl("ui", "--dry-run")
    assert (said.code, said.out) == (3, "")
    assert "MLFLOW_TRACKING_URI" in said.err
    assert "PW" not in said.err
