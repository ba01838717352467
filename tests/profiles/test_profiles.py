"""The examples of `profiles/` are good, rent what they are for, tell why not the rest, and boot.

They are asked of the fake clouds by the real drivers. On AWS prices on demand are those of the table that comes with
the driver; what the fakes of Google Cloud and Azure ask is near the true prices.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloud_dispatch import meaning, userdata
from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.cli.main import run
from cloud_dispatch.cloudinit import multipart, schema
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.snapshot import Blocked, DemandItem
from cloud_dispatch.reconcile.spend import stale_price
from cloud_dispatch.spend.windows import Window
from tests.fakes.arm import fake as arm
from tests.fakes.arm import settings as azure
from tests.fakes.clock import RealClock
from tests.fakes.ec2 import FakeEc2
from tests.fakes.ec2 import settings as ec2
from tests.fakes.gce import FakeGce
from tests.fakes.gce import settings as gce
from tests.profiles.scenes import CLOUDS, FOLDER, NAMES, Scene, drivers, example, launches, offerings, work

EVERY = [pytest.param(cloud, name, id=f"{cloud}-{name}") for cloud in CLOUDS for name in NAMES]
#: The smallest that any provider takes is 16 KiB; half of it is left for what operators add.
MOST_BYTES = 8 * 1024
_HOURS = {Window.HOUR: 1, Window.DAY: 24, Window.MONTH: 24 * 28, Window.TOTAL: 10**6}
#: By example: work that it is for.
FITTING = {
    "air-gapped": work(20, 2, 4, 10),
    "cpu-burst": work(200, 1, 1, 10),
    "gpu-training": work(3, 4, 12, 120, gpus=1),
    "memory-heavy": work(8, 2, 14, 60),
    "mixed": work(60, 2, 4, 15),
    "multi-account": work(40, 2, 4, 15),
    "spot-only": work(50, 1, 2, 20),
}
#: By example: work that it is not for, and what is said of it.
MISFIT = {
    "air-gapped": (work(1, 1, 1, 1, gpus=1), "asks for 1 gpu, has 0"),
    "cpu-burst": (work(1, 1, 1, 1, gpus=1), "asks for 1 gpu, has 0"),
    "gpu-training": (work(1, 1, 1, 1, gpus=1, gpu_type="b200"), "b200"),
    "memory-heavy": (work(1, 1, 4_096, 1), "asks for 4TiB memory"),
    "mixed": (work(1, 96, 4, 1), "asks for 96 cpu"),
    "multi-account": (work(1, 1, 1, 1, gpus=1), "asks for 1 gpu, has 0"),
    "spot-only": (work(1, 1, 2, 20, preemptible=False), "preempt"),
}


class Clouds:
    """The three fakes, and each example's scene with them, made when it is first asked for."""

    def __init__(self, folder: Path, places: dict[str, dict[str, Any]]) -> None:
        self._folder = folder
        self._places = places
        self._made: dict[tuple[str, str], Scene] = {}

    def scene(self, cloud: str, name: str) -> Scene:
        if (cloud, name) not in self._made:
            config = example(cloud, name, self._places[cloud])
            now = time.time_ns() // 1_000_000
            self._made[cloud, name] = Scene(config, offerings(config, self._folder / cloud / name, now), now)
        return self._made[cloud, name]


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clouds]:
    """Leaving fails where something was asked that a fake has not."""
    folder = tmp_path_factory.mktemp("clouds")
    configs = [example(cloud, "multi-account") for cloud in CLOUDS]
    owners = {config.profiles["research"].driver: config.profiles for config in configs}
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        research = owners["aws"]["research"].settings
        roles = {research.role_arn: research.external_id}
        aws = stack.enter_context(FakeEc2(ec2.Settings(types=("*",), roles=roles), RealClock()))
        projects = ["lab-123456", *(profile.settings.project for profile in owners["gcp"].values())]
        google = stack.enter_context(
            FakeGce(gce.Settings(projects={name: 1 + at for at, name in enumerate(projects)}), RealClock())
        )
        subscriptions = tuple(profile.settings.subscription for profile in owners["azure"].values())
        microsoft = stack.enter_context(
            arm.FakeArm(azure.Settings(subscriptions=subscriptions, locations=("eastus",)), RealClock())
        )
        keys = {"AWS_ACCESS_KEY_ID": ec2.KEY.id, "AWS_SECRET_ACCESS_KEY": ec2.KEY.secret}
        for key, value in {**keys, **microsoft.environment()}.items():
            patch.setenv(key, value)
        url = microsoft.url
        yield Clouds(folder, {
            "aws": {"endpoint_url": aws.url, "price_list": False, "subnets": [], "security_groups": []},
            "gcp": {"endpoint_url": google.url, "credentials_file": str(google.write_key(folder))},
            "azure": {
                "endpoint_url": url, "authority_url": url, "prices_url": microsoft.prices_url,
                "ca_file": microsoft.ca_file, "credential": "environment",
            },
        })  # fmt: skip


