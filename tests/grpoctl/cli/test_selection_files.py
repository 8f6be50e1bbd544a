"""Files of scored picks that are not sound, through the commands that read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpoctl.runs.run_dir import Home
from tests.grpoctl.cli.conftest import Grpoctl


def row(picks: list[int], accuracy: float) -> dict[str, Any]:
    scores = {"vqa_correct": int(accuracy > 0), "vqa_acc_score": accuracy, "beam_score": -1.0}
    return {"pointer": picks, "gen_method": "beam", **scores}


def queries() -> dict[str, Any]:
    return {name: {"question": name, "pointer_candidates": [row([0, 1], 1.0), row([1, 2], 0.0)]} for name in "abc"}


def written(folder: Path, text: str, asked: Any = None, bank: Any = None) -> list[str]:
    (folder / "data.json").write_text(text)
    np.save(folder / "asked.npy", np.eye(3) if asked is None else asked)
    np.save(folder / "bank.npy", np.eye(3) if bank is None else bank)
    return [
        "task.world=null", f"task.data.path={folder / 'data.json'}", "task.pool=all",
        f"task.data.query_embeddings={folder / 'asked.npy'}", f"task.data.candidate_embeddings={folder / 'bank.npy'}",
        "task.train_prompts=2", "task.eval_prompts=1", "policy.width=3", "policy.shots=2",
        "stages.sft.prompts_per_step=1",
    ]  # fmt: skip


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    document = queries()
    change(document)
    return json.dumps(document)


def of(query: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda document: document[query]["pointer_candidates"][1]


SOUND = json.dumps(queries())
BAD: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "a missing field": (changed(lambda d: of("b")(d).pop("vqa_correct")), {}, ("query b", "vqa_correct")),
    "a pointer outside": (changed(lambda d: of("c")(d).update(pointer=[1, 7])), {}, ("query c", "pointer", "7")),
    "NaN embeddings": (SOUND, {"asked": np.array([[1, 0, 0], [0, np.nan, 0], [0, 0, 1]])}, ("query b", "query_embed")),
    "two widths": (SOUND, {"bank": np.eye(4)}, ("query_embeddings", "3", "4")),
    "an id twice": (f'{SOUND[:-1]}, "a": {{}}}}', {}, ("query a",)),
    "an empty query": (changed(lambda d: d.update(b={})), {}, ("query b", "question")),
    "a query without picks": (
        changed(lambda d: d["b"].update(pointer_candidates=[])), {}, ("query b", "pointer_candidates"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "embeddings", "words"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_in_one_line_and_nothing_is_written(
    text: str, embeddings: dict[str, Any], words: tuple[str, ...], grpoctl: Grpoctl, home: Home, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    overrides = written(folder, text, **embeddings)
    before = sorted(tmp_path.rglob("*"))
    for command in (("validate",), ("run", "-p", "tiny"), ("check", "-p", "tiny", "--data")):
        said = grpoctl(command[0], "p40", *command[1:], *overrides)
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
        for word in words:
            assert word in said.err
    assert home.runs() == []
    assert sorted(tmp_path.rglob("*")) == before


def test_a_width_or_a_pool_that_does_not_fit_the_policy(grpoctl: Grpoctl, home: Home, tmp_path: Path) -> None:
    overrides = written(tmp_path, SOUND)
    assert grpoctl("validate", "p40", *overrides).code == 0
    others = [one for one in overrides if not one.startswith("policy.")]
    for wrong, words in (("policy.width=5", ("5", "3")), ("policy.shots=4", ("query a", "3"))):
        width = [] if wrong.startswith("policy.width") else ["policy.width=3"]
        for command in (("validate",), ("run", "-p", "tiny")):
            said = grpoctl(command[0], "p40", *command[1:], *others, *width, wrong)
            assert (said.code, said.err.count("\n")) == (2, 1)
            assert wrong.partition("=")[0] in said.err
            for word in words:
                assert word in said.err
    assert home.runs() == []
