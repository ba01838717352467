"""What the port promises about which tasks an instance is given."""

from __future__ import annotations

from cloud_dispatch.domain.instance import Behaviour
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Load, Machine
from cloud_dispatch.ports.store import InstanceChange, Store
from cloud_dispatch.testing.store_builders import adopted, result, spec


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