def test_every_cloud_has_every_example() -> None:
    """And no file is without its test."""
    found = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}
    assert found == {"README.md", "mirror.yaml", *(f"{cloud}/{name}.toml" for cloud in CLOUDS for name in NAMES)}


@pytest.mark.parametrize(("cloud", "name"), EVERY)
def test_the_file_is_good_as_it_stands(cloud: str, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """`config check` finds nothing; each profile has a cap, a limit a day and one a month."""
    path = FOLDER / cloud / f"{name}.toml"
    assert run(["config", "check", "--config", str(path)]) == 0, capfd.readouterr().err
    config = example(cloud, name)
    meaning.check_reachable(config)
    for profile in config.profiles.values():
        assert profile.driver == cloud
        assert (profile.caps.instances, profile.caps.vcpus) != (None, None)
        assert {Window.DAY, Window.MONTH} <= profile.budget.limits.keys()
    assert not config.guest_enforced_pools()


@pytest.mark.parametrize(("cloud", "name"), EVERY)
def test_fitting_work_is_planned_for_and_the_limits_admit_it(clouds: Clouds, cloud: str, name: str) -> None:
    """All of it, at prices that are known. A VM of each kind may last for its pool's lifetime under every limit: work
    of unknown length is reserved for as long."""
    scene = clouds.scene(cloud, name)
    found = scene.plan(FITTING[name])
    assert launches(found)
    assert not found.unsatisfiable
    assert [one.reason for one in found.waiting if one.left] == []
    for launch in launches(found):
        section = scene.config.pool_sections[launch.pool]
        assert launch.offering.highest_rate is not None
        hours = section.end.lifetime_ms / 3_600_000
        for budget in (section.budget, scene.config.profiles[launch.offering.profile].budget, scene.config.budget):
            for window, limit in budget.limits.items():
                most = launch.offering.top_rate / 1000 * min(hours, _HOURS[window])  # micro-dollars
                assert most <= limit, (launch.offering.key, window)


@pytest.mark.parametrize(("cloud", "name"), EVERY)
def test_work_that_does_not_fit_is_told_why(clouds: Clouds, cloud: str, name: str) -> None:
    """Nothing is rented for it, and the reason names what it lacks. No example rents Arm machines."""
    demand, why = MISFIT[name]
    scene = clouds.scene(cloud, name)
    found = scene.plan(demand)
    (told,) = found.unsatisfiable
    assert {one.type.architecture for one in scene.offerings} == {"x86_64"}
    assert why in f"{told.reason} {told.nearest}"
    assert [one for one in launches(found) if one.pool != "base"] == []


def rented(clouds: Clouds, cloud: str, name: str, *demand: DemandItem, **more: Any) -> list[Offering]:
    return [one.offering for one in launches(clouds.scene(cloud, name).plan(*(demand or (FITTING[name],)), **more))]


def no_spot(profile: str) -> dict[str, tuple[Blocked, ...]]:
    """Spot machines are sold out."""
    return {"blocked": (Blocked(ProfileName(profile), 2**60, "sold out", market="spot", obstacle=Obstacle.REFUSED),)}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_burst_is_wide(clouds: Clouds, cloud: str) -> None:
    """So many cpus at once that all is done in a quarter of an hour, within the cap, on machines without GPUs; on
    demand where spot is sold out."""
    found = launches(clouds.scene(cloud, "cpu-burst").plan(FITTING["cpu-burst"]))
    vcpus = sum(one.offering.type.vcpus * one.slots for one in found)
    assert 200 <= vcpus <= 512
    assert {one.offering.market for one in found} == {Market.SPOT}
    assert not any(one.offering.type.capacity.gpus for one in found)
    later = rented(clouds, cloud, "cpu-burst", **no_spot("burst"))
    assert {one.market for one in later} == {Market.ON_DEMAND}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_training_gets_gpus(clouds: Clouds, cloud: str) -> None:
    """Whatever it asks for by name, and the driver that they need."""
    for demand in (FITTING["gpu-training"], work(1, 8, 64, 240, gpus=1, gpu_type="a100")):
        found = rented(clouds, cloud, "gpu-training", demand)
        assert found
        for one in found:
            assert one.type.capacity.gpus >= 1
            assert one.market is Market.ON_DEMAND
            assert demand.shape.gpu_type in ("", one.type.gpu_type)
    config = clouds.scene(cloud, "gpu-training").config
    assert config.pool_sections["train"].boot.nvidia


@pytest.mark.parametrize("cloud", CLOUDS)
def test_memory_heavy_work_gets_memory(clouds: Clouds, cloud: str) -> None:
    """Eight GiB a cpu, of which the system keeps its own; never on spot machines."""
    found = rented(clouds, cloud, "memory-heavy")
    assert all(one.type.capacity.memory >= one.type.vcpus * 7.5 * GIB for one in found)
    assert {one.market for one in found} == {Market.ON_DEMAND}
    (pool,) = clouds.scene(cloud, "memory-heavy").config.pools()
    assert pool.reserve.memory == 2 * GIB


@pytest.mark.parametrize("cloud", CLOUDS)
def test_spot_only_is_never_on_demand(clouds: Clouds, cloud: str) -> None:
    """Also where spot is sold out: then it waits, and says for what."""
    assert {one.market for one in rented(clouds, cloud, "spot-only")} == {Market.SPOT}
    found = clouds.scene(cloud, "spot-only").plan(FITTING["spot-only"], **no_spot("spare"))
    assert launches(found) == []
    assert "sold out" in found.waiting[0].reason
    assert len({one.type.name for one in clouds.scene(cloud, "spot-only").offerings}) >= 5


@pytest.mark.parametrize("cloud", CLOUDS)
def test_mixed_has_a_base_on_demand_and_the_rest_on_spot_and_on_demand_for_it(clouds: Clouds, cloud: str) -> None:
    """One is always there. The rest is spot; where that is sold out, and for who must not be interrupted, on demand."""
    scene = clouds.scene(cloud, "mixed")
    (base,) = launches(scene.plan())
    assert (base.pool, base.slots, base.offering.market) == ("base", 1, Market.ON_DEMAND)
    assert base.offering.type.vcpus == 4

    def markets(demand: DemandItem, **more: Any) -> set[Market]:
        return {one.offering.market for one in launches(scene.plan(demand, **more)) if one.pool == "default"}

    assert markets(FITTING["mixed"]) == {Market.SPOT}
    assert markets(FITTING["mixed"], **no_spot("mixed")) == {Market.ON_DEMAND}
    steady = work(60, 2, 4, 15, preemptible=False)
    assert markets(steady) == {Market.ON_DEMAND}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_stand_in_for_spot_hangs_on_the_factor(clouds: Clouds, cloud: str) -> None:
    """With the default of 1.5 nothing on demand is rented in its place: the examples say another for that."""
    scene = clouds.scene(cloud, "mixed")
    sections = scene.config.pool_sections
    narrow = sections["default"].model_copy(update={"price_factor_percent": 150})
    config = scene.config.model_copy(update={"pool_sections": {**sections, "default": narrow}})
    found = Scene(config, scene.offerings, scene.now).plan(FITTING["mixed"], **no_spot("mixed"))
    assert [one for one in launches(found) if one.pool == "default"] == []


@pytest.mark.parametrize("cloud", CLOUDS)
def test_air_gapped_machines_have_no_public_address_and_cost_what_the_file_says(clouds: Clouds, cloud: str) -> None:
    """No price service and no table has a say, so that a limit finds no price too old."""
    scene = clouds.scene(cloud, "air-gapped")
    (profile,) = scene.config.profiles.values()
    assert profile.settings.public_address is False
    assert profile.settings.price_list is False
    for one in rented(clouds, cloud, "air-gapped"):
        assert f"{(one.rate or 0) / 10**9:g}" == f"{float(profile.pricing[one.type.name]):g}"
        assert stale_price(one, scene.now) == ""


@pytest.mark.parametrize("cloud", CLOUDS)
def test_one_account_s_trouble_is_not_the_other_s(clouds: Clouds, cloud: str) -> None:
    """Each has its own limit; what can't be had in the first comes from the second, up to its cap."""
    scene = clouds.scene(cloud, "multi-account")
    budgets = {(str(one.key.scope), one.key.name) for one in scene.config.budgets()}
    assert {("profile", "research"), ("profile", "teaching"), ("driver", cloud)} <= budgets
    research, teaching = ProfileName("research"), ProfileName("teaching")
    assert {one.profile for one in scene.offerings} == {research, teaching}
    blocked = (Blocked(research, 2**60, "credentials refused", obstacle=Obstacle.REFUSED),)
    found = launches(scene.plan(work(400, 2, 4, 15), blocked=blocked))
    assert {one.offering.profile for one in found} == {teaching}
    assert 32 < sum(one.offering.type.vcpus * one.slots for one in found) <= 64
    (own,) = {one.offering.profile for one in launches(scene.plan(work(2, 2, 4, 15, pool="teaching")))}
    assert own == teaching


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], list[tuple[userdata.Specimen, bytes]]]:
    """What VMs of an example get, from each profile of each pool."""
    folder, clock = tmp_path_factory.mktemp("documents"), SystemClock()

    def made(cloud: str, name: str) -> list[tuple[userdata.Specimen, bytes]]:
        config = example(cloud, name)
        trusted = userdata.trusted(config, "0123456789abcdef" * 4, None)
        providers = drivers(config, folder, clock.now())
        found = [
            userdata.specimen(config, pool, profile, providers[profile].traits, trusted, clock)
            for pool in config.pools()
            for profile in pool.profiles
        ]
        return [(one, userdata.sending.sent(one.text, providers[ProfileName(one.profile)].traits)) for one in found]

    return made


