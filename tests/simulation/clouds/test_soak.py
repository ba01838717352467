"""Random traffic under random trouble: what must hold of every account at every moment, and once it is quiet."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.records import Record
from cloud_dispatch.simulation.clouds.settings import Cloud, Mishaps, Reads, Tide
from cloud_dispatch.simulation.entropy import SeededStreams
from cloud_dispatch.simulation.ports import EndCause, Stream, TrueVm
from tests.simulation.clouds.scene import DEPLOYMENT, HOUR_MS, Scene

QUIET_MS = 6 * HOUR_MS
NEXT = {
    VmState.PENDING: {VmState.RUNNING, VmState.STOPPING, VmState.GONE},
    VmState.RUNNING: {VmState.STOPPING, VmState.STOPPED, VmState.GONE},
    VmState.STOPPED: {VmState.STOPPING},
    VmState.STOPPING: {VmState.GONE},
    VmState.GONE: set(),
}


class Watched(Scene):
    """Checks each word that the account says to its guests."""

    def __init__(self, cloud: Cloud, stream: Stream, seed: int) -> None:
        self.state: dict[int, VmState] = {}
        self.lives: dict[int, bool] = {}
        self.spent = 0
        usual = defaults(cloud)
        settings = replace(
            usual, mishaps=Mishaps(0.05, 0.05, 0.05, 0.1, 900_000, 10 * HOUR_MS), reads=replace(usual.reads, page=7),
            spot=replace(usual.spot, reclaim_mean_ms=3 * HOUR_MS), tide=Tide(dry=0.1, dry_spot=0.2),
        )  # fmt: skip
        super().__init__(settings, trouble(stream), seed)

    def on_change(self, vm: TrueVm) -> None:
        assert isinstance(vm, Record)
        before = self.state.get(vm.number)
        assert vm.state is VmState.PENDING if before is None else vm.state in NEXT[before], (before, vm.state)
        self.state[vm.number] = vm.state

    def on_boot(self, vm: TrueVm, user_data: str) -> None:
        assert isinstance(vm, Record)
        assert vm.number not in self.lives
        assert vm.state is VmState.RUNNING
        assert user_data == f"#cloud-config {vm.batch}"
        self.lives[vm.number] = True

    def on_end(self, vm: TrueVm, cause: EndCause) -> None:
        assert isinstance(vm, Record)
        assert self.lives[vm.number]
        self.lives[vm.number] = False

    def on_notice(self, vm: TrueVm, ends_ms: int) -> None:
        assert isinstance(vm, Record)
        assert vm.market is Market.SPOT
        assert self.lives[vm.number]

    def check(self) -> None:
        """The account's own books agree with each other, and the bill never falls."""
        records = self.account.register.all
        live = [record for record in records if record.state is not VmState.GONE]
        assert live == self.account.register.live()
        stock = self.account.stock
        assert sum(stock._live.values()) == len(live)
        assert sum(stock._vcpus.values()) == sum(record.vcpus for record in live)
        assert min([*stock._live.values(), *stock._vcpus.values(), 0]) == 0
        for record in self.account.inventory():
            assert self.state[record.number] is record.state
            if record.state is VmState.GONE:
                assert not record.guest_lives
                assert not record.extras
                assert record.billed_from_ms is None or record.billed_until_ms is not None
        spent = sum(self.bill().values())
        assert spent >= self.spent
        self.spent = spent


def trouble(stream: Stream) -> list[Fault]:
    """A dozen faults of any kind, over by the time that all is quiet."""
    faults = []
    for _ in range(12):
        kind = stream.pick(list(FaultKind))
        begin_ms = stream.below(4 * HOUR_MS)
        operation = stream.pick(["", "launch", "terminate", "list", "get", "tag", "resume", "nic"])
        amount = {FaultKind.PREEMPT: -1, FaultKind.QUOTA: 8, FaultKind.CAPACITY: 2, FaultKind.PRICE: 50_000_000}.get(
            kind, stream.below(30_000)
        )
        faults.append(
            Fault(
                kind, operation if kind is not FaultKind.STALE else "list", from_ms=begin_ms,
                until_ms=begin_ms + HOUR_MS, times=stream.below(4), amount=amount,
                error=stream.pick(["Transient", "RateLimited", "CapacityUnavailable", "InDoubt"]),
            )
        )  # fmt: skip
    return faults


async def act(scene: Watched, stream: Stream) -> None:
    """One thing that a dispatcher or a guest may do; its call may be given up."""
    what, patience = stream.below(6), stream.pick([0.4, 60, 60])
    async with asyncio.timeout(patience):
        vms = (await scene.driver.list(DEPLOYMENT)).vms
        if what < 2 or not vms:
            ends_ms = stream.pick([0, scene.clock.now() + 2 * HOUR_MS])
            request = await scene.request(stream.between(1, 6), stream.pick(list(Market)), ends_ms)
            await scene.settle(request)
            if stream.chance(0.3):
                await scene.settle(request)
        elif what == 2:
            await scene.driver.terminate(stream.pick(vms).id)
        elif what == 3:
            await scene.driver.tag([stream.pick(vms).id], {"more": str(stream.below(9))})
        elif what == 4:
            scene.account.guest_shuts_down(stream.pick(vms).id)
        else:
            for left in await scene.driver.leftovers(DEPLOYMENT):
                await scene.driver.delete_leftover(left)


@pytest.mark.parametrize("cloud", list(Cloud))
@pytest.mark.parametrize("seed", range(12))
async def test_an_account_keeps_its_books_whatever_happens(cloud: Cloud, seed: int) -> None:
    """At every step the books agree; when trouble is over, deleting what listings show leaves nothing that bills."""
    stream = SeededStreams(seed).stream("soak", cloud)
    scene = Watched(cloud, stream, seed)
    broken: list[object] = []  # what a timer raises, its loop would only log
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    while scene.clock.now() < scene.account.born_ms + QUIET_MS:
        try:
            await act(scene, stream)
        except (ProviderError, TimeoutError):
            pass
        scene.check()
        assert broken == []
        await asyncio.sleep(stream.below(300))
    for _ in range(4):
        await asyncio.sleep(scene.driver.traits.consistency_ms / 1000)
        for vm in await scene.vms():
            await scene.driver.terminate(vm.id)
        await asyncio.sleep(300)
        for left in await scene.driver.leftovers(DEPLOYMENT):
            await scene.driver.delete_leftover(left)
    scene.check()
    assert broken == []
    assert len(scene.account.inventory()) > 5
    assert [record.id for record in scene.account.register.live()] == []
    assert not scene.account.leftovers()
    assert not any(line.running for line in scene.account.bill())


@pytest.mark.parametrize("cloud", list(Cloud))
async def test_after_the_horizon_reads_show_the_truth(cloud: Cloud) -> None:
    """Once nothing has changed for a horizon, a complete listing is the inventory, whatever chance draws."""
    usual = defaults(cloud)
    scene = Scene(replace(usual, reads=Reads(list_ms=60_000, get_ms=30_000, page=4)), seed=5)
    for _ in range(6):
        await scene.settle(await scene.request(3))
        vms = (await scene.driver.list(DEPLOYMENT)).vms
        for vm in vms[:1]:
            await scene.driver.terminate(vm.id)
        await asyncio.sleep(300 + scene.driver.traits.consistency_ms / 1000)
        truth = {record.id: record.state for record in scene.account.register.live()}
        for _ in range(20):
            shown = {vm.id: vm.state for vm in await scene.vms() if vm.state is not VmState.GONE}
            assert shown == truth
