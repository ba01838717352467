"""Every call that fails says by what: never as an absence, nothing or success, and by no exception of another kind."""

from __future__ import annotations

import pytest

from cloud_dispatch.provider.errors import (
    CredentialsRejected,
    InDoubt,
    InvalidRequest,
    ProviderError,
    RateLimited,
    Scope,
    Transient,
)
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.testing.provider_contract_base import Faults, MakeRequest
from cloud_dispatch.testing.provider_contract_calls import CALLS, CHANGES, KEPT, Ask, CallsContract, skip_without

_RETRY_AFTER_MS = 1_000
#: How often a driver may ask anew by itself, and that what it asks for then has no answer that shows its trouble.
_TIMES = {"leftovers": 3}


class ErrorContract(CallsContract):
    @pytest.mark.parametrize("call", CALLS)
    async def test_a_call_that_failed_says_by_what(
        self, provider: Provider, faults: Faults, make_request: MakeRequest, call: str
    ) -> None:
        """Trouble keeps its class, a throttled call the time to wait, refused credentials speak of the whole account;
        and the same call succeeds later: at once, or when what the failed one has left is gone."""
        skip_without(provider.traits, call)
        if type(faults).calm is Faults.calm and (call in KEPT or call in _TIMES):
            faults._lacks("forget faults that no call has met (`calm`)")
        ask = await self.asking(provider, make_request, call)
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
        assert call in KEPT, f"{call} answers {answer!r} though it failed"
        assert answer, f"{call} answers that there is nothing, though it failed"
        return None


def _errors(call: str) -> tuple[type[ProviderError], ...]:
    """What a call is made to fail by; last a lost answer, by which a change has been made."""
    wrong = (InvalidRequest,) if call in CHANGES else ()
    return (Transient, RateLimited, CredentialsRejected, *wrong, InDoubt)
