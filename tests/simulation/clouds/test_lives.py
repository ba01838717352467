"""Lives of VMs: boots that fail, ends by guests, hosts, markets and hands, and what each cloud makes of them."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from dataclasses import replace

import pytest

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.tags import ENDS_AT
from cloud_dispatch.provider.spi import HardEnd, LeftoverKind, VmState
from cloud_dispatch.reapers import rounds
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.make import open_account
from cloud_dispatch.simulation.clouds.records import Record
from cloud_dispatch.simulation.clouds.settings import Cloud, Mishaps, Spot
from cloud_dispatch.simulation.entropy import SeededStreams
from cloud_dispatch.simulation.ports import EndCause
from tests.simulation.clouds.scene import DEPLOYMENT, HOUR_MS, STEADY, Scene, steady


async def test_a_vm_starts_boots_and_ends_when_its_settings_say() -> None:
    """Pending, running after 10 s, its user data after 20 s more; the guest lives until the power goes."""
    scene = Scene(steady(Cloud.GCE))
    (record,) = await scene.up()
    made_ms = record.created_ms - scene.account.born_ms
    assert scene.of("boot") == [(made_ms + 30_000, record.id, record.user_data)]
    await scene.driver.terminate(record.id)
    asked_ms = record.since_ms - scene.account.born_ms
    assert scene.of("end") == []
    await asyncio.sleep(10)
    assert scene.of("end") == [(asked_ms + 5_000, record.id, EndCause.TERMINATED)]
    states = [state for _, _, state in scene.of("change")]
    assert states == [VmState.PENDING, VmState.RUNNING, VmState.STOPPING, VmState.GONE]
    assert record.ended_ms == scene.account.born_ms + asked_ms + 5_000


@pytest.mark.parametrize(
    ("kind", "console"), [(FaultKind.NEVER_BOOTS, ""), (FaultKind.USER_DATA_FAILS, "user data failed")]
)
async def test_a_vm_that_runs_without_an_agent_bills_and_never_boots(kind: FaultKind, console: str) -> None:
    """The cloud shows it running and bills it; nothing starts on it; the console tells the two kinds apart."""
    scene = Scene(steady(Cloud.EC2), [Fault(kind, times=1)])
    dead, alive = await scene.launch(2)
    await asyncio.sleep(HOUR_MS / 1000)
    assert [vm for _, vm, _ in scene.of("boot")] == [alive.id]
    assert await scene.states() == [VmState.RUNNING] * 2
    assert scene.bill()[dead.id] == scene.bill()[alive.id] > 0
    assert console in await scene.driver.console(dead.id)
    assert "user data started" in await scene.driver.console(alive.id)
    await scene.driver.terminate(dead.id)
    await asyncio.sleep(10)
    assert (dead.state, scene.of("end")) == (VmState.GONE, [])


async def test_a_vm_may_boot_late() -> None:
    """It is as any other, ten minutes later."""
    scene = Scene(steady(Cloud.GCE), [Fault(FaultKind.LATE, amount=600_000, times=1)])
    late, other = await scene.up(2)
    boots = {vm: at_ms for at_ms, vm, _ in scene.of("boot")}
    assert boots[late.id] - boots[other.id] == 600_000


async def test_mishaps_happen_so_often_as_the_settings_say() -> None:
    """Of 400 VMs about a tenth never boot and about a fifth boot late; the clocks drift within their bound."""
    mishaps = Mishaps(never_boots=0.1, late=0.2, late_by_ms=600_000, drift_ppm=80)
    scene = Scene(steady(Cloud.EC2, mishaps=mishaps, quotas=()))
    records = [record for _ in range(4) for record in await scene.launch(100)]
    await asyncio.sleep(3_600)
    never = [record for record in records if not record.guest_lives]
    late = [at_ms for at_ms, _, _ in scene.of("boot") if at_ms > 600_000]
    assert 20 < len(never) < 65
    assert 50 < len(late) < 115
    drifts = [record.drift_ppm for record in records]
    assert -80 <= min(drifts) < -40 < 40 < max(drifts) <= 80


async def test_a_guests_clock_can_be_made_to_run_fast() -> None:
    """The fault says by how many parts per million; the next VM has its own drift again."""
    scene = Scene(steady(Cloud.EC2), [Fault(FaultKind.DRIFT, amount=900, times=1)])
    first, second = await scene.launch(2)
    assert (first.drift_ppm, second.drift_ppm) == (900, 0)


@pytest.mark.parametrize(
    ("cloud", "state", "bills"),
    [(Cloud.EC2, VmState.GONE, False), (Cloud.GCE, VmState.STOPPED, False), (Cloud.ARM, VmState.STOPPED, True)],
)
async def test_a_guest_that_powers_off_ends_stops_or_stops_and_bills(cloud: Cloud, state: VmState, bills: bool) -> None:
    """EC2 ends the VM, GCE stops it, ARM stops it and bills on until it is deleted."""
    scene = Scene(steady(cloud))
    (record,) = await scene.up()
    scene.account.guest_shuts_down(record.id)
    assert [(vm, cause) for _, vm, cause in scene.of("end")] == [(record.id, EndCause.SHUT_DOWN)]
    assert record.state is state
    before = scene.bill()[record.id]
    await asyncio.sleep(HOUR_MS / 1000)
    assert (scene.bill()[record.id] > before) is bills
    await scene.driver.terminate(record.id)
    await asyncio.sleep(1)
    after = scene.bill()[record.id]
    await asyncio.sleep(HOUR_MS / 1000)
    assert (record.state, scene.bill()[record.id]) == (VmState.GONE, after)
    scene.account.guest_shuts_down(record.id)
    assert len(scene.of("end")) == 1


async def test_a_host_that_fails_takes_its_vm() -> None:
    """The guest is dead at once, and the cloud shows that it does not run; a death by chance comes the same way."""
    scene = Scene(steady(Cloud.GCE), [Fault(FaultKind.DEATH, from_ms=HOUR_MS)])
    (record,) = await scene.up()
    await asyncio.sleep(HOUR_MS / 1000)
    assert scene.of("end") == [(HOUR_MS, record.id, EndCause.DIED)]
    assert await scene.states() == [VmState.STOPPED]
    chance = Scene(steady(Cloud.EC2, mishaps=Mishaps(death_mean_ms=HOUR_MS)))
    await chance.up(20)
    await asyncio.sleep(HOUR_MS / 1000)
    assert 6 < len(chance.of("end")) < 18


async def test_a_guest_may_die_while_its_cloud_shows_it_running() -> None:
    """Nothing on it runs on, the meter does, and only a deletion ends it; its guest does not end twice."""
    scene = Scene(steady(Cloud.EC2), [Fault(FaultKind.HANG, from_ms=60_000)])
    (record,) = await scene.up()
    await asyncio.sleep(HOUR_MS / 1000)
    assert [cause for _, _, cause in scene.of("end")] == [EndCause.DIED]
    assert await scene.states() == [VmState.RUNNING]
    assert scene.bill()[record.id] > 80_000
    await scene.driver.terminate(record.id)
    await asyncio.sleep(10)
    assert (record.state, len(scene.of("end"))) == (VmState.GONE, 1)


async def test_a_vm_is_cut_off_for_a_while() -> None:
    """The account says which VM, of how many, and until when; whoever carries the packets asks it."""
    fault = Fault(FaultKind.CUT_OFF, from_ms=60_000, until_ms=120_000, times=2)
    scene = Scene(steady(Cloud.EC2), [fault])
    records = await scene.up(5)
    assert [record.cut_off_until_ms for record in records] == [0] * 5
    await asyncio.sleep(60)
    cut = [record.cut_off_until_ms - scene.account.born_ms for record in records if record.cut_off_until_ms]
    assert cut == [120_000] * 2


async def test_a_strike_without_a_victim_waits_as_long_as_its_window_is_open() -> None:
    """No VM runs yet when the fault begins: the first that does within the window is struck."""
    scene = Scene(steady(Cloud.EC2), [Fault(FaultKind.DEATH, from_ms=1_000, until_ms=HOUR_MS, times=1)])
    await asyncio.sleep(600)
    first, second = await scene.launch(2)
    await asyncio.sleep(60)
    assert sorted([first.state, second.state]) == [VmState.GONE, VmState.RUNNING]


@pytest.mark.parametrize(
    ("cloud", "notice_ms", "shown"),
    [
        (Cloud.EC2, 120_000, VmState.RUNNING),
        (Cloud.GCE, 30_000, VmState.STOPPING),
        (Cloud.ARM, 30_000, VmState.RUNNING),
    ],
)
async def test_spot_is_taken_back_after_the_clouds_notice(cloud: Cloud, notice_ms: int, shown: VmState) -> None:
    """The guest is told how long it has, the listing says preempted, then the VM is gone; on demand stays."""
    scene = Scene(steady(cloud), [Fault(FaultKind.PREEMPT, market=Market.SPOT, from_ms=HOUR_MS, amount=-1)])
    (spot,) = await scene.up(market=Market.SPOT)
    (steadfast,) = await scene.up()
    await asyncio.sleep((HOUR_MS - scene.clock.monotonic()) / 1000 + 1)
    assert scene.of("notice") == [(HOUR_MS, spot.id, notice_ms)]
    seen = {vm.id: vm for vm in await scene.vms()}
    assert (seen[spot.id].state, seen[spot.id].preempted, seen[spot.id].spot) == (shown, True, True)
    assert (seen[steadfast.id].state, seen[steadfast.id].preempted) == (VmState.RUNNING, False)
    assert scene.of("end") == []
    await asyncio.sleep(notice_ms / 1000)
    assert scene.of("end") == [(HOUR_MS + notice_ms, spot.id, EndCause.PREEMPTED)]
    assert spot.state is VmState.GONE


async def test_a_notice_does_not_always_come() -> None:
    """A spot VM can go without a word, by the scenario or, on ARM, by chance."""
    scene = Scene(steady(Cloud.ARM), [Fault(FaultKind.PREEMPT, from_ms=60_000, amount=0)])
    await scene.up(market=Market.SPOT)
    await asyncio.sleep(60)
    assert (scene.of("notice"), [cause for _, _, cause in scene.of("end")]) == ([], [EndCause.PREEMPTED])
    chance = Scene(steady(Cloud.ARM, spot=Spot(reclaim_mean_ms=HOUR_MS, notice_ms=30_000, unannounced=0.5), quotas=()))
    await chance.up(20, market=Market.SPOT)
    await asyncio.sleep(48 * 3_600)
    assert len(chance.of("end")) == 20
    assert 3 < len(chance.of("notice")) < 17


async def test_a_vm_that_is_taken_back_may_be_left_stopped() -> None:
    """Where it is to be deallocated, as on Azure: its guest is gone, it bills no more, and waits to be deleted."""
    scene = Scene(steady(Cloud.ARM, spot=Spot(leaves=True)), [Fault(FaultKind.PREEMPT, from_ms=60_000, amount=30_000)])
    (record,) = await scene.up(market=Market.SPOT)
    await asyncio.sleep(90)
    assert [cause for _, _, cause in scene.of("end")] == [EndCause.PREEMPTED]
    billed = scene.bill()[record.id]
    await asyncio.sleep(HOUR_MS / 1000)
    (shown,) = await scene.vms()
    assert (shown.state, shown.preempted, scene.bill()[record.id]) == (VmState.STOPPED, True, billed)
    await scene.driver.terminate(record.id)
    await asyncio.sleep(10)
    assert (record.state, len(scene.of("end"))) == (VmState.GONE, 1)


async def test_a_vm_that_is_deleted_within_its_notice_ends_once() -> None:
    """The dispatcher was faster than the market: one end, and nothing comes after it."""
    scene = Scene(steady(Cloud.EC2), [Fault(FaultKind.PREEMPT, from_ms=60_000, amount=-1)])
    (record,) = await scene.up(market=Market.SPOT)
    await asyncio.sleep(60)
    await scene.driver.terminate(record.id)
    await asyncio.sleep(600)
    assert [cause for _, _, cause in scene.of("end")] == [EndCause.TERMINATED]


async def test_a_price_above_the_bid_takes_the_vm_back() -> None:
    """Where spot has a bid, the VM goes when the price rises above it, be it days later, and stays where the bid is
    on-demand's price."""
    usual = steady(Cloud.EC2, spot=Spot(swing=0.0))
    dear = Fault(FaultKind.PRICE, amount=60_000_000, from_ms=50 * HOUR_MS, until_ms=51 * HOUR_MS)
    scene = Scene(usual, [dear])
    offering = await scene.offering(market=Market.SPOT)
    (low,) = await scene.up(offering=replace(offering, max_rate=Rate(59_000_000)))
    (high,) = await scene.up(offering=offering)
    await asyncio.sleep(52 * 3_600)
    assert scene.of("end") == [(50 * HOUR_MS + 120_000, low.id, EndCause.PREEMPTED)]
    assert high.state is VmState.RUNNING


