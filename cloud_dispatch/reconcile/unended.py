"""VMs that shall end, and whose provider refuses that. Owns since when, and what an operator is told of them: they are
billed on, and where it is rights or credentials that lack, nobody else can help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cloud_dispatch.domain.durations import about
from cloud_dispatch.domain.ids import InstanceId, ProfileName
from cloud_dispatch.domain.instance import Instance

#: What is over by then is nobody's concern: calls are throttled, and answers are lost.
LASTING_MS = 60_000
#: So many are named one by one.
_NAMED = 5


@dataclass
class Unended:
    """By instance, since when (monotonic milliseconds) each try to end it was refused, and why the last one was."""

    _refused: dict[InstanceId, tuple[int, str]] = field(default_factory=dict)

    def refused(self, instance: InstanceId, why: str, now_ms: int) -> None:
        """It was refused, or not answered, and the VM is there."""
        since_ms, _ = self._refused.get(instance, (now_ms, ""))
        self._refused[instance] = since_ms, why

    def accepted(self, instance: InstanceId) -> None:
        """Its provider has taken the order."""
        self._refused.pop(instance, None)

    def keep(self, instances: Iterable[InstanceId]) -> None:
        """There are no others any more."""
        for gone in self._refused.keys() - set(instances):
            del self._refused[gone]

    def words(self, rows: Mapping[InstanceId, Instance], now_ms: int) -> list[str]:
        """What an operator is told of those for whom it lasts, by profile; the reason is that of the longest."""
        lasting = [
            (since_ms, rows[name], why)
            for name, (since_ms, why) in self._refused.items()
            if name in rows and now_ms - since_ms >= LASTING_MS
        ]
        by_profile: dict[ProfileName, list[tuple[int, Instance, str]]] = {}
        for one in sorted(lasting, key=lambda one: (one[0], one[1].id)):
            by_profile.setdefault(one[1].profile, []).append(one)
        return [
            f"profile {profile} has not ended VMs for {about(now_ms - found[0][0])}, and they are billed on: "
            f"{found[0][2]}. They are {names([row for _, row, _ in found])}"
            for profile, found in sorted(by_profile.items())
        ]


def names(rows: list[Instance]) -> str:
    """Who they are: instances, and the VMs that each is."""
    more = len(rows) - _NAMED
    said = sorted(f"{row.id} (VM {row.vm})" if row.vm else row.id for row in rows)
    return ", ".join(said[:_NAMED]) + (f" and {more} more" if more > 0 else "")
