"""A dispatcher on Azure with `reaper = true`, killed for good: the function of the subscription ends its VMs at their
ends. No VM boots here, and one that did would bill on: nobody else could end them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cloud_dispatch.domain.tags import DEPLOYMENT, ENDS_AT
from tests.fakes.arm.reaper import SubscriptionReaper
from tests.fakes.arm.records import Phase
from tests.system.azure import WatchedArm
from tests.system.test_azure import Subscription

PERIOD_MS, LIFETIME_S = 500, 20
#: For so long a busy machine may keep the reaper, or the test, from its turn.
STALL_MS = 8_000


def ends(fake: WatchedArm) -> dict[str, int]:
    """The VMs of the dispatcher that are not on their way out, with the ends that they wear."""
    worn = {vm.name: vm.tags.true for vm in fake.all_vms() if vm.phase is not Phase.DELETING}
    return {vm: int(tags[ENDS_AT]) for vm, tags in worn.items() if DEPLOYMENT in tags}


def test_vms_whose_dispatcher_is_dead_are_ended_by_the_subscription(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that is theirs, in their time and not before. The next dispatcher knows that they are gone."""
    with WatchedArm() as fake:
        for name, value in fake.environment().items():
            monkeypatch.setenv(name, value)
        house = Subscription(
            tmp_path, fake, pool="min = 2", boots=False, more='reaper = true\nreaper_period = "0.5s"'
        ).house
        said = house.config.read_text().replace('"20s"', '"10m"')
        house.config.write_text(said.replace('lifetime = "10m"', f'lifetime = "{LIFETIME_S}s"'))
        with SubscriptionReaper(fake, PERIOD_MS, deployment=house.deployment) as reaper:
            house.up()
            born = house.until(lambda: len(found := ends(fake)) == 2 and found, 30, "two VMs live")
            house.until(lambda: {row["vm"] for row in house.instances()} == set(born), 20, "it knows of both")
            house.kill()
            time.sleep(max(min(born.values()) / 1000 - time.time() - 4, 0))
            assert ends(fake) == born
            assert reaper.ended == []
            house.until(lambda: not ends(fake), LIFETIME_S, "they are ended")
            late_ms = fake.clock.now() - max(born.values())
            assert 0 <= late_ms <= 2 * PERIOD_MS + STALL_MS
        assert set(reaper.ended) == set(born)
        assert reaper.errors == []
        house.until(lambda: not fake.all_vms(), 10, "nothing of them is left")
        assert fake.leftovers() == []
        house.config.write_text(house.config.read_text().replace("min = 2", "min = 0"))
        house.up()
        house.until_no_instance(30)
