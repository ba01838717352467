"""Google's errors as the SPI's: by what the caller should do, with the scope that they speak of. Pure.

There are two kinds: an answer of HTTP with a reason (`quotaExceeded`), and an error inside an operation that was
accepted before (`ZONE_RESOURCE_POOL_EXHAUSTED`). Reasons and codes are those of "Troubleshooting VM creation" and of
the API's error messages. What counts most: an answer that settles a launch (nothing was made) is told apart from one
that does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import requests
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.protobuf.json_format import ParseError

from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.provider.errors import (
    CapacityUnavailable,
    CredentialsRejected,
    InDoubt,
    InvalidRequest,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Scope,
    Transient,
    VmNotFound,
)
from cloud_dispatch.provider.unsent import never_sent
from cloud_dispatch_gcp.machines import ORDINARY
from cloud_dispatch_gcp.quotas import PREEMPTIBLE

EXISTS = "alreadyExists"
#: Of a label's change: somebody else has changed them since they were read. Of a launch, which sets no condition, it is
#: a policy of the organization (`constraints/compute.vmExternalIpAccess`): an operator's to mend, and not time's.
CHANGED = "conditionNotMet"

_CAPACITY = frozenset(
    {
        "ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "RESOURCE_POOL_EXHAUSTED",
        "STOCKOUT", "zoneResourcePoolExhausted", "resourcePoolExhausted",
    }
)  # fmt: skip
#: Of the type in the zone, on any market: it is not sold there.
_NOT_THERE = frozenset({"UNSUPPORTED_OPERATION", "MACHINE_TYPE_NOT_AVAILABLE"})
_SUBNET_FULL = frozenset({"IP_SPACE_EXHAUSTED", "IP_SPACE_EXHAUSTED_WITH_DETAILS"})
_QUOTA = frozenset({"quotaExceeded", "QUOTA_EXCEEDED", "limitExceeded", "LIMIT_EXCEEDED"})
_RATE = frozenset(
    {
        "rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED", "concurrentLimitExceeded",
        "OPERATION_RATE_EXCEEDED", "resourceOperationRateExceeded", "RESOURCE_OPERATION_RATE_EXCEEDED",
    }
)  # fmt: skip
_CREDENTIALS = frozenset(
    {
        "accessNotConfigured", "authError", "billingNotEnabled", "dailyLimitExceededUnreg", "expired", "forbidden",
        "insufficientPermissions", "keyExpired", "keyInvalid", "required", "PERMISSIONS_ERROR", "SERVICE_DISABLED",
        "BILLING_DISABLED",
    }
)  # fmt: skip
#: Something else is being done to it.
NOT_READY = frozenset({"resourceNotReady", "RESOURCE_NOT_READY"})
_IN_USE = frozenset({"resourceInUseByAnotherResource", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"})
#: Quotas refill at the next minute, whatever is left of this one: asked again sooner, and the throttle learns.
_PAUSE_MS = 1_000
_METRIC = re.compile(r"Quota '([A-Z0-9_]+)' exceeded")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the call was. `changes`: it may have been carried out though no answer came; `offering`: it is a launch.
    `vm`: not found means this VM."""

    call: str
    changes: bool = False
    offering: Offering | None = None
    vm: bool = False


def of_exception(error: Exception, asked: Asked) -> ProviderError:
    """What the caller of the SPI gets for what the SDK raised; anything else than its errors is raised again."""
    name, text = type(error).__name__, f"{asked.call}: {error}"
    if isinstance(error, api.RetryError):
        return (InDoubt if asked.changes else Transient)(text, code=name)
    if isinstance(error, api.GoogleAPICallError):
        found = [one for one in error.errors or () if isinstance(one, dict)]
        reason = str(found[0].get("reason", "")) if found else ""
        return of_answer(reason, str(error.message), int(error.code or 0), _retry_after(error), asked)
    if isinstance(error, auth.RefreshError):
        # Whoever hands tokens out could not be asked now, or says no. Either way the call was not made.
        return (Transient if getattr(error, "retryable", False) else CredentialsRejected)(text, code=name)
    if isinstance(error, auth.TransportError):
        return Transient(text, code=name)
    if isinstance(error, auth.GoogleAuthError):
        return CredentialsRejected(text, code=name)
    if isinstance(error, requests.exceptions.InvalidURL):
        return InvalidRequest(text, code=name)
    if isinstance(error, requests.RequestException):
        return (InDoubt if asked.changes and not never_sent(error) else Transient)(text, code=name)
    if isinstance(error, (ParseError, UnicodeDecodeError)):
        # Something answered that all was well, and the rest can't be read: a proxy, or an answer that was cut off.
        return (InDoubt if asked.changes else Transient)(text, code=name)
    if isinstance(error, (FileNotFoundError, PermissionError)):
        return CredentialsRejected(text, code=name)
    raise error


