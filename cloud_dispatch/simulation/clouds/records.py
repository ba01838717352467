"""What an account knows of each VM and of what comes with it. Owns the past of what may be seen, so that a late read
shows the world as it was; decides nothing."""

from __future__ import annotations

from asyncio import TimerHandle
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cloud_dispatch.domain.ids import BatchId, VmId
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.tags import DEPLOYMENT
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import LeftoverKind, Vm, VmState
from cloud_dispatch.simulation.clouds.fate import Fate
from cloud_dispatch.simulation.ports import TrueVm

_SWEEP_MS = 60_000


@dataclass(slots=True, eq=False, kw_only=True)
class Record(TrueVm):
    """A VM: the truth that others may read, and what only its cloud knows.

    `seen` holds `(since_ms, what a read shows)`, oldest first; None is "not there". An entry may lie in the future.
    """

    number: int
    #: Somebody else's in the same account: nobody inside the run has to do with it.
    theirs: bool = False
    tags: Mapping[str, str]
    user_data: str
    ends_ms: int
    bid: Rate | None
    fate: Fate
    seen: list[tuple[int, Vm | None]] = field(default_factory=list)
    timers: list[TimerHandle] = field(default_factory=list)
    billed_from_ms: int | None = None
    billed_until_ms: int | None = None
    refused: ProviderError | None = None
    guest_lives: bool = False
    preempted: bool = False
    #: A create that failed, and is shown as a stopped VM until it is deleted.
    shell: bool = False
    why: str = ""
    tagged: int = 0  # how often
    console: str = ""
    hidden_until_ms: int = 0  # from listings
    extras: list[ExtraRecord] = field(default_factory=list)
    came: list[ExtraRecord] = field(default_factory=list)  # with it, whatever became of them

    def as_of(self, at_ms: int) -> Vm | None:
        """What a read shows that is as late as `at_ms`."""
        for since_ms, view in reversed(self.seen):
            if since_ms <= at_ms:
                return view
        return None

    def view(self, state: VmState) -> Vm:
        """How the cloud shows it from now on."""
        return Vm(
            self.id, state, self.type, self.zone, self.tags, self.created_ms, self.slot, "",
            self.market == "spot", self.preempted, self.why,
        )  # fmt: skip

    def show(self, view: Vm | None, since_ms: int, forget_before_ms: int) -> None:
        """Reads show `view` from `since_ms` on; what no read can ask for any more is forgotten."""
        seen = self.seen
        while len(seen) > 1 and seen[1][0] <= forget_before_ms:
            seen.pop(0)
        while seen and seen[-1][0] > since_ms:
            seen.pop()  # what was foretold does not come
        seen.append((since_ms, view))

    def forgotten(self, before_ms: int) -> bool:
        """Whether no read as late as `before_ms` shows it, now or ever again."""
        return bool(self.seen) and self.seen[-1][1] is None and self.seen[-1][0] <= before_ms


@dataclass(slots=True, eq=False)
class ExtraRecord:
    """A disk, NIC or address: made with its VM, or (a NIC on ARM) before it."""

    id: str
    kind: LeftoverKind
    zone: str
    tags: Mapping[str, str]
    batch: BatchId
    rate: Rate
    since_ms: int
    until_ms: int | None = None
    made_for: str = ""  # the VM
    theirs: bool = False


class Shelf:
    """The VMs of one deployment as listings walk over them, in order of creation."""

    def __init__(self, deployment: str) -> None:
        self._deployment = deployment
        self._records: list[Record] = []

    def put(self, record: Record) -> None:
        """A new VM, or one that was given this deployment's tag later; once is enough."""
        place = bisect_right(self._records, record.number, key=_number)
        if place and self._records[place - 1] is record:
            return
        self._records.insert(place, record)

    def page(self, after: int, as_of_ms: int, size: int, now: int) -> tuple[list[Vm], int | None]:
        """The VMs after number `after` as they were at `as_of_ms`, at most `size`, and the number to go on after."""
        records = self._records
        vms: list[Vm] = []
        for place in range(bisect_right(records, after, key=_number), len(records)):
            record = records[place]
            since_ms, view = record.seen[-1]
            if since_ms > as_of_ms:
                view = record.as_of(as_of_ms)
            if view is None or record.hidden_until_ms > now or view.tags.get(DEPLOYMENT) != self._deployment:
                continue
            if len(vms) == size:
                return vms, after
            vms.append(view)
            after = record.number
        return vms, None

    def sweep(self, before_ms: int) -> list[Record]:
        """Take out and return what no read shows any more."""
        # of nearly all the last word is not that they are gone: only the others are asked
        swept = [one for one in self._records if one.seen and one.seen[-1][1] is None and one.forgotten(before_ms)]
        if swept:
            out = set(map(id, swept))
            self._records = [record for record in self._records if id(record) not in out]
        return swept


class Register:
    """Every VM of an account: all that were ever made, those that may still be seen by their ids and deployments."""

    def __init__(self) -> None:
        self.all: list[Record] = []
        self.ours: list[Record] = []  # those of them that are not somebody else's
        self._unswept: list[Record] = []
        self._by_id: dict[VmId, Record] = {}
        self._shelves: dict[str, Shelf] = {}
        self._swept_ms = 0

    def add(self, record: Record) -> None:
        """A new VM; its id is its own from now on."""
        self.all.append(record)
        if not record.theirs:
            self.ours.append(record)
        self._unswept.append(record)
        self._by_id[record.id] = record
        self.shelve(record)

    def shelve(self, record: Record) -> None:
        """Have it listed by the deployment that its tags name now."""
        self._shelves.setdefault(record.deployment, Shelf(record.deployment)).put(record)

    def find(self, vm: VmId) -> Record | None:
        """The newest VM of that id."""
        return self._by_id.get(vm)

    def numbered(self, number: int) -> Record | None:
        """The VM of that number, None where none was made."""
        return self.all[number] if 0 <= number < len(self.all) else None

    def live(self) -> list[Record]:
        """The VMs that are not gone, in order of creation."""
        return [record for record in self._unswept if record.state is not VmState.GONE]

    def page(self, deployment: str, after: int, as_of_ms: int, size: int, now: int) -> tuple[list[Vm], int | None]:
        """A page of a listing, see `Shelf.page`."""
        shelf = self._shelves.get(deployment)
        return shelf.page(after, as_of_ms, size, now) if shelf is not None else ([], None)

    def all_of(self, shown: Callable[[str], bool], as_of_ms: int, now: int) -> list[Vm]:
        """The VMs of all deployments that are `shown`, as they were at `as_of_ms`."""
        shelves = [shelf for deployment, shelf in self._shelves.items() if shown(deployment)]
        return [vm for shelf in shelves for vm in shelf.page(-1, as_of_ms, len(self.all), now)[0]]

    def sweep(self, now: int, horizon_ms: int) -> None:
        """Now and then, let go of what no read shows any more."""
        if now < self._swept_ms + _SWEEP_MS:
            return
        self._swept_ms = now
        for shelf in self._shelves.values():
            for record in shelf.sweep(now - horizon_ms):
                if self._by_id.get(record.id) is record:
                    del self._by_id[record.id]
        self._unswept = self.live()


def _number(record: Record) -> int:
    return record.number


def deployment_of(tags: Mapping[str, str]) -> str:
    """The deployment that the tags name, "" where they name none."""
    return tags.get(DEPLOYMENT, "")
