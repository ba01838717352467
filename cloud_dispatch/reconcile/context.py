"""What the concerns of the loop share: ports, settings, and what is remembered between passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from cloud_dispatch.domain.errors import Conflict, IllegalTransition, NotFound
from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.ids import InstanceId, PoolName, ProfileName, TaskId, VmId
from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import TypeFilter
from cloud_dispatch.domain.stop import Stop, strongest
from cloud_dispatch.planner.plan import Begun, Plan
from cloud_dispatch.planner.snapshot import Snapshot
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.entropy import Entropy
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.ports.store import InstanceChange, Store
from cloud_dispatch.provider.spi import Heard, Provider, Quota
from cloud_dispatch.reconcile.absence import Absence
from cloud_dispatch.reconcile.breakers import Breakers
from cloud_dispatch.reconcile.calls import Calls
from cloud_dispatch.reconcile.contacts import Contact, Contacts
from cloud_dispatch.reconcile.failures import FailureMemory
from cloud_dispatch.reconcile.fitness import Fitness
from cloud_dispatch.reconcile.heeded import Heeded
from cloud_dispatch.reconcile.offered import OfferedMachines
from cloud_dispatch.reconcile.settings import Settings
from cloud_dispatch.reconcile.stale import Stale
from cloud_dispatch.reconcile.unended import Unended

log = structlog.get_logger(__name__)
MAX_PENDING_EVENTS = 10_000
#: A change of so many instances keeps the loop for milliseconds.
APPLIED_AT_ONCE = 100


class Question(StrEnum):
    """What a provider is asked again and again."""

    LIST = "list"
    OFFERINGS = "offerings"
    QUOTAS = "quotas"
    PRICES = "prices"
    HAND = "hand"


@dataclass(frozen=True, slots=True)
class ForeignVm:
    """One that another statestore of this deployment made, as its tags say it: `ends_ms` its hard end then. `vcpus` 0:
    its type was not offered yet. All of `profiles` have listed it."""

    store: str
    pool: PoolName
    type: str
    vcpus: int
    ends_ms: int
    profiles: tuple[ProfileName, ...]


@dataclass(frozen=True, slots=True)
class Apart:
    """By how much the dispatcher's clock was ahead of a provider's, at least, or behind (negative); when that was seen,
    monotonic, and how the wall clock stood to that then."""

    by_ms: int
    seen_ms: int
    ahead_ms: int


@dataclass
class ProfileView:
    """What is known of a profile's provider. Monotonic milliseconds; `listed_ms` None: not since the start."""

    listed_ms: int | None = None
    #: When the last complete listing that was dealt with began.
    shown_ms: int | None = None
    #: What went wrong with the last question of a kind.
    problems: dict[Question, str] = field(default_factory=dict)
    offerings: tuple[Offering, ...] = ()
    offered_ms: int | None = None
    #: Whether it has been told that prices are too old to launch by under a limit.
    old_prices: bool = False
    quotas: tuple[Quota, ...] = ()
    #: When they were asked for; and whether a launch has been refused for one since.
    quotas_ms: int | None = None
    quotas_doubted: bool = False
    #: How many instances of ours there were then, and when that was by the wall clock, as rows say it.
    quotas_rows: int = 0
    quotas_asked_ms: int = 0
    #: When its price service was asked, milliseconds since the epoch; None: not by this dispatcher.
    prices_ms: int | None = None
    #: The last sign of life of the hand that ends its VMs beside the cloud, and when it was asked for.
    heard: Heard | None = None
    heard_ms: int | None = None
    #: Its clock and the dispatcher's are further apart than sums of money allow for.
    apart: Apart | None = None
    #: Why that hand can't be taken for alive, "" while it can.
    silence: str = ""

    @property
    def problem(self) -> str:
        """Why it can't be listed, "" while it can."""
        return self.problems.get(Question.LIST, "")

    @property
    def trouble(self) -> str:
        """All that keeps it from being of use."""
        return "; ".join(filter(None, map(self.problems.get, (Question.LIST, Question.OFFERINGS))))

    @property
    def hand_trouble(self) -> str:
        """Why it is not known that the hand which keeps its hard ends is alive. It keeps nothing from being launched.
        A question that fails once is none: what was heard before is good for a while."""
        return self.silence or (self.problems.get(Question.HAND, "") if self.heard is None else "")


