"""Who was heard when. Owns the volatile facts about agents; after a restart all count as heard at its start."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.shape import Load
from cloud_dispatch.planner.snapshot import Supply
from cloud_dispatch.reconcile.fitness import Row

_S = InstanceState
#: No event leads here from any other state.
NEW = frozenset({_S.INTENDED, _S.LAUNCHING, _S.BOOTING})


@dataclass(slots=True)
class Contact:
    """Times are monotonic milliseconds, those `since` when wall milliseconds."""

    heard_ms: int
    asked_ms: int | None = None  # when this dispatcher asked for its VM
    answered: bool = False  # it has used an answer of this dispatcher, whose lease it goes by
    incarnation: str = ""
    asks_end: bool = False
    patience_ms: int = 0  # wall milliseconds: until then a wish to end is not heard (it was just resumed)
    failures: Row = field(default_factory=Row)
    worked_ms: int | None = None  # wall milliseconds: when it brought its first result of a task that had started
    idle_since_ms: int | None = None
    slack_since_ms: int | None = None
    spot_since_ms: int | None = None
    state: InstanceState | None = None  # as last pictured
    state_since_ms: int = 0
    #: Whether it was seen beyond the states before service, to which nothing returns.
    settled: bool = False
    #: The last picture of the instance, and the very objects that it was made from: most instances are the same from
    #: pass to pass. The `edition` is that of `Stale`.
    supply: Supply | None = None
    kind: str = ""
    row: Instance | None = None
    load: Load | None = None
    in_doubt: bool = False
    idle_seen_ms: int | None = None
    end_seen: bool = False
    declines: tuple[int, ...] = ()
    due_ms: int = 0  # wall milliseconds: when it is looked at again though nothing changed, what runs is nearer its end
    edition: int = 0

    def enter(self, state: InstanceState, now_ms: int) -> None:
        """Its row is in `state`."""
        if self.state != state:
            self.state, self.state_since_ms, self.settled = state, now_ms, state not in NEW


class Contacts:
    """One entry an instance that is not gone."""

    def __init__(self) -> None:
        self._contacts: dict[InstanceId, Contact] = {}
        #: Silence before this moment means nothing of who has used no answer yet: it may go by longer terms than ours.
        #: The clock begins at 0.
        self._counts_from_ms = 0
        #: All of whom `new_or_silent` may speak, up to the moment `_watched_ms`.
        self._watched: set[InstanceId] = set()
        self._watched_ms = 0

    def of(self, instance: InstanceId, monotonic_ms: int) -> Contact:
        """The entry of `instance`; a new one counts as heard now."""
        contact = self._contacts.get(instance)
        if contact is None:
            contact = self._meet(instance, monotonic_ms)
        return contact

    def greet(self, instances: Set[InstanceId], monotonic_ms: int) -> Mapping[InstanceId, Contact]:
        """The entries, from now on with one for each of `instances`; a new one counts as heard now."""
        if not instances <= self._contacts.keys():
            for new in instances - self._contacts.keys():
                self._meet(new, monotonic_ms)
        return self._contacts

    def excuse(self, until_ms: int) -> None:
        """Silence counts from `until_ms` on and not before, but of who has used an answer of this dispatcher."""
        self._counts_from_ms = until_ms

    def silent_ms(self, instance: InstanceId, monotonic_ms: int) -> int:
        """For how long `instance` has been silent, as far as that counts."""
        contact = self.of(instance, monotonic_ms)
        return monotonic_ms - max(contact.heard_ms, 0 if contact.answered else self._counts_from_ms)

    def _meet(self, instance: InstanceId, monotonic_ms: int) -> Contact:
        self._watched.add(instance)
        contact = self._contacts[instance] = Contact(heard_ms=monotonic_ms)
        return contact

    def new_or_silent(self, monotonic_ms: int, ahead_ms: int) -> set[InstanceId]:
        """Those that may not serve yet, or were not heard since that moment.

        Who is settled stays so, and who was heard was heard. So all are looked at only once in `ahead_ms`, in between
        those alone that were new or not heard for nearly so long by then, or have come since.
        """
        if monotonic_ms > self._watched_ms:
            self._watched_ms = until = monotonic_ms + ahead_ms
            self._watched = {n for n, known in self._contacts.items() if known.heard_ms < until or not known.settled}
        watched = ((name, self._contacts.get(name)) for name in self._watched)
        return {n for n, known in watched if known and (known.heard_ms < monotonic_ms or not known.settled)}

    def worked_ms(self, instance: InstanceId) -> int | None:
        """When `instance` brought a result for the first time since the dispatcher started, None if it has not."""
        contact = self._contacts.get(instance)
        return contact.worked_ms if contact else None

    def keep_only(self, instances: Set[InstanceId]) -> None:
        if not self._contacts.keys() <= instances:
            for gone in self._contacts.keys() - instances:
                del self._contacts[gone]
