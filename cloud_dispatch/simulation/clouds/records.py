"""What an account knows of each VM and of what comes with it. Owns the past of what may be seen, so that a late read
shows the world as it was; decides nothing."""

from __future__ import annotations

from asyncio import TimerHandle
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from cloud_dispatch.domain.ids import BatchId
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.tags import DEPLOYMENT
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import LeftoverKind, Vm, VmState
from cloud_dispatch.simulation.clouds.fate import Fate
from cloud_dispatch.simulation.ports import TrueVm


@dataclass(slots=True, eq=False, kw_only=True)
class Record(TrueVm):
    """A VM: the truth that others may read, and what only its cloud knows.

    `seen` holds `(since_ms, what a read shows)`, oldest first; None is "not there". An entry may lie in the future.
    """

    number: int
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
    """A disk, NIC or address: made with (or, a NIC on ARM, before) its VM; `vm` is None once it belongs to none."""

    id: str
    kind: LeftoverKind
    zone: str
    tags: Mapping[str, str]
    batch: BatchId
    rate: Rate
    since_ms: int
    vm: Record | None = None
    until_ms: int | None = None


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
        swept = [record for record in self._records if record.forgotten(before_ms)]
        if swept:
            self._records = [record for record in self._records if not record.forgotten(before_ms)]
        return swept


def _number(record: Record) -> int:
    return record.number


def deployment_of(tags: Mapping[str, str]) -> str:
    """The deployment that the tags name, "" where they name none."""
    return tags.get(DEPLOYMENT, "")