async def test_the_end_of_a_gce_vm_is_fixed_and_the_clouds_own() -> None:
    """After the time from its order to `ends_ms`, counted from when it ran, it is ended, whatever its tags say by then;
    nobody can move it."""
    scene = Scene(steady(Cloud.GCE))
    assert scene.driver.traits.hard_end is HardEnd.FIXED
    ends_ms = scene.clock.now() + HOUR_MS
    (record,) = await scene.up(ends_ms=ends_ms)
    await scene.driver.tag([record.id], {ENDS_AT: str(ends_ms + HOUR_MS)})
    await asyncio.sleep(HOUR_MS / 1000)
    started_ms = record.billed_from_ms - record.created_ms
    assert scene.of("end") == [(HOUR_MS + started_ms + 5_000, record.id, EndCause.HARD_END)]


@pytest.mark.parametrize("reaper", [True, False])
async def test_a_gce_vm_that_has_stopped_loses_its_end(reaper: bool) -> None:
    """Google clears it. Its disk bills on until the reaper, which goes by the tag, deletes it."""
    down = [] if reaper else [Fault(FaultKind.REAPER_DOWN, from_ms=0, until_ms=99 * HOUR_MS)]
    scene = Scene(steady(Cloud.GCE), down)
    (record,) = await scene.up(ends_ms=scene.clock.now() + HOUR_MS)
    scene.account.guest_shuts_down(record.id)
    await asyncio.sleep(10 * HOUR_MS / 1000)
    assert record.state is (VmState.GONE if reaper else VmState.STOPPED)


