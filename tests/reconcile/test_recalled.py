"""What operators said after the copy that was restored: the tags of VMs remember it, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceState
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.ports.fleet import Heard
from cloud_dispatch.provider.spi import Listing
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.statestore.lineage import RESTORED_FACT
from cloud_dispatch.statestore.purse import UNSURE_FACT
from tests.reconcile.fake import LOCAL, NAMED, POOL, Cloud, ManualClock, World, world

B = Behaviour
ONE: Mapping[str, object] = {"pool": Pool(POOL, (LOCAL,), minimum=1), "caps": Caps(instances=1)}


@dataclass
class Halting(Cloud):
    """Its listings are incomplete while it halts, and show nothing."""

    halts: bool = False

    async def list(self, deployment: str) -> Listing:
        return Listing((), complete=False) if self.halts else await super().list(deployment)


async def restored(w: World) -> None:
    """What is in the store now is a copy that was made before something was said."""
    await w.store.set_fact(RESTORED_FACT, str(w.clock.now()))
    await w.restart()


def wear(w: World, behaviour: Behaviour) -> None:
    """The tags say so, whatever the row does."""
    for name, vm in w.cloud.vms.items():
        w.cloud.vms[name] = replace(vm, tags={**vm.tags, tags.BEHAVIOUR: str(behaviour)})


def worn(w: World) -> str:
    (vm,) = w.cloud.vms.values()
    return vm.tags[tags.BEHAVIOUR]


@pytest.mark.parametrize(("copied", "said"), [(B.HOLD, B.RUN), (B.RUN, B.HOLD), (B.RUN, B.DRAIN)])
async def test_what_the_tag_says_was_said_after_the_copy(tmp_path: Path, copied: Behaviour, said: Behaviour) -> None:
    """Found by the simulator: a hold that was taken back came again with the copy, and the VM ran on until its end."""
    async with world(tmp_path, **ONE) as w:
        await w.passes(2)
        await w.context.apply(w.rows[0].id, None, behaviour=copied)
        wear(w, said)
        await restored(w)
        await w.passes(2)
        (row,) = w.rows
        assert (row.behaviour, worn(w)) == (said, str(said))
        told = [event.detail for event in await w.store.events() if event.action == "instance.recalled"]
        assert len(told) == 1
        assert str(said) in told[0]


async def test_without_a_restore_the_row_knows(tmp_path: Path) -> None:
    """A tag that says otherwise is one that did not take."""
    async with world(tmp_path, **ONE) as w:
        await w.passes(2)
        wear(w, B.HOLD)
        await w.restart()
        await w.passes(2)
        assert (w.rows[0].behaviour, worn(w)) == (B.RUN, "run")


async def test_who_speaks_after_the_restore_is_heard(tmp_path: Path) -> None:
    """The provider has not answered yet: what the tag says is older."""
    cloud = Halting(ManualClock())
    async with world(tmp_path, cloud=cloud, **ONE) as w:
        await w.passes(2)
        wear(w, B.RUN)
        cloud.halts = True
        await restored(w)
        await w.passes(1)
        await w.fleet.hold(w.rows[0].id, "to look at it")
        wear(w, B.DRAIN)  # whatever comes of the call that says so
        cloud.halts = False
        await w.passes(3)
        assert (w.rows[0].behaviour, worn(w)) == (B.HOLD, "hold")


async def test_tags_are_read_once_after_a_restore(tmp_path: Path) -> None:
    """By the first complete listing, whatever the dispatcher's starts; the next restore has its own."""
    cloud = Halting(ManualClock(), halts=False)
    async with world(tmp_path, cloud=cloud, **ONE) as w:
        await w.passes(2)
        cloud.halts = True
        await restored(w)
        await w.passes(2)
        wear(w, B.HOLD)
        cloud.halts = False
        await w.passes(2)
        assert w.rows[0].behaviour is B.HOLD, "an incomplete listing was not the first"
        wear(w, B.RUN)
        await w.restart()
        await w.passes(2)
        assert (w.rows[0].behaviour, worn(w)) == (B.HOLD, "hold")
        wear(w, B.RUN)
        w.clock.ms += 1
        await restored(w)
        await w.passes(2)
        assert (w.rows[0].behaviour, worn(w)) == (B.RUN, "run")


