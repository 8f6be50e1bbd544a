"""Made-up logs: each cause is named in each form, and no sound run is accused."""

from __future__ import annotations

from pathlib import Path
from random import Random

from benchmarks.made_up_logs import FORMS, accused, failed, lost, usual


def test_every_cause_is_among_the_first_two_findings(tmp_path: Path) -> None:
    outcomes = list(failed(tmp_path))
    assert [one for one in outcomes if one[3] in ("late", "missed")] == []
    assert len(outcomes) > 200


def test_a_run_that_is_lost_is_an_error(tmp_path: Path) -> None:
    assert all(right for _, right in lost(tmp_path))


def test_sound_runs_are_not_accused(tmp_path: Path) -> None:
    assert [one for one in accused(8, tmp_path) if one[1]] == []


def test_a_form_has_its_own_names() -> None:
    texts = {form: write(usual(2, Random(0))) for form, (write, _) in FORMS.items()}
    assert texts["verl"].startswith("(TaskRunner pid=123) step:1 - critic/score/mean:")
    assert texts["TRL"].startswith("{'reward': ")
    assert (
        texts["Markdown"].splitlines()[0] == "| step | avg reward | KL | entropy | grad norm | resp len | truncated % |"
    )