@pytest.mark.parametrize("cloud", [Cloud.EC2, Cloud.ARM])
async def test_the_reaper_ends_vms_past_their_tag(cloud: Cloud) -> None:
    """Dispatcher and guest may be dead: within a period after `ends_at` the reaper acts; a later tag is heeded."""
    scene = Scene(steady(cloud))
    ends_ms = scene.clock.now() + HOUR_MS - 30_000
    first, second = await scene.up(2, ends_ms=ends_ms)
    await scene.driver.extend([second.id], ends_ms + HOUR_MS)
    await asyncio.sleep((HOUR_MS - scene.clock.monotonic()) / 1000 + 10)
    assert scene.of("end") == [(HOUR_MS + 5_000, first.id, EndCause.HARD_END)]
    await asyncio.sleep(HOUR_MS / 1000)
    assert [vm for _, vm, _ in scene.of("end")] == [first.id, second.id]


async def test_a_reaper_that_is_down_ends_vms_when_it_is_up_again() -> None:
    """During the fault nothing is ended; at its next look it is."""
    scene = Scene(steady(Cloud.EC2), [Fault(FaultKind.REAPER_DOWN, from_ms=0, until_ms=2 * HOUR_MS)])
    (record,) = await scene.up(ends_ms=scene.clock.now() + HOUR_MS)
    await asyncio.sleep(2 * 3_600 - 60)
    assert record.state is VmState.RUNNING
    await asyncio.sleep(60)
    assert record.state is VmState.GONE


