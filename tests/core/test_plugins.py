"""What installed packages add is found by entry points; a name that is there twice is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from core import plugins
from core.config.policy import PolicyConfig, policy_config, policy_kinds
from core.config.run import check_fit
from core.config.task import task_config, task_names
from core.errors import SpecError
from tests.bandit import PACKAGE
from tests.fakes import run_spec

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package with one entry point, and a module of the given text, on the path."""

    def put(package: str, group: str, name: str, value: str, text: str = "") -> None:
        folder = tmp_path / package
        metadata = folder / f"{package}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
        (folder / f"{value.partition(':')[0]}.py").write_text(text)
        monkeypatch.syspath_prepend(folder)

    return put


def test_a_package_adds_a_policy_and_a_task_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert policy_config("gaussian-bandit") is None
    monkeypatch.syspath_prepend(PACKAGE)
    config = policy_config("gaussian-bandit")
    assert config is not None
    assert (config.output, config.density, config.tokens) == ("vector", True, False)
    assert policy_kinds() == ["lm", "pointer", "restoration", "external", "gaussian-bandit"]
    assert task_config("reach") is not None
    assert task_config("arithmetic") is None  # a built-in one is no package's
    assert task_names()[-1] == "reach"


def test_two_packages_with_one_name_are_both_named(install: Install) -> None:
    install("red", "grpoctl.tasks", "riddle", "red_task:TASK")
    install("blue", "grpoctl.tasks", "riddle", "blue_task:TASK")
    with pytest.raises(SpecError, match=r"package blue and package red both add 'riddle' to grpoctl.tasks"):
        task_config("riddle")


@pytest.mark.parametrize(("group", "name"), [("grpoctl.policies", "lm"), ("grpoctl.tasks", "arithmetic")])
def test_a_built_in_name_is_not_taken(install: Install, group: str, name: str) -> None:
    install("red", group, name, "red_thing:THING")
    with pytest.raises(SpecError, match=f"package red adds '{name}' to {group}, which is grpoctl's own"):
        policy_kinds() if group == "grpoctl.policies" else task_names()


@pytest.mark.parametrize(
    ("module", "text", "problem"),
    [
        ("red_a", "import no_such_module", "cannot be imported: No module named 'no_such_module'"),
        ("red_b", "", "cannot be imported: module 'red_b' has no attribute 'POLICY'"),
        ("red_c", "class POLICY: config = int", "'red' of grpoctl.policies is type; allowed: an object with `config`"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(install: Install, module: str, text: str, problem: str) -> None:
    install("red", "grpoctl.policies", "red", f"{module}:POLICY", text)
    with pytest.raises(SpecError) as caught:
        policy_config("red")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_without_the_word_that_tasks_ask_for_are_refused(install: Install) -> None:
    text = """\
from core.config import PolicyConfig
class Settings(PolicyConfig):
    kind: str = "red"
class POLICY:
    config = Settings
    build = print
"""
    install("red", "grpoctl.policies", "red", "red_word:POLICY", text)
    with pytest.raises(
        SpecError, match=r"'red' of grpoctl.policies: Settings has no class attribute 'output'; allowed"
    ):
        policy_config("red")
    with pytest.raises(ValidationError, match="has no class attribute 'output'"):
        run_spec(policy={"kind": "red"})
    install("blue", "grpoctl.policies", "blue", "blue_word:POLICY", f"{text}Settings.output = 3")
    with pytest.raises(SpecError, match="Settings has output = 3; allowed: one word"):
        policy_config("blue")


def test_all_of_a_group_are_called_by_their_name_and_package(install: Install) -> None:
    install("red", "grpoctl.rules", "slow", "red_rule:RULE", "RULE = 1")
    install("blue", "grpoctl.rules", "quick", "blue_rule:RULE", "RULE = 2")
    found = [(one.called, one.plugin) for one in plugins.load_all("grpoctl.rules", ())]
    assert found == [("quick of package blue", 2), ("slow of package red", 1)]


def test_nothing_is_imported_before_it_is_named(install: Install) -> None:
    install("red", "grpoctl.policies", "red", "red_lazy:POLICY", "raise RuntimeError('imported')")
    assert policy_config("blue") is None
    assert "red" in plugins.added("grpoctl.policies", ())
    assert issubclass(policy_config("lm") or int, PolicyConfig)


def test_a_spec_that_does_not_name_it_is_refused_beside_a_package_that_takes_a_built_in_name(install: Install) -> None:
    check_fit(run_spec())
    install("red", "grpoctl.tasks", "gsm8k", "red_thing:THING")
    with pytest.raises(SpecError, match="package red adds 'gsm8k'"):
        check_fit(run_spec())
