"""User data hold the join token of their batch: they are told to the VM, and nowhere else."""

from __future__ import annotations

import base64
import logging
from dataclasses import replace

import pytest

from cloud_dispatch.provider.errors import InvalidRequest
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.testing.provider_contract_base import ContractBase, MakeRequest

_MARK = "c0ntract-mark-of-a-token"


class SecretsContract(ContractBase):
    async def test_user_data_are_told_to_nobody_but_the_vm(
        self, provider: Provider, make_request: MakeRequest, caplog: pytest.LogCaptureFixture
    ) -> None:
        """No log, no operation's token, no VM, no error and not the driver itself show what was in them."""
        request = await make_request()
        wanted = replace(request, user_data=f"{request.user_data}# {_MARK}\n")
        long = replace(await make_request(), user_data=f"# {_MARK} {letters(4 * provider.traits.max_user_data)}")
        with caplog.at_level(logging.DEBUG):
            result = await provider.launch(wanted)
            shown = [repr(result), *(operation.token for operation in result.pending)]
            vms = await self.launched(provider, wanted)
            with pytest.raises(InvalidRequest) as refused:
                await provider.launch(long)
        shown += [repr(vms), repr(provider), str(refused.value), repr(refused.value), caplog.text]
        for number, text in enumerate(shown):
            assert not [form for form in _forms(wanted.user_data) if form in text], f"the secret is in text {number}"


def letters(characters: int) -> str:
    """Text that can hardly be packed: without a pattern, and the same each time."""
    number = 1
    found: list[str] = []
    while len(found) < characters:
        number = number * 6364136223846793005 % 2**64
        found.append("0123456789abcdefghijklmnopqrstuv"[number >> 59])
    return "".join(found)


def _forms(user_data: str) -> tuple[str, ...]:
    """How the secret looks by itself, and in the usual writings of all the user data."""
    before = len(user_data[: user_data.index(_MARK)].encode())
    coded = base64.b64encode(user_data.encode()).decode()
    start, end = -(-before // 3) * 4, (before + len(_MARK)) // 3 * 4
    return _MARK, _MARK.encode().hex(), coded[start:end]
