"""Who was heard when. Owns the volatile facts about agents; after a restart all count as heard at its start."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.planner.snapshot import Supply


@dataclass
class Contact:
    """Times are monotonic milliseconds, `idle_since_ms` and `state_since_ms` wall milliseconds."""

    heard_ms: int
    incarnation: str = ""
    asks_end: bool = False
    patience_ms: int = 0  # wall milliseconds: until then a wish to end is not heard (it was just resumed)
    unstartable: int = 0  # results in a row that could not be started
    idle_since_ms: int | None = None
    state: str = ""
    state_since_ms: int = 0
    #: The last picture of the instance and the row that it is of: most instances are the same from pass to pass.
    pictured: tuple[Instance, Supply] | None = None


class Contacts:
    """One entry an instance that is not gone."""

    def __init__(self) -> None:
        self._contacts: dict[InstanceId, Contact] = {}

    def of(self, instance: InstanceId, monotonic_ms: int) -> Contact:
        """The entry of `instance`; a new one counts as heard now."""
        contact = self._contacts.get(instance)
        if contact is None:
            contact = self._contacts[instance] = Contact(heard_ms=monotonic_ms)
        return contact

    def keep_only(self, instances: frozenset[InstanceId]) -> None:
        for gone in self._contacts.keys() - instances:
            del self._contacts[gone]
