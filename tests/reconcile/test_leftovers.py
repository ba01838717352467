"""What outlives its VM is deleted once it is proved to belong to nothing, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cloud_dispatch.domain import tags
from cloud_dispatch.provider.errors import CapacityUnavailable, InvalidRequest, ProviderError
from cloud_dispatch.provider.spi import Leftover, LeftoverKind
from cloud_dispatch.reconcile.leftovers import MOST_A_ROUND
from tests.reconcile.examples import offering
from tests.reconcile.fake import Cloud, ManualClock, World, world

HORIZON_MS = 30_000
#: A step of the clock that makes the next look due whatever it waits for.
LONG_MS = 3_600_000


class Littered(Cloud):
    """A cloud that keeps what is put into `litter`; deletions raise `refusal` if there is one."""

    def __init__(self) -> None:
        traits = replace(Cloud.traits, leftovers=True, consistency_ms=HORIZON_MS)
        super().__init__(ManualClock(), offers=(offering("only", rate=1000),), traits=traits)
        self.litter: dict[str, Leftover] = {}
        self.asked: list[str] = []
        self.looks = 0
        self.refusal: ProviderError | None = None

    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        self.looks += 1
        return tuple(self.litter.values())

    async def delete_leftover(self, leftover: Leftover) -> None:
        self.asked.append(leftover.id)
        if self.refusal is not None:
            raise self.refusal
        self.litter.pop(leftover.id, None)

    def drop(self, w: World, name: str, **fields: str) -> Leftover:
        """A disk that carries the tags of an instance of `w`, with `fields` in the place of some."""
        facts = tags.VmTags("lab", w.store.id, w.pool.name, "gone-batch", 1, 0)  # type: ignore[arg-type]
        disk = Leftover(name, LeftoverKind.DISK, "z", replace(facts, **fields).encode())  # type: ignore[arg-type]
        self.litter[name] = disk
        return disk


def look_every(w: World, milliseconds: int) -> None:
    """Have the next looks `milliseconds` apart."""
    timing = replace(w.context.settings.timing, list_interval_ms=milliseconds // 10)
    w.context.settings = replace(w.context.settings, timing=timing)
    assert timing.leftovers_interval_ms == milliseconds


async def kept(w: World) -> list[str]:
    return [event.action for event in await w.store.events() if event.action.startswith("leftover.")]


async def test_a_disk_that_belongs_to_nothing_is_deleted_after_two_listings_and_the_horizon(tmp_path: Path) -> None:
    """One look proves nothing, nor do many before the horizon; then it goes, and the record says so."""
    cloud = Littered()
    async with world(tmp_path, cloud=cloud) as w:
        cloud.drop(w, "disk")
        look_every(w, 10)
        await w.passes(20, step_ms=1_000)
        assert cloud.looks >= 20
        assert not cloud.asked
        await w.passes(2, step_ms=LONG_MS)
        assert cloud.asked == ["disk"]
        await w.passes(2, step_ms=LONG_MS)
        assert cloud.asked == ["disk"]
        assert await kept(w) == ["leftover.deleted"]


async def test_what_others_own_is_left_alone(tmp_path: Path) -> None:
    """Another deployment's, another statestore's, and what has no whole set of our tags."""
    cloud = Littered()
    async with world(tmp_path, cloud=cloud) as w:
        cloud.drop(w, "another deployment", deployment="other")
        cloud.drop(w, "another store", store="copied")
        untagged = cloud.drop(w, "without tags")
        cloud.litter["without tags"] = replace(untagged, tags={tags.DEPLOYMENT: "lab"})
        cloud.drop(w, "ours")
        await w.passes(4, step_ms=LONG_MS)
        assert cloud.asked == ["ours"]


async def test_what_a_launch_is_making_is_not_touched(tmp_path: Path) -> None:
    """The launch has not been answered: its disk has no VM yet. Once it is over the proof begins."""
    cloud = Littered()
    async with world(tmp_path, cloud=cloud) as w:
        cloud.lose_reply = True
        await w.submit(1)
        await w.passes(1)
        (row,) = w.rows
        cloud.drop(w, "its disk", batch=row.batch)
        await w.passes(3, step_ms=100_000)
        assert not cloud.asked
        await w.register(row)
        await w.passes(1, step_ms=LONG_MS)
        assert not cloud.asked
        await w.passes(1, step_ms=LONG_MS)
        assert cloud.asked == ["its disk"]


async def test_a_refused_deletion_is_repeated_ever_more_seldom(tmp_path: Path) -> None:
    """It still bills; and a cloud that says no is not asked at every look."""
    cloud = Littered()
    cloud.refusal = InvalidRequest("in use")
    async with world(tmp_path, cloud=cloud) as w:
        look_every(w, 60_000)
        cloud.drop(w, "disk")
        await w.passes(100, step_ms=60_000)
        assert 4 <= len(cloud.asked) <= 8
        cloud.refusal = None
        await w.passes(40, step_ms=60_000)
        assert not cloud.litter
        assert (await kept(w))[0] == "leftover.deleted"


async def test_deletions_of_one_look_are_bounded(tmp_path: Path) -> None:
    """A thousand disks go in many rounds."""
    cloud = Littered()
    async with world(tmp_path, cloud=cloud) as w:
        for number in range(3 * MOST_A_ROUND):
            cloud.drop(w, f"disk-{number}")
        await w.passes(2, step_ms=LONG_MS)
        assert len(cloud.asked) == MOST_A_ROUND
        await w.passes(2, step_ms=LONG_MS)
        assert not cloud.litter


async def test_a_cloud_that_keeps_nothing_is_not_asked(tmp_path: Path) -> None:
    """The traits deny it, or the question fails: the pass goes on."""
    cloud = Littered()
    cloud.traits = replace(cloud.traits, leftovers=False)
    async with world(tmp_path / "deny", cloud=cloud) as w:
        await w.passes(3, step_ms=LONG_MS)
        assert cloud.looks == 0

    class Mute(Littered):
        async def leftovers(self, deployment: str) -> Sequence[Leftover]:
            raise CapacityUnavailable("no answer")

    async with world(tmp_path / "mute", cloud=Mute()) as w:
        await w.submit(1)
        await w.passes(2, step_ms=1_000)
        assert [row.state for row in w.rows] == ["booting"]


class Slow(Littered):
    """A listing of what was left takes `lasts_ms`, and shows what was there when it began."""

    lasts_ms = 0

    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        found = await super().leftovers(deployment)
        self.clock.ms += self.lasts_ms
        return found


async def test_a_listing_that_began_before_the_horizon_proves_nothing(tmp_path: Path) -> None:
    """Whenever its answer comes."""
    cloud = Slow()
    async with world(tmp_path, cloud=cloud) as w:
        cloud.drop(w, "disk")
        look_every(w, 10)
        horizon_ms = HORIZON_MS + w.context.settings.timing.call_timeout_ms
        await w.passes(1, step_ms=horizon_ms - 1)
        cloud.lasts_ms = LONG_MS
        await w.passes(1)
        assert (cloud.looks, cloud.asked) == (2, [])
        await w.passes(1)
        assert cloud.asked == ["disk"]
