"""Studies of these tests are opened hundreds of times: what Optuna's tables should look like is read once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def migrations_read_once() -> Iterator[None]:
    """Optuna runs the files of all its migrations, a tenth of a second, whenever it opens a database."""
    from alembic.script import ScriptDirectory

    heads: dict[str, str | None] = {}
    look_up = ScriptDirectory.get_current_head

    def remembered(migrations: ScriptDirectory) -> str | None:
        if migrations.dir not in heads:
            heads[migrations.dir] = look_up(migrations)
        return heads[migrations.dir]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "get_current_head", remembered)
        yield
