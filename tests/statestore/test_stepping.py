"""Back to the tables of the version before: what runs is still known, and what is forgotten counts as spent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from cloud_dispatch.domain.errors import Conflict, InvalidInput, OverBudget
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING
from cloud_dispatch.spend.windows import Window
from cloud_dispatch.statestore import migrate, revision_of, step_back
from cloud_dispatch.statestore.engine import make_engine, parse_url
from cloud_dispatch.testing.store_builders import START_MS, Agent, ManualClock, instance, intent, spec
from cloud_dispatch.testing.store_contract_money import slot
from tests.statestore.conftest import stores


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


async def test_what_runs_is_known_to_the_version_before_and_again_to_this_one(url: str) -> None:
    async with stores(url) as open_one:
        store = await open_one(ManualClock())
        await store.adopt(instance())
        (task, waits) = await store.submit([spec(), spec(priority=-1)])
        agent = Agent(store, instance())
        await agent.sync(want=1)
        with pytest.raises(Conflict, match="in use"):
            step_back(url, "0001", now_ms=START_MS)
        tokens = dict(store.leases_of(instance().id))
        await store.close()

        assert revision_of(url) == "0004"
        step_back(url, "0001", now_ms=START_MS)
        step_back(url, "0001", now_ms=START_MS)
        assert revision_of(url) == "0001"
        engine = make_engine(parse_url(url))
        with engine.begin() as connection:
            names = set(sa.inspect(connection).get_table_names())
            assert {"tasks", "instances"} <= names
            assert "ledger" not in names
            assert connection.scalar(sa.text("SELECT count(*) FROM tasks")) == 2
            assert connection.scalar(sa.text("SELECT count(*) FROM instances")) == 1
        engine.dispose()

        again = await open_one(ManualClock())
        assert dict(again.leases_of(instance().id)) == tokens
        states = [(await again.task(one)).state for one in (task, waits)]
        assert states == [TaskState.CLAIMED, TaskState.QUEUED]
        assert await again.check() == []
        await again.set_limits([Budget(EVERYTHING, Window.DAY, Amount(10**12))], {})
        with pytest.raises(OverBudget):  # nobody knows what was spent before
            await again.intend(intent("other"), [slot("other")])
        await again.reconcile()
        await again.intend(intent("other"), [slot("other")])


#: A step that makes the table anew to which most others refer.
MAKES_TASKS_ANEW = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "9999", "0004", None, None


def upgrade():
    with op.batch_alter_table("tasks", recreate="always") as table:
        table.add_column(sa.Column("mood", sa.Text(), nullable=True))


def downgrade():
    with op.batch_alter_table("tasks", recreate="always") as table:
        table.drop_column("mood")
"""


async def test_a_table_that_is_made_anew_takes_nothing_along(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever refers to its rows: SQLite would have deleted it with them."""
    async with stores(sqlite_url) as open_one:
        store = await open_one(ManualClock())
        (task,) = await store.submit([spec()])
        await store.close()
        later = tmp_path / "migrations"
        shutil.copytree(migrate._FOLDER, later, ignore=shutil.ignore_patterns("__pycache__"))
        (later / "versions" / "9999_later.py").write_text(MAKES_TASKS_ANEW)
        with monkeypatch.context() as patched:
            patched.setattr(migrate, "_FOLDER", later)
            again = await open_one(ManualClock())
            assert (await again.task(task)).spec == spec()
            await again.close()
            assert revision_of(sqlite_url) == "9999"
            step_back(sqlite_url, "0004", now_ms=START_MS)
        last = await open_one(ManualClock())
        assert (await last.task(task)).spec == spec()
        assert await last.check() == []


def test_only_a_revision_before_can_be_gone_back_to(url: str) -> None:
    """And of a store that is there."""
    assert revision_of(url) == ""
    with pytest.raises(InvalidInput, match="no statestore"):
        step_back(url, "0001", now_ms=START_MS)


async def test_an_unknown_revision_changes_nothing(url: str) -> None:
    async with stores(url) as open_one:
        await (await open_one(ManualClock())).close()
        with pytest.raises(InvalidInput, match="no way back") as refused:
            step_back(url, "0000", now_ms=START_MS)
        assert refused.value.hint == "the tables are at 0004, and this version knows 0001, 0002, 0003, 0004"
        assert revision_of(url) == "0004"
