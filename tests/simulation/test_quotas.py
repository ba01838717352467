"""Quotas in whole runs: what a cloud has no room for by its own word is not asked for again and again."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.provider.errors import QuotaExceeded
from cloud_dispatch.reconcile import quotas
from cloud_dispatch.simulation.clouds.settings import Cloud, Quota
from cloud_dispatch.simulation.clouds.stock import Stock
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Work
from tests.simulation.scenes import SELDOM, scene

ALONE = Shape(Resources(1_000, GIB), exclusive=True)


def played(monkeypatch: pytest.MonkeyPatch, cloud: Cloud) -> tuple[int, Outcome]:
    """How many launches an account refuses in a run, whose quotas have room for a few of many tasks at once."""
    refused: list[QuotaExceeded] = []
    over_quota = Stock.over_quota

    def counted(*args: object) -> QuotaExceeded | None:
        found = over_quota(*args)  # type: ignore[arg-type]
        refused.extend(filter(None, [found]))
        return found

    monkeypatch.setattr(Stock, "over_quota", counted)
    work = (Work(count=20, shape=ALONE, conduct=Conduct(run_ms=1_200_000), expected_ms=1_200_000),)
    usual = scene(cloud, work=work, caps=Caps(instances=20), timing=SELDOM, horizon_ms=4 * 3_600_000)
    (account,) = usual.accounts
    account = msgspec.structs.replace(account, settings=replace(account.settings, quotas=(Quota(8),)))
    outcome = run(msgspec.structs.replace(usual, accounts=(account,)))
    return len(refused), outcome


@pytest.mark.parametrize("cloud", Cloud)
def test_launches_that_quotas_have_no_room_for_are_hardly_made(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """All work is done, with fewer refusals than a dispatcher has that only learns from them: on EC2, which refuses the
    whole of a launch that is too large, that one would get nothing at all."""
    refused, outcome = played(monkeypatch, cloud)
    assert outcome.ok, outcome.findings
    assert outcome.tasks[TaskState.SUCCEEDED] == 20
    monkeypatch.undo()
    monkeypatch.setattr(quotas, "known", lambda context: ())
    assert refused < played(monkeypatch, cloud)[0]
