"""A dispatcher on AWS with `reaper = true`, killed for good: the function of the account ends its VMs at their ends.
No VM boots here, so that nobody else could."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloud_dispatch.domain.tags import DEPLOYMENT, ENDS_AT
from tests.fakes.asking import launch
from tests.fakes.ec2 import FakeEc2, Settings
from tests.fakes.ec2.reaper import AccountReaper
from tests.fakes.ec2.settings import KEY
from tests.providers.aws import scenes
from tests.system.house import CONFIG, House

PERIOD_MS, LIFETIME_S = 500, 20
#: Nobody looks for the dispatcher where it is said to be.
_PROFILE = """[profiles.aws]
driver = "aws"
region = "us-east-1"
endpoint_url = "URL"
identity_certificate = "CERTIFICATE"
instance_types = ["m6i.large"]
spot = false
consistency = "1s"
reaper = true
reaper_period = "0.5s"
caps = {{ instances = {cap} }}
budget = {{ total = "5" }}

"""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEc2]:
    for name, value in {**scenes.CREDENTIALS, "AWS_ACCESS_KEY_ID": KEY.id, "AWS_SECRET_ACCESS_KEY": KEY.secret}.items():
        monkeypatch.setenv(name, value)
    with FakeEc2(Settings(types=("m6i.large",), pending_ms=100, shutting_down_ms=100)) as made:
        yield made


@pytest.fixture
def house(fake: FakeEc2, tmp_path: Path, make_house: Callable[..., House]) -> House:
    certificate = tmp_path / "us-east-1.pem"
    certificate.write_text(scenes.certificate())
    before, _, after = CONFIG.partition("[profiles.local]")
    head = before.replace("tls = false\n", 'tls = false\nadvertise = "https://192.0.2.1:7717"\n')
    pools = after[after.index("[pools.default]") :].replace('profiles = ["local"]', 'profiles = ["aws"]')
    pools = pools.replace('"20s"', '"10m"').replace('lifetime = "10m"', f'lifetime = "{LIFETIME_S}s"')
    profile = _PROFILE.replace("URL", fake.url).replace("CERTIFICATE", str(certificate))
    return make_house(cap=2, pool="min = 2", config=head + profile + pools)


def ends(fake: FakeEc2) -> dict[str, int]:
    """The VMs of the dispatcher that live, with the ends that they wear."""
    up = [vm for vm in fake.all_instances() if vm.state.value in ("pending", "running")]
    worn = {vm.id: vm.tags.true.items for vm in up}
    return {vm: int(tags[ENDS_AT]) for vm, tags in worn.items() if DEPLOYMENT in tags}


def test_vms_whose_dispatcher_is_dead_are_ended_by_the_account(fake: FakeEc2, house: House) -> None:
    """While it lives it sees to it that they wear their ends: one that somebody moves is moved back.
    When it is dead they end, in their time, and what is not its stays."""
    (other,) = launch(fake.client(), InstanceType="m6i.large")
    with AccountReaper(fake, PERIOD_MS) as reaper:
        house.up()
        born = house.until(lambda: len(found := ends(fake)) == 2 and found, 30, "two VMs live")
        one = min(born)
        fake.client().create_tags(Resources=[one], Tags=[{"Key": ENDS_AT, "Value": str(born[one] + 3_600_000)}])
        house.until(lambda: ends(fake) == born, 10, "it wears its own end again")
        house.kill()
        time.sleep(max(min(born.values()) / 1000 - time.time() - 1, 0))
        assert ends(fake) == born
        assert reaper.ended == []
        house.until(lambda: not ends(fake), LIFETIME_S, "they are ended")
        late_ms = fake.clock.now() - max(born.values())
        assert 0 <= late_ms <= 2 * PERIOD_MS + 1_000
    assert set(reaper.ended) == set(born)
    assert fake.instance(other["InstanceId"]).state.value == "running"
    assert reaper.errors == []
