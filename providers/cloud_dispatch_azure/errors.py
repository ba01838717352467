"""Azure's errors as the SPI's: by what the caller should do, with the scope that they speak of. Pure.

Classed by code, and by status only where the code is not known: the SDK calls each 409 "exists already", whatever it
means. What fails after it was accepted has no status that says anything, and is classed by its code alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any

from azure.core import exceptions as sdk

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
from cloud_dispatch_azure import signin

#: Of a creation that asked for there being none: there is one by this name.
EXISTS = frozenset({"PreconditionFailed", "ConditionNotMet"})
#: Tokens that a new one may take the place of.
STALE = frozenset({"ExpiredAuthenticationToken", "InvalidAuthenticationToken", "AuthenticationFailed"})
#: What a VM still holds.
IN_USE = frozenset(
    {"NicInUse", "NicReservedForAnotherVm", "PublicIPAddressCannotBeDeleted", "DiskIsAttachedToVM", "InUse"}
)
_GONE = frozenset({"ResourceNotFound", "NotFound"})
#: The size, in the zone, on the market: there is none of it now.
_CAPACITY = frozenset(
    {
        "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest", "SkuNotAvailable", "SpotPriceGreaterThanProvidedMaxPrice",
        "CapacityNotAvailable", "OverConstrainedAllocationRequest",  # older pages of Azure's spell it so
    }
)  # fmt: skip
_QUOTA = frozenset({"QuotaExceeded", "ResourceQuotaExceeded"})
#: Of the subscription in the region, whatever the size: addresses, interfaces and other things that are counted.
_COUNTS = re.compile(
    r"\w+LimitReached|ResourceGroupResourceLimitExceeded|MaxStorageAccountsCountPerSubscriptionExceeded"
)
_RATE = frozenset(
    {
        "TooManyRequests", "SubscriptionRequestsThrottled", "ResourceRequestsThrottled", "OperationThrottled",
        "ResourceCollectionRequestsThrottled",
    }
)  # fmt: skip
_CREDENTIALS = frozenset(
    {
        "AuthorizationFailed", "LinkedAuthorizationFailed", "InvalidAuthenticationTokenTenant",
        "InvalidAuthenticationTokenAudience", "SubscriptionNotFound", "InvalidSubscriptionId",
        "ReadOnlyDisabledSubscription", "DisabledSubscription", "AadAuthFailure", *STALE,
    }
)  # fmt: skip
#: Another operation holds what was asked for, or what that refers to. The network's service answers so with 429 as
#: well, and says it in the details of a RetryableError: that tells nothing of the pace of requests.
_HELD = frozenset(
    {"RetryableErrorDueToAnotherOperation", "ReferencedResourceNotProvisioned", "AnotherOperationInProgress"}
)
#: Between two states, or another hand was at it: nothing was done. The last are all that some operations say.
_AGAIN = frozenset(
    {
        *_HELD, "RetryableError", "Conflict", "AttachDiskWhileBeingDetached", "OperationPreempted", "OperationCanceled",
        "CannotPerformOperationOnResourceBeingDeleted", "ConflictingConcurrentWriteNotAllowed", "DiskImageNotReady",
        "ResourceUpdateBlockedOnPlatformUpdate", "failed", "canceled", "cancelled",
    }
)  # fmt: skip
#: What somebody has to mend, also where it shows late: the request, what it names, or what the subscription forbids.
_WRONG = frozenset(
    {
        "RequestDisallowedByPolicy", "ScopeLocked", "MissingSubscriptionRegistration", "InvalidParameter", "BadRequest",
        "InvalidRequestFormat", "OperationNotAllowed", "PropertyChangeNotAllowed", "InvalidResourceReference",
        "PlatformImageNotFound", "ImageNotFound", "ImageBlobNotFound", "DiskBlobNotFound", "IncorrectDiskBlobType",
        "VHDSizeInvalid", "SubscriptionNotAuthorizedForImage", "OSProvisioningClientError", "VMMarketplaceInvalidInput",
        "KeyVaultAccessForbidden", "MarketplacePurchaseEligibilityFailed", "ResourcePurchaseValidationFailed",
        "ResourceGroupNotFound", *_GONE,
    }
)  # fmt: skip
_SERVER = frozenset(
    {"InternalServerError", "InternalExecutionError", "InternalOperationError", "ServiceUnavailable", "ServerBusy",
     "GatewayTimeout", "ServerTimeout", "NetworkingInternalOperationError"}
)  # fmt: skip
_PAUSE_MS = 5_000
_FAMILY = re.compile(r"\b(standard\w+Family|\w+Family)\b", re.IGNORECASE)
_SPOT_CORES = re.compile(r"low.?priority|spot", re.IGNORECASE)
_REGIONAL = re.compile(r"total regional", re.IGNORECASE)
#: A VM on its way out, or one that another hand is at, under a code that says much else.
_BUSY = re.compile(
    r"\bVM\b.*(marked for deletion|being deleted)|another operation is in progress|\bongoing operation is changing",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the call was. `changes`: it may have been carried out though no answer came; `offering`: it is a launch, or
    asks what has become of one."""

    call: str
    changes: bool = False
    offering: Offering | None = None
    #: What was asked about is a VM, or a part of one: that there is none of it is VmNotFound.
    vm: bool = False


