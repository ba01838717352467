"""What a backend itself says of its VMs, past the driver. Owns the questions; a backend answers those that it can."""

from __future__ import annotations

import gzip
from typing import NoReturn

import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.offering import Market

_GZIP = b"\x1f\x8b"


class Truth:
    """What stands in the account, by the backend's own books: override what yours can tell; the rest skips its tests.
    A driver that answers from what it was asked for, and not from what it did, is seen by nothing else."""

    async def user_data(self, vm: VmId) -> bytes:
        """What the VM's cloud-init is given: the bytes, with whatever the cloud asks for around them taken off."""
        self._lacks("user data")

    async def hard_end_ms(self, vm: VmId) -> int:
        """When the hand that is independent of the guest would end the VM as things are, milliseconds since the epoch;
        0: never. Where the hand counts from the VM's start, as if that had been when it was made."""
        self._lacks("hard ends")

    async def market(self, vm: VmId) -> Market:
        """On which market the VM is billed."""
        self._lacks("markets")

    async def requests(self) -> int:
        """How many requests it has been asked so far, by whomever."""
        self._lacks("how often it is asked")

    def _lacks(self, what: str) -> NoReturn:
        pytest.skip(f"the backend does not tell {what}")


def unpacked(data: bytes) -> bytes:
    """User data as a VM boots them: cloud-init unpacks gzip by itself."""
    return gzip.decompress(data) if data.startswith(_GZIP) else data
