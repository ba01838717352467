"""What the port promises about which tasks an instance is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cloud_dispatch.domain.instance import Behaviour
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Load, Machine
from cloud_dispatch.domain.task import TaskSpec
from cloud_dispatch.ports.store import InstanceChange, Store
from cloud_dispatch.testing.store_builders import Agent, ManualClock, adopted, result, spec
from cloud_dispatch.testing.store_contract_payers import POOR, limited, machine, of, quarter

_MINUTE_MS = 60_000
_WITH_GPUS = Machine(Resources(4000, 16 * GIB, 0, 2), gpu_type="a100", pool="default")


def _trains(**more: Any) -> TaskSpec:
    """What asks for a GPU."""
    wanted = spec(gpu_type="a100", **more)
    return replace(wanted, shape=replace(wanted.shape, resources=replace(wanted.shape.resources, gpus=1)))


async def _with_gpus(store: Store, batch: str = "batch", gpus: int = 2) -> Agent:
    """A machine of four cpus with so many GPUs."""
    capacity = replace(_WITH_GPUS.capacity, gpus=gpus)
    return await adopted(store, batch, machine=replace(_WITH_GPUS, capacity=capacity))


class MatchingContract:
    """Tests of matching; see `StoreContract`."""

    async def test_claims_take_what_fits_best_first(self, store: Store) -> None:
        """A task that does not fit never blocks one that does: priority, then id, among those with room."""
        await store.submit(
            [spec("large", cpus_milli=64_000, priority=9), spec("a"), spec("b", cpus_milli=3000), spec("c"), spec("d")]
        )
        agent = await adopted(store, cpus=4)
        claims = await agent.claim(9)
        assert [claim.task for claim in claims] == [2, 3]
        assert store.load_of(agent.id) == Load(Resources(4000, 2 * GIB), 2)
        assert store.loads() == {agent.id: store.load_of(agent.id)}
        assert (await agent.sync(result(claims[1]), want=9)).claims[0].task == 4

    async def test_claims_are_bounded_by_want(self, store: Store) -> None:
        """Never more than asked for; nothing when nothing is wanted or claiming is off."""
        await store.submit([spec() for _ in range(4)])
        agent = await adopted(store)
        assert len(await agent.claim(2)) == 2
        assert (await agent.sync(want=0)).claims == ()
        assert (await agent.sync(want=2, claiming=False)).claims == ()

    async def test_a_result_brings_no_claim_where_none_may_be_given(self, store: Store) -> None:
        """Room that a result makes is not filled where nothing is wanted, or claiming is off: it drains."""
        await store.submit([spec() for _ in range(6)])
        agent = await adopted(store)
        one, two = await agent.claim(2)
        assert (await agent.sync(result(one), want=2, claiming=False)).claims == ()
        assert (await agent.sync(result(two), want=0, ahead=2)).claims == ()
        assert store.load_of(agent.id).tasks == 0

    async def test_what_is_held_is_given_nothing(self, store: Store) -> None:
        """Whatever its caller believed: the hold may have been in doubt when it looked."""
        await store.submit([spec() for _ in range(4)])
        agent = await adopted(store)
        (claim,) = await agent.claim(1)
        await store.change([InstanceChange(agent.id, fields={"behaviour": Behaviour.HOLD})])
        assert (await agent.sync(result(claim), want=2, ahead=2)).claims == ()
        await store.change([InstanceChange(agent.id, fields={"behaviour": Behaviour.RUN})])
        assert len(await agent.claim(2)) == 2

    async def test_ahead_claims_exceed_what_is_free(self, store: Store) -> None:
        """Up to `ahead` of `want` may wait on the instance, if the empty machine fits each of them."""
        await store.submit([spec() for _ in range(9)])
        await store.submit([spec(cpus_milli=64_000, priority=9), spec(exclusive=True)])
        await store.submit([spec(max_per_instance=1, priority=9), spec(max_per_instance=1, priority=9)])
        agent = await adopted(store, cpus=4)
        assert [claim.task for claim in await agent.claim(2)] == [12, 1]
        claims = await agent.claim(9, ahead=3)
        assert [claim.task for claim in claims] == [2, 3, 4, 5, 6]
        assert store.load_of(agent.id).tasks == 7

    async def test_an_exclusive_task_has_the_instance_to_itself(self, store: Store) -> None:
        """It is claimed only when nothing else runs, and nothing is claimed beside it."""
        await store.submit([spec(), spec(exclusive=True, priority=1), spec()])
        agent = await adopted(store)
        (claim,) = await agent.claim(5, ahead=5)
        assert claim.task == 2
        assert store.load_of(agent.id).exclusive
        assert await agent.claim(5, ahead=5) == ()
        done = await agent.sync(result(claim), want=5)
        assert [claim.task for claim in done.claims] == [1, 3]
        assert not store.load_of(agent.id).exclusive

    async def test_limits_per_instance_hold(self, store: Store) -> None:
        """Neither a shape's own limit nor the machine's is exceeded; a result makes room again."""
        await store.submit([spec(max_per_instance=2) for _ in range(4)])
        limited = await adopted(store)
        claims = await limited.claim(9)
        assert [claim.task for claim in claims] == [1, 2]
        assert store.load_of(limited.id).limited == ((spec(max_per_instance=2).shape.key, 2),)
        assert [claim.task for claim in (await limited.sync(result(claims[0]), want=9)).claims] == [3]
        await store.submit([spec() for _ in range(4)])
        machine = Machine(Resources(8000, 64 * GIB), pool="default", max_tasks=1)
        assert len(await (await adopted(store, "single", machine=machine)).claim(9)) == 1

    async def test_gpus_are_for_those_who_ask_for_them(self, store: Store) -> None:
        """What asks for none came first and could run anywhere: it has what is left, here as on any machine."""
        await store.submit([spec() for _ in range(4)])
        await store.submit([_trains(), _trains(), _trains()])
        agent = await _with_gpus(store)
        claims = await agent.claim(9)
        assert [claim.task for claim in claims] == [5, 6, 1, 2]
        assert [claim.task for claim in (await agent.sync(result(claims[2]), want=9)).claims] == [3]
        assert [claim.task for claim in (await agent.sync(result(claims[1]), want=9)).claims] == [7]
        assert [claim.task for claim in await (await adopted(store, "plain")).claim(9)] == [4]

    async def test_what_is_more_urgent_has_a_machine_with_gpus_first(self, store: Store) -> None:
        """And of those who ask for them, who came first."""
        await store.submit([_trains(), spec(priority=1), _trains(cpus_milli=2000), spec(), _trains()])
        agent = await _with_gpus(store, gpus=4)
        assert [claim.task for claim in await agent.claim(3)] == [2, 1, 3]
        assert [claim.task for claim in await (await _with_gpus(store, "other")).claim(9)] == [5, 4]

    async def test_nobody_gives_way_to_gpus_for_ever(self, store: Store, clock: ManualClock) -> None:
        """Where there is nothing but machines with GPUs, and a stream of those who ask for them."""
        await store.submit([spec()])
        clock.now_ms += 5 * _MINUTE_MS
        await store.submit([spec(), _trains(), _trains()])
        agent = await _with_gpus(store)
        clock.now_ms += 5 * _MINUTE_MS - 1
        assert [claim.task for claim in await agent.claim(1)] == [3]
        clock.now_ms += 1
        assert [claim.task for claim in await agent.claim(3)] == [1, 4, 2]

    async def test_machines_with_gpus_are_given_others_too(self, store: Store) -> None:
        """All at once, in their order, where nobody asks for GPUs."""
        await store.submit([spec("a"), spec("b", memory=2 * GIB), spec("c"), spec("d", cpus_milli=500)])
        agent = await _with_gpus(store)
        assert [claim.task for claim in await agent.claim(9)] == [1, 2, 3, 4]
        await store.submit([spec() for _ in range(3)])
        assert [claim.task for claim in (await agent.sync(want=1, ahead=1)).claims] == [5]

    async def test_a_payers_tasks_have_their_turn_at_gpus(self, store: Store) -> None:
        """Before others' that ask for none, and behind others' that do where they do not."""
        await limited(store, of(POOR, 10))
        trains = _trains().shape
        await store.submit([quarter(), replace(quarter(), shape=trains), spec(), _trains()])
        agent = await machine(store, machine=_WITH_GPUS)
        assert [claim.task for claim in await agent.claim(9)] == [2, 4, 1, 3]
        assert list(await store.check()) == []

    async def test_what_wants_a_machine_for_itself_leaves_large_ones_to_others(self, store: Store) -> None:
        """What was rented for it is smaller: that it has, by its age. Alone it takes whatever there is."""
        alone = [spec(exclusive=True) for _ in range(3)]
        await store.submit([*alone, *(spec() for _ in range(5))])
        large = await adopted(store, "large")
        assert [claim.task for claim in await large.claim(9)] == [4, 5, 6, 7]
        small = await adopted(store, "small", machine=Machine(Resources(2000, 8 * GIB), pool="default"))
        assert [claim.task for claim in await small.claim(9)] == [1]
        assert [claim.task for claim in await (await adopted(store, "other")).claim(9)] == [8]
        assert [claim.task for claim in await (await adopted(store, "last")).claim(9)] == [2]

    async def test_what_is_urgent_or_old_has_a_large_machine_for_itself(self, store: Store, clock: ManualClock) -> None:
        """A stream of others does not keep it waiting for longer than ten minutes."""
        await store.submit([spec(), spec(exclusive=True, priority=1), spec(exclusive=True)])
        assert [claim.task for claim in await (await adopted(store, "first")).claim(9)] == [2]
        clock.now_ms += 10 * _MINUTE_MS - 1
        await store.submit([spec()])
        assert [claim.task for claim in await (await adopted(store, "second")).claim(1)] == [1]
        clock.now_ms += 1
        assert [claim.task for claim in await (await adopted(store, "third")).claim(9)] == [3]
