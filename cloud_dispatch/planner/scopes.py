"""What speaks of offerings by some of their properties: failures, quotas. Owns finding what each speaks of, quickly:
there may be thousands of offerings, and plans are made again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Offering


class Scoped(Protocol):
    """It speaks of the offerings of its profile whose properties are those that it names; an empty one is any."""

    @property
    def profile(self) -> ProfileName: ...


T = TypeVar("T", bound=Scoped)
#: The properties by their names in a scope, and where an offering has them.
_PROPERTIES = {
    "type": "type.name", "zone": "zone", "market": "market", "family": "type.family", "region": "region",
    "image": "image", "gpu": "type.gpu_type", "gpu_memory": "type.gpu_memory",
}  # fmt: skip


class Scopes(Generic[T]):
    """Values by what they speak of. Those that name the same properties are found by one look-up."""

    def __init__(self, values: Iterable[T]) -> None:
        found: dict[tuple[str, ...], dict[Any, list[T]]] = {}
        for value in values:
            named = tuple(name for name in _PROPERTIES if getattr(value, name, ""))
            key = (value.profile, *(getattr(value, name) for name in named))
            found.setdefault(named, {}).setdefault(key if named else value.profile, []).append(value)
        #: In a fixed order: the first one that speaks of an offering may be the one that is told.
        self._tables: list[tuple[Callable[[Offering], Any], dict[Any, list[T]]]] = [
            (attrgetter("profile", *(_PROPERTIES[name] for name in named)), found[named])
            for named in sorted(found, key=lambda named: [name in named for name in _PROPERTIES])
        ]

    def __bool__(self) -> bool:
        return bool(self._tables)

    def of(self, offering: Offering) -> list[T]:
        """Those that speak of `offering`."""
        return [value for of, table in self._tables for value in table.get(of(offering), ())]

    def among(self, offerings: Iterable[Offering]) -> Iterator[tuple[Offering, T]]:
        """Each of `offerings` with each that speaks of it."""
        for of, table in self._tables:
            for offering in offerings:
                for value in table.get(of(offering), ()):
                    yield offering, value