def of_exception(error: Exception, asked: Asked) -> ProviderError:
    """What the caller of the SPI gets for what the SDK raised; anything else than its errors is raised again."""
    name, text = type(error).__name__, f"{asked.call}: {_first_line(str(error))}"
    if isinstance(error, sdk.HttpResponseError) and error.response is not None and not _of_identity(error):
        code, message = said(error)
        status = error.status_code or 0
        if status < 400:  # no refusal, and nothing that can be read
            return (InDoubt if asked.changes else Transient)(text, code=code or str(status))
        answered: Any = error.response
        headers: Mapping[str, str] = answered.headers
        return of_answer(code, message, status, headers, asked)
    if isinstance(error, sdk.ClientAuthenticationError):
        # Without a token nothing was sent, and an authority that can't be reached has refused nobody.
        unheard = isinstance(error.__cause__, (sdk.ServiceRequestError, sdk.ServiceResponseError))
        if unheard:
            return Transient(text, code=name)
        return CredentialsRejected(f"{asked.call}: {signin.tried(str(error))}", code=name)
    if isinstance(error, sdk.AzureError) and never_sent(error):
        return Transient(text, code=name)
    if isinstance(error, (sdk.AzureError, ConnectionError, TimeoutError, JSONDecodeError)):
        return (InDoubt if asked.changes else Transient)(text, code=name)
    if isinstance(error, OSError):  # a token's or a certificate's file
        return CredentialsRejected(text, code=name)
    raise error


def _of_identity(error: sdk.HttpResponseError) -> bool:
    """Whether it is the authority's answer and not ARM's: those are told by type alone."""
    return isinstance(error, sdk.ClientAuthenticationError) and (error.error is None and error.model is None) and (
        "aadsts" in str(error).lower() or error.status_code != 401
    )  # fmt: skip


def said(error: sdk.HttpResponseError) -> tuple[str, str]:
    """Code and message of an error, wherever the answer has it."""
    code, message = "", ""
    if error.response is not None:
        answered: Any = error.response
        try:
            document = answered.json()
        except Exception:  # what is no JSON has no code
            document = None
        code, message = of_document(document) if isinstance(document, dict) else ("", "")
    if not code:
        found = getattr(error, "error", None)
        code, message = str(getattr(found, "code", "") or ""), str(getattr(found, "message", "") or "")
    return code, message or _first_line(error.message)


def of_document(document: Mapping[str, Any]) -> tuple[str, str]:
    """Code and message of ARM's error document; of several the innermost, which says what went wrong."""
    found = document.get("error") or document
    if not isinstance(found, Mapping):
        return "", ""
    code, message = str(found.get("code") or ""), str(found.get("message") or "")
    for detail in found.get("details") or ():
        if isinstance(detail, Mapping) and detail.get("code") in _CAPACITY | _QUOTA | _HELD:
            return str(detail["code"]), str(detail.get("message") or message)
    return code, message


