"""The hand that ends VMs at their hard end, in a study: it is the profile's own, or none."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.spi import HardEnd
from cloud_dispatch.simulation.report import report
from cloud_dispatch.simulation.study.engine import answer
from cloud_dispatch.simulation.study.offers import Offered, offers
from cloud_dispatch.simulation.study.question import study
from cloud_dispatch.simulation.workload.items import WorkItem, Workload
from tests.simulation.study.scene import HERE, NOW, ONE, config


def test_a_limit_bears_what_the_profiles_own_hand_lets_pass(tmp_path: Path) -> None:
    """With a hand that looks each hour an hour's price more has to be left than with the local one, which looks each
    second. Where there is none nothing is done for a user with a limit, unless the profile accepts that."""
    driver, user = (f'[{of}.budget]\ntotal = "3"' for of in ("drivers.local", "users.ann"))
    work = Workload((WorkItem(0, ONE, 600_000, expected_ms=600_000, user="ann"),), "work")

    def done(found: Offered, limit: str, profile: str = "") -> bool:
        settings = config(tmp_path, profile=profile, more=limit)
        return TaskState.SUCCEEDED in report(answer(study(settings, {HERE: found}, work).scenario).record).tasks

    (found,) = asyncio.run(offers(config(tmp_path), NOW)).values()
    assert (found.hard_end, found.period_ms) == (HardEnd.EXTENDABLE, 1_000)
    assert done(found, driver)
    assert not done(replace(found, period_ms=3_600_000), driver)
    alone = replace(found, hard_end=HardEnd.NONE, period_ms=0)
    assert not done(alone, user)
    assert done(alone, user, "guest_enforced = true")


def test_a_profile_with_which_no_dispatcher_starts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose VMs cost money, with no hand that ends them, where that is not accepted."""
    settings, work = config(tmp_path), Workload((WorkItem(0, ONE, 1_000),), "work")
    (found,) = asyncio.run(offers(settings, NOW)).values()
    monkeypatch.setattr(registry, "plugin", lambda driver: SimpleNamespace(bills=True))
    with pytest.raises(InvalidInput, match="no hand but their own timer"):
        study(settings, {HERE: replace(found, hard_end=HardEnd.NONE)}, work)
