"""User data on their way to the VM: all of them, to every VM of a batch, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloud_dispatch.provider.sending import sent
from cloud_dispatch.provider.spi import Provider, Traits
from cloud_dispatch.testing.provider_contract_base import ContractBase, MakeRequest
from cloud_dispatch.testing.provider_contract_secrets import letters
from cloud_dispatch.testing.provider_contract_truth import Truth, unpacked

#: What shells, templates, XML, JSON, URLs and encodings treat in ways of their own.
_ODD = "\u00e4\u03a9\u6f22\U0001f600 \t$HOME ${x} `x` {{ x }} {% x %} %s %20 &amp; <x> ]]> \\n \\\\ '\" # + / =  "


def _plain(user_data: str, traits: Traits) -> str:
    return user_data


def _odd(user_data: str, traits: Traits) -> str:
    return f"{user_data}# {_ODD}\r\n#\n\n\n"


def _unended(user_data: str, traits: Traits) -> str:
    return f"{user_data}# without an end of its line"


def _longest(user_data: str, traits: Traits) -> str:
    """About as long as may be."""
    least, most = 0, 4 * traits.max_user_data
    noise = letters(most)
    while least < most:
        middle = (least + most + 1) // 2
        fits = len(sent(f"{user_data}# {noise[:middle]}\n", traits)) <= traits.max_user_data
        least, most = (middle, most) if fits else (least, middle - 1)
    return f"{user_data}# {noise[:least]}\n"


class UserDataContract(ContractBase):
    @pytest.mark.parametrize("make", [_plain, _odd, _unended, _longest], ids=lambda make: make.__name__[1:])
    async def test_user_data_arrive_as_they_were_given(
        self,
        provider: Provider,
        truth: Truth,
        user_data: str,
        make_request: MakeRequest,
        make: Callable[[str, Traits], str],
    ) -> None:
        """Byte for byte, up to the longest that the traits allow, whatever characters are in them; each VM of a batch
        is given them. A token that lost its end admits nobody, and says so by no error of the provider's."""
        text = make(user_data, provider.traits)
        request = await make_request(slots=min(2, provider.traits.max_batch), user_data=text)
        for vm in await self.launched(provider, request):
            assert unpacked(await truth.user_data(vm.id)) == text.encode()
