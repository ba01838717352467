"""Who registers: proofs of identity, as far as a driver has them. Owns which VM is believed to be itself, and that an
operator hears of whoever is refused.

Asked before the registration is committed, never within; what a driver takes for its answer holds up nobody else.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.errors import Denied, Unavailable
from cloud_dispatch.domain.ids import BatchId, InstanceId, VmId
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.provider.errors import NotProven, ProviderError, VmNotFound
from cloud_dispatch.provider.spi import Challenge, Identity, Provider
from cloud_dispatch.reconcile.context import Context

#: By how much a provider's clock may be behind the dispatcher's where it has not said yet when it launched the VM, and
#: those of its own services behind each other where it has.
CLOCKS_MS = 300_000
#: How long a registration waits for its driver.
TIMEOUT_S = 20
#: An operator hears of refused registrations of a batch at most so often; they are counted in between.
TELL_MS = 60_000
#: So many batches are remembered for that.
_BATCHES = 256


@dataclass(slots=True)
class _Refused:
    told_ms: int
    since: int = 0


class Doorkeeper:
    """Asks whoever registers for a proof, where VMs of its driver have one."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self._refused: dict[BatchId, _Refused] = {}

    async def check(self, row: Instance, vm: VmId, proof: str) -> None:
        """Returns when `vm` may become the instance `row`: its driver has no proofs, or this is one, and the VM is of
        the row's batch. Denied otherwise, Unavailable while it can't be known."""
        provider = self._c.settings.providers.get(row.profile)
        if provider is None:
            raise Unavailable(f"profile {row.profile} is not configured: nobody can say which VM this is")
        if provider.traits.identity is Identity.NONE:
            return
        if not proof:
            raise _denied(vm, "it brought no proof of identity, which VMs of its profile have")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                proved = await provider.identify(proof, Challenge(row.batch, _since_ms(row)))
                ours = proved == vm and (vm == row.vm or await self._belongs(provider, row, vm))
        except NotProven as error:
            raise _denied(vm, f"its proof of identity proves nothing: {error.message}") from None
        except (ProviderError, TimeoutError) as error:
            raise Unavailable(f"the proof of identity of VM {vm} can't be checked now: {error!r}") from None
        if proved != vm:
            raise _denied(vm, f"its proof of identity is one of VM {proved}")
        if not ours:
            raise _denied(vm, f"it is itself, and none of batch {row.batch}")

    async def _belongs(self, provider: Provider, row: Instance, vm: VmId) -> bool:
        """Whether a VM that is bound to no slot yet is one of the batch: by its name, or by the provider's word."""
        name = provider.traits.vm_id(row.id, row.zone)
        if name is not None:
            return name == vm
        try:
            facts = tags.decode((await provider.get(vm)).tags)
        except VmNotFound:
            raise Unavailable(f"the provider does not show VM {vm} yet", hint="register again in a moment") from None
        return facts is not None and (facts.deployment, facts.batch) == (self._c.settings.deployment, row.batch)

    def tell(self, batch: BatchId, instance: InstanceId | None, why: str) -> None:
        """Somebody with the join token of `batch` was refused, in the place of `instance` if of any. An operator hears
        of it, at most once in a while for a batch: a stranger may try for long."""
        now = self._c.clock.monotonic()
        known = self._refused.get(batch)
        if known is not None and now - known.told_ms < TELL_MS:
            known.since += 1
        else:
            more = f" ({known.since} more were refused since the last)" if known is not None and known.since else ""
            self._c.note("registration.refused", instance=instance, detail=f"{why}{more}")
            self._refused.pop(batch, None)
            self._refused[batch] = _Refused(now)
            if len(self._refused) > _BATCHES:
                del self._refused[next(iter(self._refused))]


def _since_ms(row: Instance) -> int:
    """Before this no proof of the row's VM was made, by the clock that dates them: the provider's."""
    launched_ms = row.intended_ms if row.launched_ms is None else min(row.intended_ms, row.launched_ms)
    return launched_ms - CLOCKS_MS


def _denied(vm: VmId, why: str) -> Denied:
    return Denied(f"VM {vm} may not register: {why}", place="proof", hint="only the VM itself has its proof")
