"""Drivers that are wrong about proofs of identity. Loading them adds them to the list of `broken` and `broken_tags`."""

from __future__ import annotations

from dataclasses import replace

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.errors import NotProven, Transient
from cloud_dispatch.provider.spi import Challenge
from tests.providers.broken_tags import PLANTED, Planted, breaks
from tests.providers.memory import TOKENS, MemoryProvider, seal

__all__ = ["PLANTED", "Planted", "breaks"]


@breaks("test_a_vm_proves_that_it_is_itself")
class BelievesNobody(MemoryProvider):
    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        raise NotProven("whoever it is")


@breaks("test_a_proof_is_of_one_vm_and_of_no_other")
@breaks("test_a_proof_that_was_changed_proves_nothing")
class LooksAtNoSignature(MemoryProvider):
    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        said = " ".join([*proof.split(" "), "", "0"][:3])
        return await super().identify(f"{said} {seal(said)}", challenge)


@breaks("test_nonsense_proves_nothing")
class LeavesItOpen(MemoryProvider):
    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        try:
            return await super().identify(proof, challenge)
        except NotProven as error:
            raise Transient("ask again") from error


@breaks("test_an_old_proof_proves_nothing")
class TakesOldProofs(MemoryProvider):
    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        return await super().identify(proof, replace(challenge, since_ms=0))


@breaks("test_a_proof_for_another_batch_proves_nothing")
class TakesProofsForOthers(MemoryProvider):
    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        said, _, sealed = proof.rpartition(" ")
        return VmId(said.split(" ")[0]) if sealed == seal(said) else await super().identify(proof, challenge)


@breaks("test_a_driver_without_proofs_takes_nothing_for_one", TOKENS)
class BelievesNames(MemoryProvider):
    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        return VmId(proof)
