"""Proofs of identity: which VM one shows its bearer to be, and that nothing else shows anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_dispatch.domain.ids import BatchId
from cloud_dispatch.provider.errors import NotProven
from cloud_dispatch.provider.spi import Challenge, Identity, LaunchRequest, Provider, Vm
from cloud_dispatch.testing.provider_contract_base import FAR_FUTURE_MS, Connect, ContractBase, MakeRequest, Prove
from cloud_dispatch.testing.provider_contract_truth import Truth

_NONSENSE = (
    "",
    "x",
    ".",
    "\u2603",
    "a.b.c",
    "{}",
    "[]",
    "MII" + "A" * 2000,
    "\0",
    "|||",
    "7b7d.00",
    "-----BEGIN PKCS7-----",
)
#: So many proofs are shown to the driver, right and wrong, and so often it may ask for that: a key may have to be new.
_MANY, _FEW = 10, 2


class IdentityContract(ContractBase):
    async def test_a_vm_proves_that_it_is_itself(
        self, provider: Provider, connect: Connect, make_request: MakeRequest, prove: Prove
    ) -> None:
        """To the driver that made it and to every other one, any number of times."""
        self._needs(provider)
        vm, challenge, proof = await self._proof(provider, make_request, prove)
        assert await provider.identify(proof, challenge) == vm.id
        heir = connect()
        try:
            assert [await heir.identify(proof, challenge) for _ in range(2)] == [vm.id, vm.id]
        finally:
            await heir.close()

    async def test_a_proof_is_of_one_vm_and_of_no_other(
        self, provider: Provider, make_request: MakeRequest, prove: Prove
    ) -> None:
        """Another VM's proof shows that other VM; what is put together from two shows neither."""
        self._needs(provider)
        request = await make_request(slots=min(2, provider.traits.max_batch))
        other = request if request.slots == 2 else await make_request()
        vms = await self._up(provider, request)
        second = vms[1] if request.slots == 2 else (await self._up(provider, other))[0]
        challenge, others = Challenge(request.batch, since_ms=0), Challenge(other.batch, since_ms=0)
        proofs = await prove(vms[0].id, challenge), await prove(second.id, others)
        assert await provider.identify(proofs[1], others) == second.id
        for quarter in (1, 2, 3):
            cut = len(proofs[0]) * quarter // 4
            for mixed in (proofs[0][:cut] + proofs[1][cut:], proofs[1][:cut] + proofs[0][cut:]):
                if mixed not in proofs:
                    await self._unproven(provider, mixed, challenge)

    async def test_a_proof_that_was_changed_proves_nothing(
        self, provider: Provider, make_request: MakeRequest, prove: Prove
    ) -> None:
        """Cut short, or with a character of its beginning, middle or last third another."""
        self._needs(provider)
        _, challenge, proof = await self._proof(provider, make_request, prove)
        for place in (1, len(proof) // 2, len(proof) * 3 // 4):
            await self._unproven(provider, proof[:place], challenge)
            other = "1" if proof[place] != "1" else "2"
            await self._unproven(provider, proof[:place] + other + proof[place + 1 :], challenge)

    @pytest.mark.parametrize("number", range(len(_NONSENSE)))
    async def test_nonsense_proves_nothing(self, provider: Provider, number: int) -> None:
        """Whatever a stranger sends: it is no proof, and no bug."""
        self._needs(provider)
        await self._unproven(provider, _NONSENSE[number], Challenge(BatchId("c99999999996"), since_ms=0))

    async def test_an_old_proof_proves_nothing(
        self, provider: Provider, make_request: MakeRequest, prove: Prove
    ) -> None:
        """One from before the launch is of a VM that is gone, and may have had the same name."""
        self._needs(provider)
        request = await make_request()
        (vm,) = await self._up(provider, request)
        proof = await prove(vm.id, Challenge(request.batch, since_ms=0))
        await self._unproven(provider, proof, Challenge(request.batch, since_ms=FAR_FUTURE_MS))

    async def test_a_proof_for_another_batch_proves_nothing(
        self, provider: Provider, make_request: MakeRequest, prove: Prove
    ) -> None:
        """Where proofs are made out to somebody, nobody else can use them."""
        self._needs(provider)
        if provider.traits.identity is not Identity.MADE_OUT:
            pytest.skip("proofs are the same to everybody")
        _, challenge, proof = await self._proof(provider, make_request, prove)
        await self._unproven(provider, proof, replace(challenge, batch=BatchId("c99999999995")))

    async def test_proofs_are_checked_without_the_cloud(
        self, provider: Provider, make_request: MakeRequest, prove: Prove, truth: Truth
    ) -> None:
        """Keys and names are kept: what anybody can bring at any time is no way to have the account asked, and to use
        up what it allows a second."""
        self._needs(provider)
        vm, challenge, proof = await self._proof(provider, make_request, prove)
        assert await provider.identify(proof, challenge) == vm.id
        before = await truth.requests()
        for number in range(_MANY):
            assert await provider.identify(proof, challenge) == vm.id
            await self._unproven(provider, proof[: -number - 1], challenge)
            await self._unproven(provider, _NONSENSE[number % len(_NONSENSE)], challenge)
        assert await truth.requests() - before <= _FEW

    async def test_a_driver_without_proofs_takes_nothing_for_one(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """Then a launch of the dispatcher makes one VM, whatever the driver could."""
        if provider.traits.identity is not Identity.NONE:
            pytest.skip("VMs of this driver can prove who they are")
        request = await make_request()
        (vm,) = await self.launched(provider, request)
        await self._unproven(provider, vm.id, Challenge(request.batch, since_ms=0))
        assert provider.traits.most_slots == 1

    async def _up(self, provider: Provider, request: LaunchRequest) -> tuple[Vm, ...]:
        """The VMs of a launch, once they run."""
        vms = await self.launched(provider, request)
        for vm in vms:
            await self.running(provider, vm.id)
        return vms

    async def _proof(self, provider: Provider, make_request: MakeRequest, prove: Prove) -> tuple[Vm, Challenge, str]:
        """A VM that runs, what it is asked, and its proof."""
        request = await make_request()
        (vm,) = await self._up(provider, request)
        challenge = Challenge(request.batch, since_ms=0)
        return vm, challenge, await prove(vm.id, challenge)

    async def _unproven(self, provider: Provider, proof: str, challenge: Challenge) -> None:
        with pytest.raises(NotProven):
            await provider.identify(proof, challenge)

    def _needs(self, provider: Provider) -> None:
        if provider.traits.identity is Identity.NONE:
            pytest.skip("VMs of this driver can't prove who they are")
