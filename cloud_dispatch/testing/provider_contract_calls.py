"""The calls that a driver can be asked, each on what there is for it: for what has to hold for every one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from cloud_dispatch.domain.instance import Behaviour
from cloud_dispatch.domain.tags import BEHAVIOUR
from cloud_dispatch.provider.spi import HardEnd, Provider, Traits
from cloud_dispatch.testing.provider_contract_base import DEPLOYMENT, FAR_FUTURE_MS, ContractBase, MakeRequest

CHANGES = ("launch", "terminate", "tag", "extend")
#: What a driver may answer from what it knows already, or less of; what it may not answer is nothing.
KEPT = ("offerings", "quotas", "prices")
CALLS = (*CHANGES, "list", "get", "resume", "console", "leftovers", *KEPT)

Ask = Callable[[], Awaitable[object]]


class CallsContract(ContractBase):
    async def asking(self, provider: Provider, make_request: MakeRequest, call: str) -> Ask:
        """The call, on what there is for it."""
        plain: dict[str, Ask] = {
            "list": lambda: provider.list(DEPLOYMENT),
            "leftovers": lambda: provider.leftovers(DEPLOYMENT),
            "offerings": provider.offerings,
            "quotas": provider.quotas,
            "prices": provider.prices,
        }
        if call in plain:
            return plain[call]
        request = await make_request()
        if call == "launch":
            return lambda: provider.launch(request)
        if call == "resume":
            pending = (await provider.launch(request)).pending
            if not pending:
                pytest.skip("the launch left no operation")
            return lambda: provider.resume(pending[0])
        (vm,) = await self.launched(provider, request)
        await self.running(provider, vm.id)
        of_a_vm: dict[str, Ask] = {
            "get": lambda: provider.get(vm.id),
            "terminate": lambda: provider.terminate(vm.id),
            "tag": lambda: provider.tag([vm.id], {BEHAVIOUR: Behaviour.HOLD}),
            "extend": lambda: provider.extend([vm.id], FAR_FUTURE_MS + 1),
            "console": lambda: provider.console(vm.id),
        }
        return of_a_vm[call]


def skip_without(traits: Traits, call: str) -> None:
    """What the traits deny is not asked."""
    there = {
        "resume": traits.operation_poll_ms > 0,
        "extend": traits.hard_end is HardEnd.EXTENDABLE,
        "console": traits.console,
        "leftovers": traits.leftovers,
        "quotas": traits.quotas,
        "prices": traits.prices,
    }
    if not there.get(call, True):
        pytest.skip(f"the driver has no {call}")
