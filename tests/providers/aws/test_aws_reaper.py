"""Hard ends on AWS with `reaper = true`: the dispatcher moves them by tags, and who is past his ends without it. By the
function of the account, and by `cloud-dispatch reap --overdue`, each with nothing but the tags to go by."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.tags import ENDS_AT, VmTags
from cloud_dispatch.provider.spi import ProfileContext, Provider
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.windows import Window
from cloud_dispatch_aws import plugin
from tests.fakes.asking import launch as launch_bare
from tests.fakes.clock import SetClock
from tests.fakes.ec2 import FakeEc2, Settings
from tests.fakes.ec2.reaper import AccountReaper
from tests.providers.aws import scenes
from tests.reconcile.fake import LOCAL, POOL, World, world

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
HOURS = Pool(POOL, (LOCAL,), boot_deadline_ms=6 * HOUR_MS, max_tasks_per_instance=1, target_drain_ms=HOUR_MS)


def driver(fake: FakeEc2, folder: Path, profile: str = "aws") -> Provider:
    said = scenes.settings(
        endpoint_url=fake.url, instance_types=["m5.large"], spot=False, consistency="100ms",
        identity_certificate=scenes.certificate(), reaper=True, reaper_period="1s",
    )  # fmt: skip
    return plugin.create(ProfileContext(ProfileName(profile), said, folder, now=fake.clock.now))


def living(fake: FakeEc2) -> dict[str, str]:
    """What is up or coming up, with its end."""
    up = [vm for vm in fake.all_instances() if vm.state.value in ("pending", "running")]
    return {vm.id: vm.tags.true.items.get(ENDS_AT, "") for vm in up}


# -- `reap --overdue`


@pytest.fixture
async def vms(fake: FakeEc2, tmp_path: Path) -> dict[str, str]:
    """By name, whose dispatcher is gone: one is past its end, one is not, one has none, one's can't be read; one of
    another deployment is past it, and one is nobody's of us."""
    provider, made = driver(fake, tmp_path), {}
    (offering,) = [one for one in await provider.offerings() if one.zone == scenes.ZONE]
    past, later = fake.clock.now() - 1, fake.clock.now() + HOUR_MS
    wanted = {"late": past, "early": later, "endless": 0, "odd": past, "foreign": past}
    for number, (name, ends_ms) in enumerate(wanted.items()):
        deployment, batch = "other" if name == "foreign" else "test", BatchId(f"b{number:011d}")
        tags = VmTags(deployment, "store-1", PoolName("default"), batch, 96_000_000, ends_ms).encode()
        slots = (InstanceId(f"{batch}-0"),)
        asked = replace(scenes.request(), batch=batch, slots=1, offering=offering, tags=tags, instances=slots)
        (vm,) = (await provider.launch(asked)).vms
        made[name] = str(vm.id)
    await provider.close()
    ec2 = fake.client()
    ec2.create_tags(Resources=[made["odd"]], Tags=[{"Key": ENDS_AT, "Value": "yesterday"}])
    made["bare"] = launch_bare(ec2, InstanceType="m5.large")[0]["InstanceId"]
    return made


@pytest.fixture
def config(fake: FakeEc2, tmp_path: Path) -> Path:
    certificate = tmp_path / "us-east-1.pem"
    certificate.write_text(scenes.certificate())
    path = tmp_path / "config.toml"
    path.write_text(
        f'[dispatcher]\ndeployment = "test"\nstate_dir = "{tmp_path}/state"\n'
        f'[profiles.aws]\ndriver = "aws"\nregion = "us-east-1"\nendpoint_url = "{fake.url}"\n'
        f'instance_types = ["m5.large"]\nidentity_certificate = "{certificate}"\nreaper = true\n'
        'caps = { instances = 9 }\nbudget = { total = "5" }\n'
        '[pools.default]\nprofiles = ["aws"]\n'
    )
    return path


def reap(config: Path, *words: str) -> list[str]:
    """The ids that the command tells."""
    command = [sys.executable, "-m", "cloud_dispatch", "reap", *words, "--json", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout)["vms"]
    return [vm["id"] for vm in found]


