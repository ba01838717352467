"""Proofs of identity as a simulated cloud signs them. Owns their form; who may have one is the account's matter.

The key follows from the account's name: drivers of every incarnation know it, guests never ask for it.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.errors import NotProven


@dataclass(frozen=True, slots=True)
class Document:
    """Which VM of the account it is; `audience` is empty where a cloud says the same to everybody."""

    vm: VmId
    audience: str
    issued_ms: int

    def signed(self, account: str) -> str:
        said = f"{self.vm}|{self.audience}|{self.issued_ms}"
        return f"{said}|{_mac(account, said)}"


def read(account: str, proof: str) -> Document:
    """What a proof of the account's says; NotProven for anything else."""
    said, _, mac = proof.rpartition("|")
    if not hmac.compare_digest(mac.encode(), _mac(account, said).encode()):
        raise NotProven("it is not signed by this account")
    vm, audience, issued_ms = said.split("|")
    return Document(VmId(vm), audience, int(issued_ms))


def _mac(account: str, said: str) -> str:
    return hmac.new(f"identities of {account}".encode(), said.encode(), "sha256").hexdigest()
