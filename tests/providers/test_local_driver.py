"""What the local driver does on its own: settings, offerings, quotas, faults, names."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cloud_dispatch.domain.ids import BatchId, InstanceId, ProfileName, VmId
from cloud_dispatch.domain.money import format_rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import InDoubt, InvalidRequest, QuotaExceeded, Transient, VmNotFound
from cloud_dispatch.provider.spi import ProfileContext
from cloud_dispatch_local.driver import LocalProvider
from cloud_dispatch_local.faults import FaultFile, parse
from cloud_dispatch_local.settings import LocalSettings
from tests.providers.local import DEPLOYMENT, cloud_config, driver, end_everything, request

SLEEP = cloud_config("sleep 600")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_everything(tmp_path)


async def test_offerings_carry_the_prices_of_the_settings(root: Path) -> None:
    """A price is used as it is written; spot exists with a discount and is bounded by the full price."""
    types = {"tiny": {"cpus": 0.5, "memory": "1GiB", "price": "0.0125", "boot_delay": "2s"}}
    spot, full = sorted(
        await driver(root, catalogue=types, spot_discount=60).offerings(), key=lambda offering: offering.rate or 0
    )
    assert (full.key, spot.key) == ("local/tiny/local/on-demand", "local/tiny/local/spot")
    assert format_rate(full.rate or 0) == "$0.0125/h"  # type: ignore[arg-type]
    assert (spot.rate, spot.max_rate) == (5_000_000, full.rate)
    assert full.type.capacity.cpus_milli == 500
    assert full.boot_ms >= 2_000
    assert all(offering.market is Market.ON_DEMAND for offering in await driver(root).offerings())


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"colour": "red"}, "colour"),
        ({"catalogue": {}}, "catalogue"),
        ({"catalogue": {"a b": {"cpus": 1, "memory": "1GiB", "price": "1"}}}, "catalogue"),
        ({"catalogue": {"a": {"cpus": 1, "memory": "1GiB", "price": 0.1}}}, "price"),
        ({"catalogue": {"a": {"cpus": 1, "memory": "1GiB", "price": "1" + "0" * 300}}}, "price"),
        ({"catalogue": {"a": {"cpus": 0, "memory": "1GiB", "price": "1"}}}, "cpus"),
        ({"boot_delay": "soon"}, "boot_delay"),
        ({"spot_discount": 100}, "spot_discount"),
        ({"max_vms": -1}, "max_vms"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], place: str) -> None:
    """Unknown keys and values out of bounds are errors with their place."""
    with pytest.raises(ValidationError) as caught:
        LocalSettings.model_validate(settings)
    assert any(place in map(str, error["loc"]) for error in caught.value.errors())


@pytest.mark.process
async def test_the_account_has_a_quota_of_its_own(root: Path) -> None:
    """`max_vms` bounds all types together and is a quota of the account; VMs count until they are gone."""
    provider = driver(root, max_vms=2)
    result = await provider.launch(await request(provider, SLEEP, slots=3))
    assert len(result.vms) == 2
    assert isinstance(result.shortfall, QuotaExceeded)
    with pytest.raises(QuotaExceeded, match="max_vms = 2"):
        await provider.launch(await request(provider, SLEEP, batch="b00000000002", type_name="local.2"))


async def test_requests_that_make_no_sense_are_refused(root: Path) -> None:
    """A type, zone, market, number of slots or name that can't be is an InvalidRequest, and nothing is made."""
    provider = driver(root)
    good = await request(provider, SLEEP)
    offering = good.offering
    for bad in (
        replace(good, offering=replace(offering, zone="mars")),
        replace(good, offering=replace(offering, market=Market.SPOT)),
        replace(good, offering=replace(offering, type=replace(offering.type, name="local.9"))),
        replace(good, slots=2),
        replace(good, slots=0, instances=()),
        replace(good, slots=17, instances=()),
        replace(good, batch=BatchId("../../etc"), instances=(InstanceId("../../etc-0"),)),
        replace(good, instances=(InstanceId("b00000000002-0"),)),
        replace(good, user_data="#cloud-config\n" + "#" * 16_384),
    ):
        with pytest.raises(InvalidRequest):
            await provider.launch(bad)
    assert (await provider.list(DEPLOYMENT)).vms == ()


