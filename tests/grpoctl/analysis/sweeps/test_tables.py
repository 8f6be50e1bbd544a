"""One line per trial."""

from __future__ import annotations

import pytest

from grpoctl.analysis.sweeps.tables import flat
from tests.studies import BETA, KL, K, advantage_study, study, trial


def test_one_row_per_trial_with_empty_cells_where_an_axis_did_not_act() -> None:
    document = advantage_study()
    columns, rows = flat(document)
    assert [len(row) for row in rows] == [len(columns)] * 24
    cells = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    best = cells["1"]
    assert (best["rank"], best["indistinguishable"], best["status"]) == ("1", "true", "COMPLETED")
    assert (best[K], best[BETA], best[KL]) == ("8", "0.0", "")
    assert float(best["low"]) < float(best["score"]) < float(best["high"])
    assert float(best["score"]) * 3 == pytest.approx(sum(float(best[f"seed {seed}"]) for seed in range(3)))
    pruned = cells["9"]
    assert (pruned["rank"], pruned["indistinguishable"], pruned["low"], pruned["seed 1"]) == ("", "", "", "")


def test_what_was_not_tested_is_neither_alike_nor_different() -> None:
    columns, rows = flat(study([trial(0, [0.5]), trial(1, [0.9])]))
    place = columns.index("indistinguishable")
    assert [row[place] for row in rows] == ["", ""]
    tested = study([trial(0, [0.50, 0.51]), trial(1, [0.90, 0.91])])
    assert [row[place] for row in flat(tested)[1]] == ["false", "true"]