async def test_without_a_reaper_there_is_no_hard_end_and_the_traits_say_so() -> None:
    """Nobody ends the VM, and a dispatcher knows that before it launches."""
    scene = Scene(steady(Cloud.EC2, reaper_period_ms=0))
    (record,) = await scene.up(ends_ms=scene.clock.now() + HOUR_MS)
    await asyncio.sleep(5 * 3_600)
    assert (record.state, scene.driver.traits.hard_end) == (VmState.RUNNING, HardEnd.NONE)


async def test_the_reaper_is_the_shipped_one_unless_another_is_given() -> None:
    """The account calls whatever it was made with, each period, with the VMs as they are and the deployment's name."""
    seen: list[int] = []

    def hand(cloud: rounds.Cloud, now: int, deployment: str) -> None:
        seen.append(now)
        assert deployment == DEPLOYMENT
        cloud.end([vm for vm, worn in cloud.vms() if worn.get("please") == "end"])

    scene = Scene(steady(Cloud.EC2))
    account = open_account(scene.clock, SeededStreams(1), steady(Cloud.EC2, name="own"), hand=hand)
    account.attach(scene)
    scene.account, scene.driver = account, account.driver(scene.driver._profile)  # type: ignore[attr-defined]
    first, second = await scene.up(2)
    await scene.driver.tag([first.id], {"please": "end"})
    await asyncio.sleep(300)
    assert (first.state, second.state) == (VmState.GONE, VmState.RUNNING)
    assert {now - before for before, now in itertools.pairwise(seen)} == {60_000}
    assert inspect.signature(open_account).parameters["hand"].default is rounds.look


