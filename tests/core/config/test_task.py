"""Domains of the workflow task: at least one has weight."""

from __future__ import annotations

import pytest

from core.config import RunSpec
from tests.core.config.valid_run import RUN, refused


@pytest.mark.parametrize(
    ("domains", "accepted"),
    [
        ({"math": 2, "qa": 1}, True),
        ({"math": 0, "qa": 1e-9}, True),
        ({"math": 0, "qa": 0.0}, False),
        ({}, False),
        ({"maths": 1}, False),
        ({"math": -1}, False),
    ],
)
def test_some_domain_has_weight(domains: dict[str, float], accepted: bool) -> None:
    task = {"name": "workflow-dsl", "domains": domains}
    if accepted:
        assert RunSpec.model_validate({**RUN, "task": task})
    else:
        refused({"task": task})
