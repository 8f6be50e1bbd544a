"""Whatever is wrong with what was typed: exit 2, one line on standard error that names it, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.grpoctl.cli.conftest import Grpoctl

FILES = {
    "twice.yaml": "name: twice\nextends: p31\ntitle: one\ntitle: two\n",
    "chicken.yaml": "name: chicken\nextends: egg\n",
    "egg.yaml": "name: egg\nextends: chicken\n",
    "infinite.yaml": "name: infinite\nextends: p31\nstages:\n  grpo:\n    learning_rate: .inf\n",
    "alien.yaml": "name: alien\nextends: p31\nkl_loss_coef: 0.1\n",
    "orphan.yaml": "name: orphan\nextends: p13\n",
    "Capital.yaml": "name: Capital\nextends: p31\n",
    "other.yaml": "name: another\nextends: p31\n",
    "empty.yaml": "",
    "list.yaml": "- name: list\n",
    "tagged.yaml": "name: !!python/object:os.system tagged\n",
    "latin.yaml": "name: latin\ntitle: caf\xe9\n",  # written in Latin-1 below
}

# what is typed -> what its one line must name
BAD: list[tuple[list[str], list[str]]] = [
    (["run"], ["NAME"]),
    (["run", "p31", "--bogus"], ["--bogus"]),
    (["run", "p31", "--seed", "x"], ["--seed", "integer"]),
    (["run", "p31", "--seed", "-1"], ["--seed", "0"]),
    (["run", "p31", "--seeds", "0,a"], ["--seeds", "0,a", "0,1,2"]),
    (["run", "p31", "--seeds", ""], ["--seeds", "0,1,2"]),
    (["run", "p31", "--seeds", "1,1"], ["--seeds", "once"]),
    (["run", "p31", "--seeds", "0,1", "--seed", "2"], ["--seed 2", "--seeds 0,1"]),
    (["run", "p31", "seed=3", "--seed", "2"], ["seed", "twice"]),
    (["frobnicate"], ["frobnicate"]),
    (["ls", "more"], ["more"]),
    (["run", "p13"], ["p13", "p31"]),
    (["run", ""], ["p31"]),
    (["run", "missing.yaml"], ["missing.yaml"]),
    (["run", "p31@2"], ["p31@2", "none"]),
    (["run", "p31@newest"], ["p31@newest", "p31@1"]),
    (["run", "p31", "--profile", "tyni"], ["tyni", "tiny"]),
    (["run", "p31", "learning_rate"], ["learning_rate", "key=value"]),
    (["run", "p31", "stages.grpo.num_generation=4"], ["num_generation", "stages.grpo.num_generations"]),
    (["run", "p31", "kl_loss_coef=0.1"], ["kl_loss_coef", "beta"]),
    (["run", "p31", "stages.grpo.num_generations=many"], ["many", "integer"]),
    (["run", "p31", "stages.grpo.learning_rate=nan"], ["learning_rate", "nan"]),
    (["run", "p31", "stages.grpo.learning_rate=.nan"], ["learning_rate", ".nan"]),
    (["run", "p31", "stages.grpo.learning_rate=-1"], ["learning_rate", "-1", ">= 0"]),
    (["run", "p31", "name=mine"], ["name"]),
    (["run", "twice"], ["twice.yaml", "line 4", "title", "line 3"]),
    (["run", "chicken"], ["chicken -> egg -> chicken"]),
    (["run", "infinite"], ["infinite.yaml", "line 5", "learning_rate", ".inf"]),
    (["run", "alien"], ["alien.yaml", "line 3", "kl_loss_coef", "beta"]),
    (["run", "orphan"], ["orphan.yaml", "line 2", "p13", "p31"]),
    (["run", "Capital"], ["Capital.yaml", "lower-case"]),
    (["run", "other"], ["another", "other.yaml"]),
    (["run", "empty"], ["empty.yaml", "name:"]),
    (["run", "experiments/list.yaml"], ["list.yaml", "mapping"]),
    (["run", "tagged"], ["tagged.yaml"]),
    (["run", "latin"], ["latin.yaml", "UTF-8"]),
    (["show", "nothing"], ["nothing", "grpoctl ls"]),
    (["show", "p31", "--samples"], ["p31"]),
    (["show", "p31", "--step", "0"], ["--step"]),
    (["compare", "p30", "p31"], ["p30", "grpoctl run p30"]),
    (["compare", "p30"], ["B"]),
    (["validate", "p13"], ["p13", "p31"]),
    (["validate", "alien"], ["alien.yaml", "beta"]),
    (["ui", "--port", "0"], ["--port"]),
]


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    folder = tmp_path / "experiments"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_bytes(text.encode("latin-1"))
    return folder


@pytest.mark.parametrize(("argv", "named"), BAD, ids=" ".join)
def test_one_line_that_names_it(grpoctl: Grpoctl, specs: Path, argv: list[str], named: list[str]) -> None:
    before = sorted(specs.parent.rglob("*"))
    said = grpoctl(*argv)
    assert (said.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert line.startswith("error: ")
    assert [word for word in named if word not in line] == []
    assert sorted(specs.parent.rglob("*")) == before


@pytest.mark.parametrize("argv", [["run", "p13", "--json"], ["compare", "p30", "p31", "--json"]], ids=" ".join)
def test_nothing_but_a_document_goes_to_standard_output(grpoctl: Grpoctl, argv: list[str]) -> None:
    said = grpoctl(*argv)
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)


def test_validate_names_every_bad_spec(grpoctl: Grpoctl, specs: Path) -> None:
    said = grpoctl("validate", "p31", "alien", "twice", "--json")
    assert said.code == 2
    assert [(entry["name"], entry["ok"]) for entry in said.document["specs"]] == [
        ("p31", True),
        ("alien", False),
        ("twice", False),
    ]
    assert (said.document["ok"], said.err) == (False, "")
    in_words = grpoctl("validate", "p31", "alien", "twice")
    assert (in_words.code, len(in_words.out.splitlines()), len(in_words.err.splitlines())) == (2, 1, 2)


def test_a_broken_spec_does_not_hide_the_others(grpoctl: Grpoctl, specs: Path) -> None:
    listed = {entry["name"]: entry["problem"] for entry in grpoctl("ls", "--json").document["experiments"]}
    assert listed["p31"] is None
    assert "title" in listed["twice"]


def test_debug_shows_the_traceback(grpoctl: Grpoctl, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.errors import NotFoundError
    from grpoctl.app import main

    monkeypatch.setattr("sys.argv", ["grpoctl", "--debug", "run", "p13"])
    monkeypatch.setenv("GRPOCTL_DEBUG", "")  # so that what --debug sets is taken back afterwards
    with pytest.raises(NotFoundError):
        main()


# what is typed -> what its one line must name
OF_WEIGHTS: list[tuple[list[str], list[str]]] = [
    (["eval", "tiny"], ["grpoctl eval tiny p31"]),
    (["eval", "tiny", "p13"], ["p13", "p31"]),
    (["eval", "tiny", "p31", "p30"], ["2 specs", "p31, p30"]),
    (["eval", "tiny", "p31", "--split", "half"], ["half", "eval, test, train"]),
    (["eval", "tiny", "p31", "--split", "test"], ["no test problems", "eval"]),
    (["eval", "tiny", "p31", "-p", "huge"], ["huge", "tiny"]),
    (["eval", "tiny", "p31", "--greedy", "--num-generations", "2"], ["--num-generations 2", "greedy"]),
    (["eval", "tiny", "p31", "--greedy", "--temperature", "0.5"], ["--greedy", "0.5"]),
    (["eval", "tiny", "p31", "--temperature", "-1"], ["--temperature"]),
    (["eval", "tiny", "p31", "--temperature", "inf"], ["--temperature"]),
    (["eval", "tiny", "p31", "--prompts", "0"], ["--prompts"]),
    (["eval", "tiny", "p31", "--samples", "no/such/file"], ["no folder", "such"]),
    (["eval", "tiny", "p31", "evaluation.slice_by=colour"], ["colour", "domain"]),
    (["eval", "tiny", "p31", "nonsense=1"], ["nonsense"]),
    (["eval", "tiny", "p31", "model.source=x"], ["model.source=x", "tiny"]),
    (["eval", "nobody"], ["no run and no model 'nobody'", "grpoctl ls"]),
    (["eval", "./nobody", "p31"], ["./nobody"]),
    (["eval", "nobody.gguf", "p31"], ["nobody.gguf"]),
    (["eval", ".", "p31"], ["neither a run nor a model", "config.json"]),
    (["sample", "tiny"], ["PROMPT"]),
    (["sample", "tiny", " "], ["empty"]),
    (["sample", "tiny", "\udcff"], ["UTF-8"]),
    (["sample", "tiny", "1+1=", "-n", "0"], ["-n"]),
    (["sample", "tiny", "1+1=", "--max-tokens", "0"], ["--max-tokens"]),
    (["sample", "tiny", "1+1=", "--max-tokens", "1024"], ["4 tokens and 1024", "room for 1024", "--max-tokens"]),
    (["sample", "nobody", "1+1="], ["nobody"]),
    (["export", "nobody", "out"], ["nobody"]),
    (["export", "p31"], ["DIR"]),
]


@pytest.mark.parametrize(
    ("argv", "named"), OF_WEIGHTS, ids=[" ".join(argv).encode("ascii", "replace").decode() for argv, _ in OF_WEIGHTS]
)
def test_bad_input_is_one_line_and_writes_nothing(
    grpoctl: Grpoctl, tmp_path: Path, argv: list[str], named: list[str]
) -> None:
    said = grpoctl(*argv)
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    for word in named:
        assert word in said.err
    assert list(tmp_path.iterdir()) == []


def test_without_arguments_the_help_is_shown(grpoctl: Grpoctl) -> None:
    said = grpoctl()
    assert said.code == 2
    assert said.out == grpoctl("--help").out
    for command in ("run", "ls", "show", "validate", "check", "compare", "ui", "doctor", "sync"):
        assert f"\n  {command} " in said.out
