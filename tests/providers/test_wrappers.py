"""The registry of drivers, the tag filter and the thread host: what they add to any driver."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import structlog

from cloud_dispatch.domain.errors import NotFound, Unavailable
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName, VmId
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.tags import DEPLOYMENT, VmTags
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.errors import CapacityUnavailable, Scope, Transient
from cloud_dispatch.provider.host import ThreadHost, hosted, inline
from cloud_dispatch.provider.spi import (
    Host,
    LaunchRequest,
    LaunchResult,
    Leftover,
    LeftoverKind,
    Listing,
    ProfileContext,
    Provider,
    Traits,
    Vm,
    VmState,
)
from cloud_dispatch.provider.tagfilter import TagFilter

CONTEXT = ProfileContext(ProfileName("p"), None, Path("/nonexistent"), now=lambda: 0)


def vm(name: str, tags: Mapping[str, str]) -> Vm:
    return Vm(VmId(name), VmState.RUNNING, "t", "z", tags, 0)


def facts(deployment: str) -> dict[str, str]:
    return VmTags(deployment, "store", PoolName("p"), BatchId("b00000000001"), 1, 1).encode()


class Careless:
    """A driver that lists whatever it has, blocks its loop when asked for a console, and remembers its threads."""

    def __init__(self, vms: Sequence[Vm] = ()) -> None:
        self.traits = Traits(max_batch=7, named_slots=True, vm_name="vm-{instance}")
        self.vms = tuple(vms)
        self.asked: list[str] = []
        self.threads = {threading.get_ident()}
        self.closed = False
        self.cancelled = threading.Event()
        self.go = threading.Event()

    async def offerings(self) -> Sequence[Offering]:
        return ()

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        raise CapacityUnavailable("none", scope=Scope(zone="z"))

    async def list(self, deployment: str) -> Listing:
        self.asked.append(deployment)
        self.threads.add(threading.get_ident())
        return Listing(self.vms)

    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        self.asked.append(deployment)
        return [Leftover(one.id, LeftoverKind.DISK, one.zone, one.tags) for one in self.vms]

    async def get(self, vm: VmId) -> Vm:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        raise AssertionError

    async def terminate(self, vm: VmId) -> None: ...

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        return frozenset()

    async def console(self, vm: VmId) -> str:
        self.go.wait(30)
        return "text"

    async def close(self) -> None:
        self.closed = True


class CarelessPlugin:
    name = "careless"
    settings = dict

    def __init__(self) -> None:
        self.made: list[Careless] = []

    def create(self, context: ProfileContext) -> Provider:
        self.made.append(Careless())
        return self.made[-1]

    def template_variables(self) -> Mapping[str, str]:
        return {}


async def test_a_listing_holds_only_vms_whose_tags_carry_the_deployment() -> None:
    """Whatever a provider's own filter lets through, only VMs that are ours by their decoded tags are listed."""
    broken = {key: value for key, value in facts("ours").items() if not key.endswith("batch")}
    driver = Careless([vm("a", facts("ours")), vm("b", facts("theirs")), vm("c", {}), vm("d", broken)])
    with structlog.testing.capture_logs() as records:
        listing = await TagFilter(driver, "ours").list("ours")
    assert [found.id for found in listing.vms] == ["a"]
    assert listing.complete
    assert [(record["event"], record["vm"]) for record in records] == [("provider.tags_unreadable", "d")]


async def test_leftovers_are_only_those_whose_tags_carry_the_deployment() -> None:
    """They are deleted: a disk of somebody else, of nobody, or with tags that can't be read is none of ours."""
    broken = {key: value for key, value in facts("ours").items() if not key.endswith("batch")}
    driver = Careless([vm("a", facts("ours")), vm("b", facts("theirs")), vm("c", {}), vm("d", broken)])
    with structlog.testing.capture_logs() as records:
        found = await TagFilter(driver, "ours").leftovers("ours")
    assert [one.id for one in found] == ["a"]
    assert [(record["event"], record["vm"]) for record in records] == [("provider.tags_unreadable", "d")]


@pytest.mark.parametrize(("own", "asked"), [("", ""), ("ours", ""), ("ours", "theirs")])
async def test_no_other_and_no_empty_deployment_is_listed(own: str, asked: str) -> None:
    """An empty or foreign deployment lists nothing, and that listing proves no absence; it has no leftovers either, and
    the driver, which may take an empty filter for none, is not even asked."""
    driver = Careless([vm("a", facts(own)), vm("b", facts(asked)), vm("c", {DEPLOYMENT: ""})])
    assert await TagFilter(driver, own).list(asked) == Listing((), complete=False)
    assert await TagFilter(driver, own).leftovers(asked) == ()
    assert driver.asked == []


async def test_a_blocking_driver_does_not_stall_the_callers_loop() -> None:
    """While a driver blocks its own loop, the dispatcher's goes on; the driver lives in one thread from birth."""
    plugin = CarelessPlugin()
    host = ThreadHost(plugin, CONTEXT)
    try:
        (driver,) = plugin.made
        call = asyncio.create_task(host.console(VmId("a")))
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not call.done()
        driver.go.set()
        assert await call == "text"
        await host.list("x")
        assert len(driver.threads) == 1
        assert threading.get_ident() not in driver.threads
        assert (host.traits.max_batch, host.traits.vm_id(InstanceId("i"), "z")) == (7, "vm-i")
    finally:
        await host.close()


async def test_errors_cross_the_thread_as_they_are() -> None:
    """A caller can't tell a hosted driver's errors from an inline one's."""
    host = ThreadHost(CarelessPlugin(), CONTEXT)
    try:
        for provider in (host, inline(CarelessPlugin(), CONTEXT)):
            with pytest.raises(CapacityUnavailable) as caught:
                await provider.launch(None)  # type: ignore[arg-type]
            assert caught.value.scope == Scope(zone="z")
    finally:
        await host.close()


