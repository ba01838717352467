"""Ends without a store. Owns `reap`: every VM with a deployment's tag, or those past their hard end, listed and, on an
operator's word, ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cloud_dispatch.domain import reaper, tags
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider.errors import ProviderError, VmNotFound
from cloud_dispatch.provider.spi import Provider, Vm, VmState

ROUNDS = 60
PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Found:
    """A VM of the deployment, and the profile whose provider has it."""

    profile: ProfileName
    vm: Vm

    def view(self) -> dict[str, str | int]:
        """JSON-ready."""
        facts = tags.decode(self.vm.tags)
        return {
            "id": self.vm.id,
            "profile": self.profile,
            "type": self.vm.type,
            "zone": self.vm.zone,
            "state": str(self.vm.state),
            "store": facts.store if facts else "",
            "pool": facts.pool if facts else "",
            "ends_ms": facts.ends_ms if facts else 0,
        }


async def find(providers: Mapping[ProfileName, Provider], deployment: str) -> list[Found]:
    """Every VM of `deployment` that is not gone; ProviderError when a provider can't be listed whole."""
    found = []
    for profile, provider in providers.items():
        listing = await provider.list(deployment)
        if not listing.complete:
            raise ProviderError(f"the listing of profile {profile} is incomplete: run it again")
        found += [Found(profile, vm) for vm in listing.vms if vm.state is not VmState.GONE]
    return found


def overdue(found: list[Found], deployment: str, now: int) -> list[Found]:
    """Those of `found` whose hard end has come at `now`, by the rule of every reaper."""
    return [item for item in found if reaper.overdue([(item.vm.id, item.vm.tags)], now, deployment)]


async def end(providers: Mapping[ProfileName, Provider], found: list[Found]) -> list[Found]:
    """Ask for each VM's end until its provider says that it is gone, `ROUNDS` times at most; their states then."""
    left = dict(enumerate(found))
    for _ in range(ROUNDS):
        for number, item in list(left.items()):
            state = await _end(providers[item.profile], item.vm)
            found[number] = Found(item.profile, replace(item.vm, state=state))
            if state is VmState.GONE:
                del left[number]
        if not left:
            break
        await asyncio.sleep(PAUSE_S)
    return found


async def _end(provider: Provider, vm: Vm) -> VmState:
    try:
        await provider.terminate(vm.id)
        return (await provider.get(vm.id)).state
    except VmNotFound:
        return VmState.GONE
    except ProviderError:
        return vm.state