def of_answer(reason: str, message: str, status: int, retry_after: str, asked: Asked) -> ProviderError:
    """The class of an error that Google answered. `retry_after`: that header, in seconds, "" without."""
    text = f"{asked.call}: {reason or status}: {message}"
    if reason in _RATE or status == 429:
        return RateLimited(text, code=reason, retry_after_ms=max(_seconds(retry_after) * 1000, _PAUSE_MS))
    refusal = _refusal(reason, message, text, asked.offering)
    if refusal is not None:
        return refusal
    if status == 401 or reason in _CREDENTIALS or (status == 403 and reason not in _QUOTA):
        return CredentialsRejected(text, code=reason or str(status))
    if asked.offering is None and (reason == CHANGED or status == 412):
        return Transient(text, code=reason or CHANGED)
    if reason in NOT_READY | _IN_USE:
        return Transient(text, code=reason)
    if status == 404:
        return (VmNotFound if asked.vm else InvalidRequest)(text, code=reason or "notFound")
    if status >= 500 or status in (0, 408):
        return (InDoubt if asked.changes else Transient)(text, code=reason or str(status))
    return InvalidRequest(text, code=reason or (EXISTS if status == 409 else str(status)))


def of_operation(errors: Iterable[Any], status: int, asked: Asked) -> ProviderError | None:
    """Why an operation that has ended did nothing; None where it was carried out. `errors`: its `error.errors`,
    `status`: its `httpErrorStatusCode`."""
    found = list(errors)
    if not found and status < 400:
        return None
    code, message = (found[0].code, found[0].message) if found else ("", "it failed and does not say why")
    known = of_answer(str(code), str(message), status, "", asked)
    # It has ended, and whatever it says of the server: nothing was made, and nobody need be in doubt.
    if isinstance(known, InDoubt):
        return Transient(known.message, code=known.code)
    return known


def in_use(error: ProviderError) -> bool:
    """Whether what was to be deleted is attached to a VM."""
    return error.code in _IN_USE


def _refusal(code: str, message: str, text: str, offering: Offering | None) -> ProviderError | None:
    """There is none of it, or the project may have no more of it; None for another kind of error."""
    type_name, zone = (offering.type.name, offering.zone) if offering else ("", "")
    region, market = (offering.region, str(offering.market)) if offering else ("", "")
    if code in _CAPACITY:
        return CapacityUnavailable(text, code=code, scope=Scope(type=type_name, zone=zone, market=market))
    if code in _NOT_THERE and offering is not None:
        return CapacityUnavailable(text, code=code, scope=Scope(type=type_name, zone=zone))
    if code in _SUBNET_FULL:
        return CapacityUnavailable(text, code=code, scope=Scope(region=region))
    if code in _QUOTA:
        return QuotaExceeded(text, code=code, scope=_quota_scope(message, offering))
    return None


def _quota_scope(message: str, offering: Offering | None) -> Scope:
    """What a quota is of, as its name says: spot cores, a family's, GPUs, everything of the project, or of the region.
    Cores that are counted by a name that nobody knows here are those of the family that was refused; where that counts
    together with others, of the type alone."""
    match = _METRIC.search(message)
    metric = match[1] if match else ""
    if offering is not None and "GPUS" in metric:
        return _gpu_scope(metric, offering)
    if offering is None or metric.endswith("_ALL_REGIONS"):
        return Scope()
    if metric == PREEMPTIBLE:
        return Scope(market=str(Market.SPOT), region=offering.region)
    if "CPUS" in metric.split("_"):
        market = str(Market.SPOT) if metric.startswith("PREEMPTIBLE_") else ""
        kind = offering.type
        if kind.family == ORDINARY != metric:
            return Scope(type=kind.name, market=market, region=offering.region)
        return Scope(family=kind.family, market=market, region=offering.region)
    if "LOCAL_SSD" in metric:
        return Scope(type=offering.type.name, market=str(offering.market), region=offering.region)
    return Scope(region=offering.region)


def _gpu_scope(metric: str, offering: Offering) -> Scope:
    """GPUs of a kind, of one market where the quota is its own; spot may count against the ordinary one."""
    if metric.endswith("_ALL_REGIONS"):
        return Scope(gpu=offering.type.gpu_type)
    both = offering.market is Market.SPOT and not metric.startswith("PREEMPTIBLE_")
    kind, market = offering.type, "" if both else str(offering.market)
    return Scope(gpu=kind.gpu_type, gpu_memory=kind.gpu_memory, market=market, region=offering.region)


def _retry_after(error: Any) -> str:
    headers = getattr(error.response, "headers", None) or {}
    return str(headers.get("retry-after", ""))


def _seconds(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 7 else 0