async def test_a_cancelled_call_is_cancelled_in_the_thread() -> None:
    """A caller's deadline reaches the driver."""
    plugin = CarelessPlugin()
    host = ThreadHost(plugin, CONTEXT)
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await host.get(VmId("a"))
        assert await asyncio.get_running_loop().run_in_executor(None, plugin.made[0].cancelled.wait, 5)
    finally:
        await host.close()


async def test_a_closed_host_leaves_no_thread_and_refuses_calls() -> None:
    """Closing closes the driver and ends its thread, may be repeated, and calls after it are Transient errors."""
    plugin = CarelessPlugin()
    before = set(threading.enumerate())
    host = ThreadHost(plugin, CONTEXT)
    assert set(threading.enumerate()) - before
    await host.close()
    await host.close()
    assert plugin.made[0].closed
    assert not set(threading.enumerate()) - before
    with pytest.raises(Transient, match="closed"):
        await host.list("x")


def test_a_driver_that_can_not_be_made_says_why_and_leaves_no_thread() -> None:
    """The error of making a driver is the caller's."""
    before = threading.active_count()
    with pytest.raises(AttributeError):
        ThreadHost(object(), CONTEXT)  # type: ignore[arg-type]
    assert threading.active_count() == before


def test_installed_drivers_are_found_by_entry_point() -> None:
    """The local driver is installed with the product, and loading its plugin gives its settings model."""
    assert "local" in registry.names()
    plugin = registry.plugin("local")
    assert plugin.name == "local"
    assert plugin.settings.__name__ == "LocalSettings"
    assert plugin.template_variables()["base_folder"]


def test_an_unknown_driver_is_named_with_those_that_exist() -> None:
    """A misspelt driver is NotFound, with the installed ones as hint."""
    with pytest.raises(NotFound, match=r"no such driver 'locl' \(installed: .*local"):
        registry.plugin("locl")


class _Distribution:
    name = "cloud-dispatch"

    class metadata:  # noqa: N801  (as importlib.metadata spells it)
        @staticmethod
        def get_all(_: str) -> list[str]:
            return ["aws"]


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Installs a module with a plugin under a driver's name, as a distribution with an extra `aws` would."""

    def install(driver: str, source: str, module: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        point = EntryPoint(driver, f"{module}:plugin", registry.GROUP)
        vars(point).update(dist=_Distribution())
        monkeypatch.setattr(registry, "_find", lambda _: point)

    monkeypatch.syspath_prepend(tmp_path)
    yield install
    for name in [name for name in sys.modules if name.startswith("planted_")]:
        del sys.modules[name]


LAZY = """
class P:
    name = "x"
    settings = dict
    def template_variables(self): return {}
    def create(self, context):
        import no_such_sdk.ec2
plugin = P()
"""


def test_a_missing_sdk_names_the_extra_to_install(entry: Any) -> None:
    """A driver without its SDK loads; making it says what to install, whether or not there is an extra for it."""
    entry("aws", LAZY, "planted_lazy")
    with pytest.raises(Unavailable, match=r"driver aws needs no_such_sdk \(pip install 'cloud-dispatch\[aws\]'\)"):
        registry.plugin("aws").create(CONTEXT)
    entry("mine", LAZY, "planted_lazy")
    with pytest.raises(Unavailable, match=r"driver mine needs no_such_sdk \(install no_such_sdk\)"):
        registry.plugin("mine").create(CONTEXT)


def test_a_driver_that_can_not_be_loaded_says_so(entry: Any) -> None:
    """A plugin module that lacks a package, or lacks the plugin, is an error that names the driver."""
    entry("aws", "import no_such_sdk", "planted_eager")
    with pytest.raises(Unavailable, match="driver aws needs no_such_sdk"):
        registry.plugin("aws")
    entry("aws", "x = 1", "planted_empty")
    with pytest.raises(Unavailable, match="driver aws is broken: planted_empty:plugin does not exist"):
        registry.plugin("aws")


@pytest.mark.process
@pytest.mark.parametrize(("wish", "host"), [("inline", "Odd"), ("thread", "ThreadHost"), ("process", "ProcessHost")])
async def test_a_driver_runs_where_its_plugin_wants(entry: Any, tmp_path: Path, wish: str, host: str) -> None:
    """The plugin's word decides, and the process finds the plugin by its entry point's value."""
    source = "from tests.providers.odd import OddPlugin\nclass P(OddPlugin): host = " + repr(wish) + "\nplugin = P()\n"
    entry("odd", source, f"planted_{wish}")
    plugin = registry.plugin("odd")
    made = hosted(plugin, ProfileContext(ProfileName("p"), plugin.settings(), tmp_path, now=lambda: 0))
    assert type(made).__name__ == host
    assert await made.console(VmId("v"))
    await made.close()


@pytest.mark.process
async def test_a_missing_sdk_is_named_from_the_process_too(entry: Any, tmp_path: Path) -> None:
    """Only the child imports the SDK; what it lacks is said with what to install."""
    entry("aws", "from tests.providers.odd import plugin\n", "planted_child_lacks")
    plugin = registry.plugin("aws")
    settings = plugin.settings(making="import")
    with pytest.raises(Unavailable, match=r"driver aws needs no_such_sdk \(pip install 'cloud-dispatch\[aws\]'\)"):
        hosted(plugin, ProfileContext(ProfileName("p"), settings, tmp_path, now=lambda: 0))


def test_a_plugin_that_says_nothing_gets_a_thread(entry: Any) -> None:
    """As it was before plugins could say."""
    entry("x", LAZY, "planted_silent")
    assert registry.plugin("x").host is Host.THREAD