async def test_what_an_operator_says_is_worn_before_the_next_listing(tmp_path: Path) -> None:
    """A copy may come back at any time."""
    async with world(tmp_path, timing=Timing(list_interval_ms=3_600_000), **ONE) as w:
        await w.passes(2)
        for say, behaviour in ((w.fleet.hold, "hold"), (w.fleet.resume, "run"), (w.fleet.drain, "drain")):
            await say(w.rows[0].id, "as I like")
            await w.passes(1)
            assert worn(w) == behaviour
        assert len(w.cloud.tagged) == 3


async def say(w: World, state: str, drain_token: int) -> Instance:
    """The agent of the one instance is heard."""
    news = w.fleet.heard(Heard(w.rows[0].id, "i", state, drain_token=drain_token))
    if news is not None:
        await news
    return w.rows[0]


async def test_an_agent_that_was_told_to_drain_drains_on(tmp_path: Path) -> None:
    """Found by the simulator: the copy has it at work and waits for it to take a task, which it never does."""
    async with world(tmp_path, **ONE) as w:
        await w.booted()
        await restored(w)
        row = await say(w, "draining", 3)
        assert (row.state, row.cause, row.drain_token) == (InstanceState.DRAINING, "drained", 4)
        directive = w.fleet.directive(row.id)
        assert (directive.drain, directive.drain_token) == (True, 4), "which it heeds, for it is higher"
        assert (await say(w, "drained", 4)).state is InstanceState.DRAINED


async def test_an_agent_that_heard_more_than_the_copy_knows_heeds_the_next_drain(tmp_path: Path) -> None:
    """It was drained and resumed: it heeds higher tokens only, and none that is said of it is beyond all bounds."""
    async with world(tmp_path, **ONE) as w:
        await w.booted()
        await restored(w)
        row = await say(w, "idle", 2)
        assert (row.state, row.drain_token) == (InstanceState.IDLE, 2)
        assert w.fleet.directive(row.id).claiming
        assert (await w.fleet.drain(row.id, "")).drain_token == 3
    async with world(tmp_path / "other", **ONE) as w:
        await w.booted()
        await restored(w)
        assert (await say(w, "idle", 2**63 - 1)).drain_token == 2**31


@dataclass
class Belated(Cloud):
    """Its listings may show tags of before, until its consistency horizon is over."""

    before: Behaviour | None = None

    async def list(self, deployment: str) -> Listing:
        listing = await super().list(deployment)
        if self.before is None:
            return listing
        shown = {tags.BEHAVIOUR: str(self.before)}
        return replace(listing, vms=tuple(replace(vm, tags={**vm.tags, **shown}) for vm in listing.vms))


def late() -> Belated:
    return Belated(ManualClock(), traits=replace(NAMED, consistency_ms=60_000))


@pytest.mark.parametrize(
    ("copied", "shown", "said"),
    [(B.RUN, B.HOLD, B.RUN), (B.RUN, B.RUN, B.HOLD), (B.HOLD, B.RUN, B.HOLD), (B.HOLD, B.DRAIN, B.RUN)],
)
async def test_tags_that_are_shown_late_have_the_last_word(
    tmp_path: Path, copied: Behaviour, shown: Behaviour, said: Behaviour
) -> None:
    """Found by the simulator: a hold that was taken back before the copy was made was shown still; the VM was held,
    its tag was written over, and it ran on without work until its end."""
    cloud = late()
    async with world(tmp_path, cloud=cloud, **ONE) as w:
        await w.passes(2)
        await w.context.apply(w.rows[0].id, None, behaviour=copied)
        wear(w, said)
        cloud.before = shown
        await restored(w)
        await w.passes(3)
        heeded = B.HOLD if B.HOLD in (copied, shown) else copied
        assert (w.rows[0].behaviour, worn(w)) == (heeded, str(said)), "a hold counts at once, nothing is written over"
        cloud.before = None
        w.clock.ms += 61_000
        await w.passes(3)
        assert (w.rows[0].behaviour, worn(w)) == (said, str(said))
        wear(w, B.DRAIN)
        w.clock.ms += 61_000
        await w.passes(3)
        assert (w.rows[0].behaviour, worn(w)) == (said, str(said)), "from here on the row knows"


