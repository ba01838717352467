"""Consoles: the last words of a VM, which say why it did not come; bounded, and nothing where there is none."""

from __future__ import annotations

import pytest

from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.testing.provider_contract_base import ContractBase, Faults, MakeRequest

_CONSOLE_BYTES = 65_536
_LAST = "contract: this was the last line."
#: The last 64 KiB of such lines, and of the one above, begin within a character.
_WIDE = "\u6f22\u5b57" * 5


class ConsoleContract(ContractBase):
    async def test_a_console_is_text_of_a_bounded_length(self, provider: Provider, make_request: MakeRequest) -> None:
        """A VM's console can be asked for at any time; without the trait it is empty, and so is that of no VM."""
        (vm,) = await self.launched(provider, await make_request())
        await self.running(provider, vm.id)
        text = await provider.console(vm.id)
        assert len(text.encode()) <= _CONSOLE_BYTES
        assert provider.traits.console or text == ""
        assert await provider.console(self.unknown_vm) == ""

    @pytest.mark.parametrize("line", ["line", _WIDE], ids=["ascii", "wide"])
    async def test_a_console_shows_what_was_said_last(
        self, provider: Provider, faults: Faults, make_request: MakeRequest, line: str
    ) -> None:
        """Of more than it may be long the end is told, in whole characters: 64 KiB of it at most."""
        if not provider.traits.console:
            pytest.skip("the driver has no console")
        (vm,) = await self.launched(provider, await make_request())
        await self.running(provider, vm.id)
        lines = [f"{number} {line}" for number in range(2 * _CONSOLE_BYTES // len(f"0000 {line}".encode()))]
        faults.say(vm.id, "\n".join(["", *lines, _LAST, ""]))
        shown = await self.until(lambda: provider.console(vm.id), lambda text: _LAST in text)
        assert len(shown.encode()) <= _CONSOLE_BYTES
        before = shown[: shown.index(_LAST)].rstrip().splitlines()[1:]  # the first may be cut
        assert before == lines[len(lines) - len(before) :]
        assert before, "of a long console more than its last line is told"