async def test_a_vm_id_can_not_leave_the_registry(root: Path) -> None:
    """An id that is a path names no VM, whatever lies there."""
    provider = driver(root)
    for name in ("..", "../vms", "a/b", "", "A", "."):
        with pytest.raises(VmNotFound):
            await provider.get(VmId(name))
        await provider.terminate(VmId(name))
    assert (root / "vms").is_dir()


async def test_a_damaged_record_makes_the_listing_incomplete(root: Path) -> None:
    """A VM that can't be read is not absent: the listing proves nothing, and get says to try again."""
    provider = driver(root)
    folder = root / "vms" / "b00000000001-0"
    folder.mkdir()
    (folder / "vm.json").write_text("{")
    assert not (await provider.list(DEPLOYMENT)).complete
    with pytest.raises(Transient):
        await provider.get(VmId("b00000000001-0"))


async def test_half_made_vms_are_never_seen(root: Path) -> None:
    """A folder that a dead driver was making is no VM, and does not stand in the way of making it."""
    provider = driver(root)
    (root / "making" / "b00000000001-0" / "disk").mkdir(parents=True)
    assert (await provider.list(DEPLOYMENT)).vms == ()
    with pytest.raises(VmNotFound):
        await provider.get(VmId("b00000000001-0"))
    assert len((await provider.launch(await request(provider, cloud_config("true")))).vms) == 1


async def test_a_host_error_in_mid_launch_is_in_doubt(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk fills up while VMs are made, some may exist: the answer says so instead of denying it."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    provider = driver(root)
    monkeypatch.setattr("cloud_dispatch_local.driver.power_on", full)
    with pytest.raises(InDoubt, match="No space left"):
        await provider.launch(await request(provider, SLEEP))


def test_faults_are_used_up_across_drivers_and_come_again_with_a_new_file(tmp_path: Path) -> None:
    """The count of a fault is on disk: another driver goes on with it; writing the file anew starts it again."""
    path = tmp_path / "faults.json"
    path.write_text(json.dumps([{"operation": "launch", "type": "a", "times": 2, "error": "capacity"}]))
    taken = [FaultFile(path).take("launch", "a").error for _ in range(3)]
    assert taken == ["capacity", "capacity", ""]
    assert FaultFile(path).take("list").error == ""
    path.unlink()
    assert FaultFile(path).take("launch", "a").error == ""
    path.write_text(json.dumps([{"operation": "launch", "times": 1, "error": "rate"}]))
    assert FaultFile(path).take("launch", "b").error == "rate"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("{}", "expected a list"),
        ('[{"operation": "launch"}, {"when": 1}]', r"\[1\]: expected an object"),
        ("[{}]", r"\[0\]: expected an operation"),
        ('[{"operation": "dance"}]', r"\[0\]\.operation: 'dance'"),
        ('[{"operation": "list", "error": "odd"}]', r"\[0\]\.error: 'odd'"),
        ('[{"operation": "boot", "boot": "maybe"}]', r"\[0\]\.boot"),
        ('[{"operation": "launch", "error": "quota", "commit": true}]', r"\[0\]\.commit"),
    ],
)
def test_a_wrong_faults_file_is_an_error_with_its_place(text: str, complaint: str) -> None:
    """Whoever injects faults learns where the file is wrong, instead of injecting none."""
    with pytest.raises(InvalidRequest, match=complaint):
        parse(text, "faults.json")


def test_where_vms_are_listed_is_the_root_however_it_is_spelt(tmp_path: Path) -> None:
    """The profile's own folder goes with the dispatcher's state, and is the same one wherever that is."""
    own, other, link = tmp_path / "own", tmp_path / "other", tmp_path / "link"
    link.symlink_to(own)

    def place(state: Path, **said: Any) -> tuple[tuple[str, str], ...]:
        validated = LocalSettings.model_validate(said)
        return LocalProvider(ProfileContext(ProfileName("local"), validated, state, now=lambda: 0)).traits.place

    assert place(own) == place(own, root=own) == place(own, root=link) == place(other)
    assert place(own, root=other) == (("root", str(other)),)


def test_loading_the_plugin_loads_nothing_heavy() -> None:
    """The plugin object comes without settings model, driver, event loop or YAML."""
    code = (
        "import sys, cloud_dispatch_local as m; assert m.plugin.name == 'local'; m.plugin.template_variables();"
        "sys.stdout.write(' '.join({'pydantic', 'asyncio', 'yaml', 'subprocess'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
