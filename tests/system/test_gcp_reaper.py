"""A dispatcher on Google Cloud that is killed for good: Compute Engine keeps the ends of VMs that run, and the
function of the project those of VMs that have stopped. No VM boots here, so that nobody else could."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_dispatch.domain.labels import to_tags
from cloud_dispatch.domain.tags import ENDS_AT
from tests.fakes.gce.reaper import ProjectReaper
from tests.system.gcp import Account, WatchedGce, id_of

PERIOD_MS, LIFETIME_S = 500, 20
#: For so long a busy machine may keep the reaper, or the test, from its turn.
STALL_MS = 8_000


@pytest.fixture
def google(tmp_path: Path) -> Iterator[Account]:
    """One deployment on a fake, which at its end looks at it."""
    with WatchedGce() as fake:
        yield Account(tmp_path, fake, pool="min = 2", boots=False, more='name_prefix = "own--"')


def test_stopped_vms_whose_dispatcher_is_dead_are_deleted_at_their_ends(google: Account) -> None:
    """With their disks, and not before. The next dispatcher knows that they are gone."""
    house, fake = google.house, google.fake
    said = house.config.read_text().replace("guest_enforced = true\n", "").replace('"20s"', '"10m"')
    house.config.write_text(said.replace('lifetime = "10m"', f'lifetime = "{LIFETIME_S}s"'))
    with ProjectReaper(fake, PERIOD_MS, deployment=house.deployment) as reaper:
        house.up()
        born = house.until(lambda: len(found := fake.living()) == 2 and found, 30, "two VMs live")
        house.until(lambda: all(vm.running_ms for vm in born), 10, "they run")
        ends = {id_of(vm): int(to_tags(vm.labels)[ENDS_AT]) for vm in born}
        house.until(lambda: {row["vm"] for row in house.instances()} == set(ends), 10, "it knows of both")
        house.kill()
        for vm in born:
            fake.guest_shutdown(vm.name)
        house.until(lambda: not fake.living(), 10, "they have powered off")
        time.sleep(max(min(ends.values()) / 1000 - time.time() - 4, 0))
        assert {id_of(vm) for vm in fake.all_instances()} == set(ends)
        assert reaper.ended == []
        house.until(lambda: not fake.all_instances(), LIFETIME_S, "they are deleted")
        late_ms = fake.clock.now() - max(ends.values())
        assert 0 <= late_ms <= 2 * PERIOD_MS + STALL_MS
    assert set(reaper.ended) == set(ends)
    assert reaper.errors == []
    assert fake.leftovers() == []
    house.config.write_text(house.config.read_text().replace("min = 2", "min = 0"))
    house.up()
    house.until_no_instance(30)