async def test_who_said_and_unsaid_it_after_the_restore_is_heard(tmp_path: Path) -> None:
    """Found by the simulator: held and resumed after the restore, the row says what the copy said, as if nobody had
    spoken; and the dispatcher died before the tag said so too."""
    cloud = late()
    async with world(tmp_path, cloud=cloud, **ONE) as w:
        await w.passes(2)
        await restored(w)
        await w.passes(1)
        await w.fleet.hold(w.rows[0].id, "")
        await w.fleet.resume(w.rows[0].id, "")
        wear(w, B.HOLD)
        await w.restart()
        await w.passes(2)
        assert (w.rows[0].behaviour, worn(w)) == (B.RUN, "run")
        w.clock.ms += 61_000
        await w.passes(2)
        assert (w.rows[0].behaviour, worn(w)) == (B.RUN, "run")


async def held_after_the_copy(w: World, cloud: Belated) -> None:
    """What an operator said last is on the tag, which is not shown yet."""
    await w.passes(2)
    wear(w, B.HOLD)
    cloud.before = B.RUN
    await restored(w)
    await w.passes(2)


async def shown_at_last(w: World, cloud: Belated) -> None:
    """Past the horizon the tag is shown, and heeded."""
    cloud.before = None
    w.clock.ms += 61_000
    await w.passes(3)
    assert (w.rows[0].behaviour, worn(w)) == (B.HOLD, "hold")


async def test_who_could_not_be_heard_has_not_spoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that the store refuses is told to be refused, and the tag knows better than the copy as before."""
    cloud = late()
    async with world(tmp_path, cloud=cloud, **ONE) as w:
        await held_after_the_copy(w, cloud)

        async def refuses(*_: object, **__: object) -> None:
            raise StoreUnavailable("planted")

        with monkeypatch.context() as patch:
            patch.setattr(w.store, "change", refuses)
            with pytest.raises(StoreUnavailable):
                await w.fleet.drain(w.rows[0].id, "")
        await shown_at_last(w, cloud)


async def test_tags_are_read_on_where_the_ledger_is_reconciled_meanwhile(tmp_path: Path) -> None:
    """An operator who is quick: what listings show late is as late as before."""
    cloud = late()
    async with world(tmp_path, cloud=cloud, **ONE) as w:
        await held_after_the_copy(w, cloud)
        await w.store.set_fact(UNSURE_FACT, str(w.store.restored_ms()))
        await w.store.reconcile()
        await w.passes(2)
        assert (w.rows[0].behaviour, worn(w)) == (B.RUN, "hold"), "nothing is written over"
        await shown_at_last(w, cloud)


async def test_what_is_adopted_by_late_tags_is_put_right_too(tmp_path: Path) -> None:
    """A VM that the copy does not know is what the first listing shows, until one shows the last word."""
    cloud = late()
    async with world(tmp_path, cloud=cloud, **ONE) as w:
        await w.passes(2)
        (vm,) = w.cloud.vms.values()
        other = {**vm.tags, tags.BATCH: "b99999999999"}
        w.cloud.vms[VmId("stray")] = replace(vm, id=VmId("stray"), slot=-1, tags=other)
        cloud.before = B.HOLD
        await restored(w)
        await w.passes(3)
        assert {row.behaviour for row in w.rows} == {B.HOLD}
        assert len(w.rows) == 2
        cloud.before = None
        w.clock.ms += 61_000
        await w.passes(3)
        assert {row.behaviour for row in w.rows} == {B.RUN}