@pytest.mark.parametrize(("cloud", "name"), EVERY)
def test_user_data_is_small_and_cloud_init_accepts_it(documents: Any, cloud: str, name: str) -> None:
    """As the driver sends it, of every pool and profile."""
    program = schema.program()
    assert program is not None
    for specimen, sent in documents(cloud, name):
        assert specimen.error is None
        assert len(sent) == specimen.bytes
        assert 3_000 < len(base64.b64encode(sent)) < MOST_BYTES  # in which form all three take them
        for document in multipart.cloud_configs(specimen.text):
            assert schema.complaint(program, document) == ""


@pytest.mark.parametrize("cloud", CLOUDS)
def test_air_gapped_machines_boot_by_mirror_and_proxy(documents: Any, cloud: str) -> None:
    """apt and pip ask the mirror, the rest goes by the proxy, and the dispatcher is asked without it."""
    ((specimen, _),) = documents(cloud, "air-gapped")
    parsed = [yaml.safe_load(one) for one in multipart.cloud_configs(specimen.text)]
    (apt,) = [one["apt"] for one in parsed if "apt" in one]
    assert {one["uri"] for kind in ("primary", "security") for one in apt[kind]} == {
        "http://mirror.example.internal/ubuntu"
    }
    assert "find_links = http://mirror.example.internal/wheels/" in specimen.text
    assert "https_proxy=" in specimen.text
    config = example(cloud, "air-gapped")
    outside = config.pool_sections["default"].boot.proxy.no.split(",")
    assert {"10.0.0.5", "169.254.169.254", "mirror.example.internal"} <= set(outside)
    assert "10.0.0.5" in config.advertise_url
