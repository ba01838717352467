"""VMs that are told the same. Owns that they are told it in as few calls as their provider takes, and that each VM is
in one call at a time. What the call is, and what comes of it, is the caller's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from cloud_dispatch.domain.ids import ProfileName, VmId
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.reconcile.calls import Calls

T = TypeVar("T", bound=Hashable)
Tell = Callable[[Provider, Sequence[VmId], T], Coroutine[Any, Any, None]]


class Together(Generic[T]):
    """`tell` takes as many VMs as the provider's traits say, and what all of them are to be told."""

    def __init__(self, calls: Calls, name: str, tell: Tell[T]) -> None:
        self._calls, self._name, self._tell = calls, name, tell
        self._under_way: set[tuple[ProfileName, VmId]] = set()

    def start(self, profile: ProfileName, provider: Provider, wanted: Iterable[tuple[VmId, T]]) -> None:
        """Have each VM of the profile told what it is to be told, beside the loop, but for those that are in a call
        already: whoever sees that theirs did not do starts it again."""
        groups: dict[T, dict[VmId, None]] = {}
        for vm, what in wanted:
            if (profile, vm) not in self._under_way:
                groups.setdefault(what, {})[vm] = None
        most = provider.traits.max_tagged
        for what, group in groups.items():
            vms = tuple(group)
            for first in range(0, len(vms), most):
                part = vms[first : first + most]
                mine = {(profile, vm) for vm in part}
                self._under_way |= mine
                call = self._run(provider, part, what, mine)
                if not self._calls.start(f"{self._name}:{profile}:{part[0]}", call, profile):
                    self._under_way -= mine  # the call before has ended, and not been cleared away yet

    async def _run(self, provider: Provider, vms: Sequence[VmId], what: T, mine: set[tuple[ProfileName, VmId]]) -> None:
        try:
            await self._tell(provider, vms, what)
        finally:
            self._under_way -= mine
