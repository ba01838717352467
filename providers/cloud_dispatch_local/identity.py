"""Proofs of identity of local VMs: what a cloud's metadata service gives, here a file. Owns its form and its check.

Each VM gets a key when it is made. It signs which VM of which batch this is; then the private half is forgotten, so
that nobody can sign as this VM again, and the public one stays in the VM's record, and goes with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """What a proof says: which VM, of which batch, made when (epoch ms)."""

    vm: str
    batch: str
    issued_ms: int


class Forged(Exception):
    """Not a proof that was made here; the text says why."""


def issue(said: Said) -> tuple[str, str]:
    """A proof that says so, signed with a key that nothing else is ever signed with; and that key's public half."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    text = json.dumps({"vm": said.vm, "batch": said.batch, "issued_ms": said.issued_ms}, separators=(",", ":"))
    body = text.encode()
    return f"{body.hex()}.{key.sign(body).hex()}", key.public_key().public_bytes_raw().hex()


def read(proof: str) -> tuple[Said, bytes, bytes]:
    """What `proof` says, not checked yet, with the bytes that are signed and the signature. Forged for nonsense."""
    body, _, signature = proof.partition(".")
    try:
        signed = bytes.fromhex(body)
        values = json.loads(signed)
        said = Said(str(values["vm"]), str(values["batch"]), int(values["issued_ms"]))
        return said, signed, bytes.fromhex(signature)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise Forged("it is none of a local VM") from None


def check(signed: bytes, signature: bytes, key: str) -> None:
    """Forged unless the public `key` of the VM's record (hex) says that its own made the signature."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(signature, signed)
    except (InvalidSignature, ValueError):
        raise Forged("its signature is not that of the VM that it names") from None