async def test_what_came_with_a_vm_can_outlive_it() -> None:
    """The deletion of its parts is lost: the VM is gone, its disk, NIC and address bill on until they are deleted."""
    scene = Scene(steady(Cloud.ARM), [Fault(FaultKind.LEFTOVER, times=1)])
    first, second = await scene.up(2)
    for record in (first, second):
        await scene.driver.terminate(record.id)
    await asyncio.sleep(60)
    left = await scene.driver.leftovers(DEPLOYMENT)
    assert [(item.kind, item.id.startswith(first.id)) for item in left] == [
        (LeftoverKind.DISK, True), (LeftoverKind.NIC, True), (LeftoverKind.ADDRESS, True),
    ]  # fmt: skip
    before = scene.bill()
    await asyncio.sleep(HOUR_MS / 1000)
    after = scene.bill()
    grown = {line: after[line] - before[line] for line in after if after[line] != before[line]}
    assert grown == {f"{first.id}-disk": 6_600, f"{first.id}-address": 5_000}
    for item in left:
        await scene.driver.delete_leftover(item)
        await scene.driver.delete_leftover(item)
    assert scene.account.leftovers() == []
    done = scene.bill()
    await asyncio.sleep(HOUR_MS / 1000)
    assert scene.bill() == done


async def test_boot_times_are_spread() -> None:
    """With a spread, VMs of one batch boot at different times, around the median and never past the most."""
    life = replace(STEADY, boot=replace(STEADY.boot, sigma=0.5, most_ms=60_000))
    scene = Scene(steady(Cloud.EC2, life=life, quotas=()))
    records: list[Record] = await scene.up(100)
    took = sorted(at_ms - 10_000 for at_ms, _, _ in scene.of("boot"))
    assert len({*took}) > 80
    assert 15_000 < took[50] - (records[0].created_ms - scene.account.born_ms) < 26_000
    assert took[-1] <= 60_000 + 1_000


@pytest.mark.parametrize("cloud", list(Cloud))
async def test_an_order_to_end_may_come_to_nothing(cloud: Cloud) -> None:
    """It is accepted, the VM is shown as about to end, and then as before; it bills on, and its guest is well."""
    scene = Scene(steady(cloud), [Fault(FaultKind.STAYS, amount=60_000, times=1)])
    (record,) = await scene.up()
    await scene.driver.terminate(record.id)
    await asyncio.sleep(30)
    assert await scene.states() == [VmState.STOPPING]
    await asyncio.sleep(60)
    assert await scene.states() == [VmState.RUNNING]
    assert scene.of("end") == []
    assert record.billed_until_ms is None
    await scene.driver.terminate(record.id)
    await asyncio.sleep(600)
    assert record.state is VmState.GONE


async def test_a_guests_wall_clock_may_be_wrong_from_its_boot() -> None:
    scene = Scene(steady(Cloud.EC2), [Fault(FaultKind.WRONG_CLOCK, amount=-86_400_000, times=1)])
    first, second = await scene.up(slots=2)
    assert (first.wall_off_ms, second.wall_off_ms) == (-86_400_000, 0)
