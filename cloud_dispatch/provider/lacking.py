"""What a driver answers for capabilities that its traits deny. Owns those answers, so that no driver makes up its own.

A driver inherits `Lacking` and overrides what it can do. Nobody asks for what the traits deny; whoever does, because of
a bug or of an intent from another version, gets the truth: there is nothing, or the request is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.errors import InvalidRequest, NotProven
from cloud_dispatch.provider.spi import (
    Challenge,
    Finding,
    Heard,
    LaunchResult,
    Leftover,
    Operation,
    Price,
    Quota,
    Traits,
)


def bounded(vms: Sequence[VmId], traits: Traits) -> tuple[VmId, ...]:
    """The VMs of one `tag` or `extend`, each once; InvalidRequest for more than the traits allow."""
    if len(vms) > traits.max_tagged:
        raise InvalidRequest(f"{len(vms)} VMs in one call, at most {traits.max_tagged}")
    return tuple(dict.fromkeys(vms))


class Lacking:
    """The answers of a driver without operations, movable hard ends, a hand to hear, console, leftovers, quotas, prices
    and proofs."""

    async def resume(self, operation: Operation) -> LaunchResult:
        raise InvalidRequest(f"{operation.token}: launches of this driver leave no operations")

    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        raise InvalidRequest(f"{', '.join(vms)}: this driver can't move a hard end")

    async def console(self, vm: VmId) -> str:
        return ""

    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        return ()

    async def delete_leftover(self, leftover: Leftover) -> None:
        raise InvalidRequest(f"{leftover.id}: this driver leaves nothing behind")

    async def quotas(self) -> Sequence[Quota]:
        return ()

    async def prices(self) -> Sequence[Price]:
        return ()

    async def heard(self, deployment: str) -> Heard:
        return Heard(0, "nothing is known here of a hand beside the cloud")

    async def preflight(self, deployment: str) -> Sequence[Finding]:
        return ()

    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        raise NotProven("VMs of this driver can't prove which one they are")