def test_the_command_ends_what_is_past_its_end_and_nothing_else(
    fake: FakeEc2, vms: dict[str, str], config: Path
) -> None:
    """Listed first, ended with --yes. No statestore is there, and none is made."""
    assert reap(config, "--overdue") == [vms["late"]]
    assert len(living(fake)) == 6
    assert reap(config, "--overdue", "--yes") == [vms["late"]]
    assert set(living(fake)) == set(vms.values()) - {vms["late"]}
    assert reap(config, "--overdue", "--deployment", "other", "--yes") == [vms["foreign"]]
    assert set(living(fake)) == {vms[name] for name in ("early", "endless", "odd", "bare")}
    assert reap(config, "--overdue", "--yes") == []
    assert list(config.parent.rglob("*.sqlite*")) == []


def test_the_function_of_an_account_keeps_to_the_same_rule(fake: FakeEc2, vms: dict[str, str]) -> None:
    """Of the deployment that it is told, and of none where a variable was left empty."""
    assert AccountReaper(fake, deployment="test").look() == [vms["late"]]
    assert AccountReaper(fake, deployment="other").look() == [vms["foreign"]]
    assert AccountReaper(fake, deployment="other").look() == []
    with pytest.raises(ValueError):
        AccountReaper(fake, deployment="").look()
    assert len(living(fake)) == 4


# -- a dispatcher, and its death


@pytest.fixture
def slow_fake(monkeypatch: pytest.MonkeyPatch, fake: FakeEc2) -> Iterator[FakeEc2]:
    """One whose time the test moves."""
    with FakeEc2(Settings(types=("m5.large",)), SetClock()) as made:
        yield made


@pytest.fixture
async def inside(slow_fake: FakeEc2, tmp_path: Path) -> AsyncIterator[World]:
    """A dispatcher's inside with the real driver, and a limit that covers all of it."""
    provider: Any = driver(slow_fake, tmp_path, LOCAL)
    async with world(tmp_path, cloud=provider, pool=HOURS) as w:
        w.clock.ms = slow_fake.clock.now()
        await w.fleet.set_limit(Key(Scope.DEPLOYMENT), Window.TOTAL, Amount(10**9), "")
        yield w
    await provider.close()


async def passes(w: World, fake: FakeEc2, count: int, step_ms: int) -> None:
    """With the cloud's time the dispatcher's."""
    assert isinstance(fake.clock, SetClock)
    for _ in range(count):
        await w.passes(1, step_ms)
        fake.clock.advance(step_ms)
        fake.tick()


async def test_ends_are_moved_on_while_there_is_work_and_come_when_nobody_moves_them(
    inside: World, slow_fake: FakeEc2
) -> None:
    """Three VMs with hours of work, whose ends are moved by calls for all of them, with no look at a VM before. Then
    the dispatcher is no more, and the function of the account ends them: at their last end, and not before."""
    reaper = AccountReaper(slow_fake, deployment="lab")
    await inside.submit(3, expected_runtime_ms=2 * HOUR_MS)
    await passes(inside, slow_fake, 4, 1_000)
    first = living(slow_fake)
    assert len(first) == 3
    told = slow_fake.calls["CreateTags"]
    await passes(inside, slow_fake, 50, 4 * MINUTE_MS)
    last = living(slow_fake)
    assert last.keys() == first.keys()
    moved_ms = min(int(last[vm]) - int(first[vm]) for vm in first)
    assert moved_ms >= HOUR_MS
    assert 1 <= slow_fake.calls["CreateTags"] - told <= 12  # every end was moved seven times, each of three VMs'
    assert reaper.look() == []
    assert isinstance(slow_fake.clock, SetClock)
    slow_fake.clock.advance(min(map(int, last.values())) - slow_fake.clock.now() - 1)
    assert reaper.look() == []
    slow_fake.clock.advance(max(map(int, last.values())) - slow_fake.clock.now())
    assert set(reaper.look()) == set(last)
    assert living(slow_fake) == {}
