"""Every call that fails says by what: never as an absence, nothing or success, and by no exception of another kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from cloud_dispatch.domain.instance import Behaviour
from cloud_dispatch.domain.tags import BEHAVIOUR
from cloud_dispatch.provider.errors import (
    CredentialsRejected,
    InDoubt,
    InvalidRequest,
    ProviderError,
    RateLimited,
    Scope,
    Transient,
)
from cloud_dispatch.provider.spi import HardEnd, Provider, Traits
from cloud_dispatch.testing.provider_contract_base import (
    DEPLOYMENT,
    FAR_FUTURE_MS,
    ContractBase,
    Faults,
    MakeRequest,
)

_RETRY_AFTER_MS = 1_000
_CHANGES = ("launch", "terminate", "tag", "extend")
#: What a driver may answer from what it knows already, or less of; what it may not answer is nothing.
_KEPT = ("offerings", "quotas", "prices")
#: How often a driver may ask anew by itself, and that what it asks for then has no answer that shows its trouble.
_TIMES = {"leftovers": 3}
_CALLS = (*_CHANGES, "list", "get", "resume", "console", "leftovers", *_KEPT)

Ask = Callable[[], Awaitable[object]]


class ErrorContract(ContractBase):
    @pytest.mark.parametrize("call", _CALLS)
    async def test_a_call_that_failed_says_by_what(
        self, provider: Provider, faults: Faults, make_request: MakeRequest, call: str
    ) -> None:
        """Trouble keeps its class, a throttled call the time to wait, refused credentials speak of the whole account;
        and the same call succeeds later: at once, or when what the failed one has left is gone."""
        _skip_without(provider.traits, call)
        if type(faults).calm is Faults.calm and (call in _KEPT or call in _TIMES):
            faults._lacks("forget faults that no call has met (`calm`)")
        ask = await self._asking(provider, make_request, call)
        for error in _errors(call):
            lost = error is InDoubt
            faults.fail(call, error, commit=lost, times=_TIMES.get(call, 1), retry_after_ms=_RETRY_AFTER_MS)
            raised = await self._raised(call, ask)
            faults.calm()
            if raised is None:
                continue
            # The repeat of a call that changes nothing new tells as much whether the first was carried out or not.
            assert isinstance(raised, (InDoubt, Transient) if lost else error), f"{call}: {error.__name__}: {raised!r}"
            assert not isinstance(raised, RateLimited) or raised.retry_after_ms >= _RETRY_AFTER_MS
            assert not isinstance(raised, CredentialsRejected) or raised.scope == Scope()

        async def succeeds() -> bool:
            try:
                await ask()
            except Transient:
                return False
            return True

        await self.until(succeeds, bool)

    async def _raised(self, call: str, ask: Ask) -> ProviderError | None:
        """What the call raised; None where it has an answer all the same, which is one."""
        try:
            answer = await ask()
        except ProviderError as error:
            return error
        except Exception as error:  # whatever it is
            pytest.fail(f"{call} raised what is no error of providers: {error!r}")
        assert call in _KEPT, f"{call} answers {answer!r} though it failed"
        assert answer, f"{call} answers that there is nothing, though it failed"
        return None

    async def _asking(self, provider: Provider, make_request: MakeRequest, call: str) -> Ask:
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


def _skip_without(traits: Traits, call: str) -> None:
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


def _errors(call: str) -> tuple[type[ProviderError], ...]:
    """What a call is made to fail by; last a lost answer, by which a change has been made."""
    wrong = (InvalidRequest,) if call in _CHANGES else ()
    return (Transient, RateLimited, CredentialsRejected, *wrong, InDoubt)