def of_answer(code: str, message: str, status: int, headers: Mapping[str, str], asked: Asked) -> ProviderError:
    """The class of an error that ARM answered."""
    if status == 412 and not code:  # a condition that does not hold has no other meaning
        code = "PreconditionFailed"
    text = f"{asked.call}: {code}: {message}" if code else f"{asked.call}: {status}: {message}"
    wait = retry_after_ms(headers)
    if status == 429 and code not in _HELD:
        return RateLimited(text, code=code, retry_after_ms=wait or _PAUSE_MS)
    known = _known(code, message, text, wait, asked)
    if known is not None:
        return known
    if code in _SERVER or status >= 500 or status == 408:
        doubted = asked.changes and asked.offering is not None
        return (InDoubt if doubted else Transient)(text, code=code, retry_after_ms=wait)
    if status in (401, 403) and not code:
        return CredentialsRejected(text, code=str(status))
    return InvalidRequest(text, code=code or str(status))


def of_failure(code: str, message: str, asked: Asked) -> ProviderError:
    """The class of what ended an operation that ARM had accepted. Such a request was well formed, so that a code of
    which nothing is known speaks of Azure and not of us: the same may succeed, here or elsewhere."""
    text = f"{asked.call}: {code}: {message}"
    known = _known(code, message, text, 0, asked)
    return known or (InvalidRequest if code in _WRONG else Transient)(text, code=code)


def _known(code: str, message: str, text: str, wait: int, asked: Asked) -> ProviderError | None:
    """The class of an error whose code says it, however it was told; None for another code."""
    if code in _RATE:
        return RateLimited(text, code=code, retry_after_ms=wait or _PAUSE_MS)
    if code in _CREDENTIALS:
        return CredentialsRejected(text, code=code)
    if code in _GONE and asked.vm:
        return VmNotFound(text, code=code)
    refusal = _refusal(code, message, text, asked.offering)
    if refusal is not None:
        return refusal
    if code in _AGAIN or (code == "OperationNotAllowed" and _BUSY.search(message)):
        return Transient(text, code=code, retry_after_ms=wait)
    return None


def _refusal(code: str, message: str, text: str, offering: Offering | None) -> ProviderError | None:
    """There is none of it, or the subscription may have no more of it; None for another kind of error."""
    type_name, zone = (offering.type.name, offering.zone) if offering else ("", "")
    region, market = (offering.region, str(offering.market)) if offering else ("", "")
    if code in _CAPACITY:
        return CapacityUnavailable(text, code=code, scope=Scope(type=type_name, zone=zone, market=market))
    if code == "SubnetIsFull":
        return CapacityUnavailable(text, code=code, scope=Scope(region=region))
    if _COUNTS.fullmatch(code):
        return QuotaExceeded(text, code=code, scope=Scope(region=region))
    # What the quota's own code says of cores, OperationNotAllowed says as well, and of much else.
    if code in _QUOTA or (code == "OperationNotAllowed" and "quota" in message.lower()):
        return QuotaExceeded(text, code=code, scope=_quota_scope(message, offering))
    return None


def _quota_scope(message: str, offering: Offering | None) -> Scope:
    """Which limit it is, by its words: of a family, of the spot market, or of all on demand in the region."""
    if offering is None:
        return Scope()
    market = str(offering.market)
    if _SPOT_CORES.search(message) and offering.market is Market.SPOT:
        return Scope(market=market, region=offering.region)
    family = _FAMILY.search(message)
    if _REGIONAL.search(message) or (family and family[0].lower() != offering.type.family.lower()):
        return Scope(market=market, region=offering.region)
    return Scope(family=offering.type.family, market=market, region=offering.region)


def retry_after_ms(headers: Mapping[str, str]) -> int:
    """What the answer says of when to come again; 0 where it says nothing."""
    told = {name.lower(): value for name, value in headers.items()}
    for name, scale in (("x-ms-retry-after-ms", 1), ("retry-after-ms", 1), ("retry-after", 1000)):
        text = told.get(name, "").strip()
        if text.isdecimal() and len(text) < 9:
            return int(text) * scale
    return 0


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