@dataclass
class Context:
    """Volatile by design: all that must survive a restart is in the store or in tags."""

    store: Store
    clock: Clock
    entropy: Entropy
    planning: Executor
    settings: Settings
    calls: Calls = field(default_factory=Calls)
    contacts: Contacts = field(default_factory=Contacts)
    stale: Stale = field(default_factory=Stale)
    offered: OfferedMachines = field(default_factory=OfferedMachines)
    failures: FailureMemory = field(default_factory=FailureMemory)
    profiles: dict[ProfileName, ProfileView] = field(default_factory=dict)
    absences: dict[InstanceId, Absence] = field(default_factory=dict)
    unended: Unended = field(default_factory=Unended)
    heeded: Heeded = field(default_factory=Heeded)
    in_doubt: set[InstanceId] = field(default_factory=set)
    #: Until then no boot is late (monotonic): some were under way when the dispatcher started, or the clock was set.
    boots_excused_ms: int = 0
    #: The VMs that another statestore of this deployment made, as the store knows them too (`foreign`).
    foreign: dict[VmId, ForeignVm] = field(default_factory=dict)
    #: When the last listing began that showed it, monotonic; since the start.
    foreign_seen: dict[tuple[ProfileName, VmId], int] = field(default_factory=dict)
    #: Of which of those nobody knew what they cost when that was last looked at.
    uncounted: frozenset[str] = frozenset()
    #: Instances whose behaviour an operator has changed since the last pass, in order: their tags are to say so.
    reworded: dict[InstanceId, None] = field(default_factory=dict)
    pending_events: list[Event] = field(default_factory=list)
    last: tuple[Snapshot, Plan] | None = None
    last_plan_id: int | None = None
    #: Launches of the last plan of which less was begun, by the number of their action.
    less: Mapping[int, Begun] = field(default_factory=dict)
    planned: asyncio.Event = field(default_factory=asyncio.Event)  # at least once
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    #: News that are rare, and that much waits for: no others are gathered before the pass that deals with them.
    hurried: asyncio.Event = field(default_factory=asyncio.Event)
    directive_listeners: list[Callable[[InstanceId], None]] = field(default_factory=list)
    #: Held from the picture to the intents that come of it: who changes what is launched meanwhile waits, or the work
    #: that his VMs are for is launched for twice. No provider is asked under it.
    deciding: asyncio.Lock = field(default_factory=asyncio.Lock)
    fitness: Fitness = field(default_factory=Fitness)
    #: What is stopped, by who stopped it: the configuration, an operator, a dispatcher that ends with its instances.
    stops: dict[str, Stop] = field(default_factory=dict)
    breakers: Breakers = field(init=False)
    begun_ms: int = field(init=False)  # monotonic: when this process began to look

    def __post_init__(self) -> None:
        self.begun_ms = self.clock.monotonic()
        self.breakers = Breakers(self.store, self.clock, self.contacts, lambda: self.settings.pools)

    def follow(self, settings: Settings) -> dict[ProfileName, Provider]:
        """From now on these are the settings; the drivers that do nothing more. A driver that is another now is asked
        for everything anew, what a profile offers is what it may rent now, and refusals that an operator can mend are
        forgotten: he may have come for that alone."""
        before, self.settings = self.settings, settings
        gone = {name: one for name, one in before.providers.items() if settings.providers.get(name) is not one}
        for name in gone:
            self.profiles.pop(name, None)
        for name, view in self.profiles.items():
            admits = settings.profile_types.get(name, TypeFilter()).admits
            view.offerings = tuple(one for one in view.offerings if admits(one.type.name))
            view.offered_ms = None
        self.failures.forget_money()
        self.failures.forget_mendable()
        return gone

    def boots_excused_until(self, now_ms: int) -> int:
        """The same by the wall clock, which says `now_ms`; 0 once that is over."""
        left_ms = self.boots_excused_ms - self.clock.monotonic()
        return now_ms + left_ms if left_ms > 0 else 0

    def wake(self, *, hurry: bool = False) -> None:
        """Have a pass made soon, or as soon as can be."""
        self.woken.set()
        if hurry:
            self.hurried.set()

    @property
    def stop(self) -> Stop:
        """What is stopped now."""
        return strongest(self.stops.values())

    def view(self, profile: ProfileName) -> ProfileView:
        """What is known of the profile's provider."""
        return self.profiles.setdefault(profile, ProfileView())

    def contact(self, instance: InstanceId) -> Contact:
        return self.contacts.of(instance, self.clock.monotonic())

    def offering_of(self, row: Instance) -> Offering | None:
        """What `row` was launched as; None when its provider offers it no more."""
        view = self.profiles.get(row.profile)
        key = row.offering_key
        return next((offering for offering in view.offerings if offering.key == key), None) if view else None

    def tell(self, instance: InstanceId) -> None:
        """The directive of `instance` changed: wake whoever holds its long poll."""
        for listener in self.directive_listeners:
            listener(instance)

    def note(
        self, action: str, *, instance: InstanceId | None = None, task: TaskId | None = None, detail: str = "",
        warn: bool = False,
    ) -> None:  # fmt: skip
        """An event for the record; stored with the next pass, logged now. `warn`: somebody has to act on it."""
        self._remember(action, instance, task, detail)
        (log.warning if warn else log.info)(action, instance=instance, task=task, detail=detail)

    def note_all(self, action: str, details: Mapping[InstanceId, str]) -> None:
        """`note` of each of `details`, and one line in the log for all of them: a line takes longer than all else that
        is done for a VM of a large launch."""
        if len(details) == 1:
            for instance, detail in details.items():
                self.note(action, instance=instance, detail=detail)
            return
        for instance, detail in details.items():
            self._remember(action, instance, None, detail)
        log.info(action, instances=" ".join(details), detail="; ".join(dict.fromkeys(details.values())))

    def _remember(self, action: str, instance: InstanceId | None, task: TaskId | None, detail: str) -> None:
        if len(self.pending_events) < MAX_PENDING_EVENTS:
            self.pending_events.append(
                Event(self.clock.now(), action, instance=instance, task=task, detail=detail, plan=self.last_plan_id)
            )

    async def apply(
        self,
        instance: InstanceId,
        event: InstanceEvent | None,
        *,
        cause: str = "",
        reason: str = "",
        expect: frozenset[InstanceState] = frozenset(),
        unless_held: bool = False,
        **fields: object,
    ) -> Instance | None:
        """Change one instance; None when a newer change made this one moot (late observations never win)."""
        said, expected = _fields(cause, reason, fields), frozenset(map(str, expect))
        return await self._apply_alone(InstanceChange(instance, event, said, expected, unless_held))

    async def _apply_alone(self, change: InstanceChange) -> Instance | None:
        instance = change.instance
        try:
            (changed,) = await self.store.change([change])
        except (IllegalTransition, Conflict, NotFound) as moot:
            log.debug("instance.change_moot", instance=instance, arrow=change.event, why=str(moot))
            return None
        if change.event is not None:
            self.note(f"instance.{changed.state}", instance=instance, detail=_reason(change))
            self.tell(instance)
        self.wake()
        return changed

    async def apply_all(
        self,
        instances: Sequence[InstanceId],
        event: InstanceEvent,
        *,
        cause: str = "",
        reason: str = "",
        expect: frozenset[InstanceState] = frozenset(),
        **fields: object,
    ) -> None:
        """`apply` to many alike, `APPLIED_AT_ONCE` with a change; these share commits. One by one where something has
        changed one of them meanwhile."""
        said, expected = _fields(cause, reason, fields), frozenset(map(str, expect))
        changes = [InstanceChange(instance, event, said, expected) for instance in instances]
        parts = [changes[start : start + APPLIED_AT_ONCE] for start in range(0, len(changes), APPLIED_AT_ONCE)]
        for failure in await asyncio.gather(*map(self._apply_part, parts), return_exceptions=True):
            if failure is not None:
                raise failure

    async def _apply_part(self, changes: Sequence[InstanceChange]) -> None:
        try:
            changed = await self.store.change(changes)
        except (IllegalTransition, Conflict, NotFound):
            for one in changes:
                await self._apply_alone(one)
            return
        for state in sorted({one.state for one in changed}):
            self.note_all(f"instance.{state}", {one.id: _reason(changes[0]) for one in changed if one.state is state})
        for one in changes:
            self.tell(one.instance)
        self.wake()


def _reason(change: InstanceChange) -> str:
    return str(change.fields.get("reason", ""))


def _fields(cause: str, reason: str, more: Mapping[str, object]) -> dict[str, object]:
    said = {"cause": cause, "reason": reason}
    return {**more, **{name: text for name, text in said.items() if text}}
