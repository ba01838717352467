"""What a driver may answer, classed by what the caller should do. One translating function a driver makes these.

ProviderError
├── RateLimited          wait until `retry_after_ms` have passed, then the same call
├── QuotaExceeded        nothing more in `scope` until something ends or an operator acts: another offering
├── CapacityUnavailable  the provider has none now in `scope`: another offering, this one later
├── InvalidRequest       our request is wrong: stop, tell the operator
├── CredentialsRejected  stop using the profile, tell the operator
├── VmNotFound           no such VM (any more)
├── NotProven            a proof of identity that is none: refuse whoever brought it
├── Transient            nothing was done; the same call may succeed
└── InDoubt              the call may have been carried out: look before anything else
"""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.resources import format_bytes


@dataclass(frozen=True, slots=True)
class Scope:
    """What an error speaks of; empty fields mean any. All empty: the whole account.

    `family` is the unit of quotas (with `market`, where spot has its own), `type` x `zone` x `market` that of capacity.
    `gpu` is what tasks call a GPU (`InstanceType.gpu_type`), whatever type it comes with, `gpu_memory` its bytes, where
    that tells two of a name apart.
    """

    type: str = ""
    zone: str = ""
    market: str = ""
    region: str = ""
    family: str = ""
    gpu: str = ""
    gpu_memory: int = 0

    def covers(self, offering: Offering) -> bool:
        """Whether the error speaks of `offering` too."""
        return (
            self.type in ("", offering.type.name)
            and self.zone in ("", offering.zone)
            and self.market in ("", offering.market)
            and self.region in ("", offering.region)
            and self.family in ("", offering.type.family)
            and self.gpu in ("", offering.type.gpu_type)
            and self.gpu_memory in (0, offering.type.gpu_memory)
        )

    @property
    def level(self) -> str:
        """Which fields are given, without their values: `type+zone`, or `account` for none."""
        return "+".join(name for name, _ in self._given()) or "account"

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._given()) or "account"

    def _given(self) -> list[tuple[str, str]]:
        memory = format_bytes(self.gpu_memory) if self.gpu_memory else ""
        named = (
            ("type", self.type), ("family", self.family), ("gpu", self.gpu), ("gpu_memory", memory),
            ("zone", self.zone), ("market", self.market), ("region", self.region),
        )  # fmt: skip
        return [(name, value) for name, value in named if value]


class ProviderError(Exception):
    """Base. `code` is the provider's own word where it has one, for the operator."""

    def __init__(self, message: str, *, code: str = "", scope: Scope = Scope(), retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.scope = scope
        self.retry_after_ms = retry_after_ms

    def __str__(self) -> str:
        """The message, with the provider's word for it where the message has it not."""
        return self.message if not self.code or self.code in self.message else f"{self.message} ({self.code})"


class RateLimited(ProviderError):
    """Wait `retry_after_ms`, then the same call."""


class QuotaExceeded(ProviderError):
    """A limit of the account in `scope`."""


class CapacityUnavailable(ProviderError):
    """The provider has none now in `scope`."""


class InvalidRequest(ProviderError):
    """Our request is wrong; sending it again changes nothing."""


class CredentialsRejected(ProviderError):
    """The profile can't be used."""


class VmNotFound(ProviderError):
    """No such VM, or no more."""


class NotProven(ProviderError):
    """What was brought as a proof of identity proves nothing."""


class Transient(ProviderError):
    """Nothing was done; the same call may succeed."""


class InDoubt(ProviderError):
    """The call may have been carried out."""


#: Answers that settle a launch: no VM of this batch exists or will.
DEFINITIVE = (QuotaExceeded, CapacityUnavailable, InvalidRequest, CredentialsRejected, RateLimited, Transient)
