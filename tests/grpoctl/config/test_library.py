"""Names to files: case, order of folders, paths, listings."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import NotFoundError
from grpoctl.config import Library, experiments, load, shipped_folder, sweep_library
from grpoctl.config.library import SHIPPED


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """A user's folder with `mine` and a `p31` of their own; the shipped folder."""
    user = tmp_path / "experiments"
    user.mkdir()
    (user / "mine.yaml").write_text("name: mine\nextends: p31\ntitle: My own\nprofiles: {small: {seed: 1}}\n")
    (user / "p31.yaml").write_text("name: p31\nextends: p30-sound\ntitle: The user's p31\n")
    (user / ".hidden.yaml").write_text("not: read\n")
    (user / "notes.txt").write_text("not read\n")
    return Library(user=user)


def test_the_users_file_comes_first(library: Library) -> None:
    assert library.find("p31") == library.user / "p31.yaml"
    assert library.find("p30") == shipped_folder() / "p30.yaml"
    assert load("mine", library=library).chain[1] == library.user / "p31.yaml"


@pytest.mark.parametrize("name", ["p30-sound", "P30-Sound", "P30-SOUND"])
def test_names_are_case_insensitive(name: str, library: Library) -> None:
    assert library.find(name) == shipped_folder() / "p30-sound.yaml"
    assert load(name, library=library).spec.name == "p30-sound"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("p32", "no experiment 'p32'; did you mean p31? There are: mine, p30, p30-sound, p31"),
        ("qqq", "no experiment 'qqq'; There are: mine, p30, p30-sound, p31"),
        ("", "no experiment ''"),
        ("nothing.yaml", "no file nothing.yaml"),
        ("folder/p30", "no file folder/p30; did you mean p30?"),
    ],
)
def test_an_unknown_name_says_what_there_is(name: str, says: str, library: Library, tmp_path: Path) -> None:
    few = tmp_path / "shipped"  # not the real ones: there will be more of them
    few.mkdir()
    for stem in ("p30", "p30-sound", "p31"):
        (few / f"{stem}.yaml").touch()
    library = Library(user=library.user, shipped=few)
    with pytest.raises(NotFoundError) as caught:
        load(name, library=library)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("library", "name", "says"),
    [
        (
            Library(),
            "collapse-study",
            "it is a sweep; try grpoctl sweep collapse-study",
        ),
        (sweep_library(), "p31", "it is an experiment; try grpoctl run p31"),
    ],
)
def test_a_name_of_the_other_kind(library: Library, name: str, says: str) -> None:
    with pytest.raises(NotFoundError, match=says):
        library.find(name)


def test_a_path_brings_its_neighbours(library: Library, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "base.yaml").write_text("name: base\nextends: p30\n")
    (elsewhere / "child.yaml").write_text("name: child\nextends: base\n")
    loaded = load(elsewhere / "child.yaml", library=library)
    assert [file.stem for file in loaded.chain] == ["child", "base", "p30"]
    for name in ("p30", "p31"):
        (elsewhere / f"{name}.yaml").write_text("only found, not read")
    assert library.find("P30", beside=elsewhere) == elsewhere / "p30.yaml"  # neighbours before the shipped ones
    assert library.find("p31", beside=elsewhere) == library.user / "p31.yaml"  # the user's own before both


def test_the_listing_names_origin_title_and_profiles(library: Library) -> None:
    listed = {item.name: item for item in experiments(library)}
    assert list(listed) == sorted(listed)
    assert (listed["mine"].title, listed["mine"].origin, listed["mine"].profiles) == (
        "My own", "user", ("full", "tiny", "small", "medium"),
    )  # fmt: skip
    assert (listed["p31"].title, listed["p31"].origin) == ("The user's p31", "user")
    assert listed["p30"].origin == "shipped"


def test_a_broken_file_is_listed_with_its_problem(library: Library) -> None:
    (library.user / "broken.yaml").write_text("name: broken\nextends: nowhere\n")
    listed = {item.name: item for item in experiments(library)}
    assert "no experiment 'nowhere'" in (listed["broken"].problem or "")
    assert listed["mine"].problem is None


def test_in_the_checkout_itself_the_shipped_ones_are_not_the_users() -> None:
    listed = experiments(Library(user=shipped_folder()))
    assert {item.origin for item in listed} == {"shipped"}


@pytest.mark.parametrize("library", [Library(), sweep_library()], ids=lambda library: library.kind)
def test_all_that_comes_with_grpoctl_is_named(library: Library) -> None:
    """A file that is added to the folder belongs into SHIPPED, too."""
    assert {file.stem for file in library.shipped.glob("*.yaml")} == SHIPPED[library.kind]


def test_what_a_user_adds_in_the_checkout_is_the_users(tmp_path: Path) -> None:
    """There the user's folder is the shipped one."""
    for name in ("p30", "mine"):
        (tmp_path / f"{name}.yaml").touch()
    origins = {name: origin for name, (_, origin) in Library(user=tmp_path, shipped=tmp_path).files().items()}
    assert origins == {"mine": "user", "p30": "shipped"}


def test_no_folder_at_all(tmp_path: Path) -> None:
    empty = Library(user=tmp_path / "a", shipped=tmp_path / "b")
    assert experiments(empty) == []
    with pytest.raises(NotFoundError, match="there are no experiments"):
        load("p31", library=empty)
