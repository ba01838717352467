"""A dispatcher on AWS with `reaper = true`, killed for good: the function of the account ends its VMs at their ends.
No VM boots here, so that nobody else could."""

from __future__ import annotations

import time

from cloud_dispatch.domain.tags import DEPLOYMENT, ENDS_AT
from tests.fakes.asking import launch
from tests.fakes.ec2.reaper import AccountReaper
from tests.system.aws import TYPES, MakeAccount, Profile, WatchedEc2

PERIOD_MS, LIFETIME_S = 500, 20
#: For so long a busy machine may keep the reaper, or the test, from its turn.
STALL_MS = 8_000
KEPT = Profile(more='reaper = true\nreaper_period = "0.5s"')


def ends(fake: WatchedEc2) -> dict[str, int]:
    """The VMs of the dispatcher that live, with the ends that they wear."""
    worn = {vm.id: vm.tags.true.items for vm in fake.living()}
    return {vm: int(tags[ENDS_AT]) for vm, tags in worn.items() if DEPLOYMENT in tags}


def test_vms_whose_dispatcher_is_dead_are_ended_by_the_account(make_account: MakeAccount, fake: WatchedEc2) -> None:
    """While it lives it sees to it that they wear their ends: one that somebody moves is moved back.
    When it is dead they end, in their time, and what is not its stays. The next one knows that they are gone."""
    (other,) = launch(fake.client(), InstanceType=TYPES[0])
    fake.strangers.add(other["InstanceId"])
    aws = make_account(pool="min = 2", boots=False, profiles=(KEPT,))
    house = aws.house
    said = house.config.read_text().replace("guest_enforced = true\n", "").replace('"20s"', '"10m"')
    house.config.write_text(said.replace('lifetime = "10m"', f'lifetime = "{LIFETIME_S}s"'))
    with AccountReaper(fake, PERIOD_MS, deployment=house.deployment) as reaper:
        house.up()
        born = house.until(lambda: len(found := ends(fake)) == 2 and found, 30, "two VMs live")
        one = min(born)
        fake.client().create_tags(Resources=[one], Tags=[{"Key": ENDS_AT, "Value": str(born[one] + 3_600_000)}])
        house.until(lambda: ends(fake) == born, 10, "it wears its own end again")
        house.kill()
        time.sleep(max(min(born.values()) / 1000 - time.time() - 4, 0))
        assert ends(fake) == born
        assert reaper.ended == []
        house.until(lambda: not ends(fake), LIFETIME_S, "they are ended")
        late_ms = fake.clock.now() - max(born.values())
        assert 0 <= late_ms <= 2 * PERIOD_MS + STALL_MS
    assert set(reaper.ended) == set(born)
    assert fake.instance(other["InstanceId"]).state.value == "running"
    assert reaper.errors == []
    house.config.write_text(house.config.read_text().replace("min = 2", "min = 0"))
    house.up()
    house.until_no_instance(30)
