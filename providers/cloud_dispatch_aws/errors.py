"""AWS's errors as the SPI's: by what the caller should do, with the scope that they speak of. Pure.

The codes are those of EC2's list of error codes; what is not listed here is classed by its status. The one thing that
counts most: an answer that settles a launch (nothing was made) is told apart from one that does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

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

#: Of a launch: another one of the same batch was made with other parameters, or its VMs have ended by now.
TOKEN_USED = frozenset({"IdempotentParameterMismatch", "IdempotentInstanceTerminated"})
SUBNET_FULL = "InsufficientFreeAddressesInSubnet"
PROTECTED = "OperationNotPermitted"
GONE = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})

#: Of the type in the zone on the market, as is all that `_out_of` finds and that is not of everything in a place.
_CAPACITY = frozenset({"UnfulfillableCapacity", "SpotMaxPriceTooLow"})
#: Of every type in the zone: its disks, a subnet's addresses. Of every type in the region: its public addresses.
_OF_ZONE = frozenset({"InsufficientVolumeCapacity", SUBNET_FULL})
_OF_REGION = frozenset({"InsufficientAddressCapacity"})
#: Of the type in the zone, on any market: EC2 has none of it there.
_NOT_THERE = frozenset({"Unsupported"})
_VCPUS = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"})
_RATE = frozenset(
    {
        "BandwidthLimitExceeded", "EC2ThrottledException", "PriorRequestNotComplete", "RequestLimitExceeded",
        "RequestThrottled", "RequestThrottledException", "SlowDown", "Throttling", "ThrottlingException",
        "ThrottledException", "TooManyRequestsException",
    }
)  # fmt: skip
#: EC2's word for a right that is lacking, on what the call names: it may be that it has not the tag, or is gone.
NO_RIGHT = "UnauthorizedOperation"
_CREDENTIALS = frozenset(
    {
        "AccessDenied", "AccessDeniedException", "AuthFailure", "Blocked", "ExpiredToken", "ExpiredTokenException",
        "IDPRejectedClaim", "IncompleteSignature", "InvalidAccessKeyId", "InvalidClientTokenId",
        "InvalidIdentityToken", "MissingAuthenticationToken", "OptInRequired", "PendingVerification",
        "SignatureDoesNotMatch", NO_RIGHT, "UnrecognizedClientException",
    }
)  # fmt: skip
#: Of these, what says that the credentials are good, and may not do it; others would be refused no less for being new.
_RIGHTS = frozenset(
    {"AccessDenied", "AccessDeniedException", "Blocked", "OptInRequired", "PendingVerification", NO_RIGHT}
)
#: So EC2 says it of a session that has expired, too.
_EXPIRED = "RequestExpired"
#: The request itself came too late, or what it is for is between two states: nothing was done.
_AGAIN = frozenset({"IncorrectInstanceState", "IncorrectState", _EXPIRED, "RequestTimeTooSkewed"})
_SERVER = frozenset({"InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "Unavailable"})
#: The account's first spot VM needs a role that whoever asks may not make: it holds for the spot market, of all types.
_NO_SPOT_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
_MAKE_IT = "make it once: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
#: EC2 does not say when to come again; its buckets refill by some tokens a second.
_PAUSE_MS = 1_000
_SPOT_CODES = frozenset({"MaxSpotInstanceCountExceeded", "SpotMaxPriceTooLow"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What the call was. `changes`: it may have been carried out though no answer came; `offering`: it is a launch."""

    call: str
    changes: bool = False
    offering: Offering | None = None


def of_exception(error: Exception, asked: Asked) -> ProviderError:
    """What the caller of the SPI gets for what boto3 raised; anything else than the SDK's errors is raised again."""
    if isinstance(error, sdk.ClientError):
        answer: Mapping[str, Any] = error.response
        said, about = answer.get("Error", {}), answer.get("ResponseMetadata", {})
        return of_answer(
            str(said.get("Code", "")),
            str(said.get("Message", "")),
            int(about.get("HTTPStatusCode", 0)),
            str(about.get("HTTPHeaders", {}).get("retry-after", "")),
            asked,
        )
    name, text = type(error).__name__, f"{asked.call}: {error}"
    if isinstance(error, _NO_CREDENTIALS):
        return CredentialsRejected(text, code=name)
    if isinstance(error, _WRONG):
        return InvalidRequest(text, code=name)
    if isinstance(error, (sdk.BotoCoreError, ResponseParserError)):
        return (InDoubt if asked.changes and not never_sent(error) else Transient)(text, code=name)
    # A token's file: what goes wrong on the way to AWS are the SDK's own. And its word for those that were renewed and
    # have expired all the same, which is anybody's: after a change has left it settles nothing.
    if isinstance(error, OSError) or (type(error) is RuntimeError and not asked.changes):
        return CredentialsRejected(text, code=name)
    raise error


def of_credentials(error: ProviderError) -> bool:
    """Whether other credentials, if there are by now, may be heard where these were not."""
    return error.code == _EXPIRED or (isinstance(error, CredentialsRejected) and error.code not in _RIGHTS)


_NO_CREDENTIALS = (
    sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.CredentialRetrievalError, sdk.ProfileNotFound,
    sdk.NoAuthTokenError, sdk.TokenRetrievalError, sdk.SSOError, sdk.InvalidConfigError, sdk.ConfigNotFound,
    sdk.ConfigParseError, sdk.RefreshWithMFAUnsupportedError, sdk.UnknownCredentialError,
    *([sdk.LoginError] if hasattr(sdk, "LoginError") else []),
)  # fmt: skip
_WRONG = (sdk.ParamValidationError, sdk.NoRegionError, sdk.UnknownRegionError, sdk.UnknownServiceError)


def of_answer(code: str, message: str, status: int, retry_after: str, asked: Asked) -> ProviderError:
    """The class of an error that AWS answered. `retry_after`: that header, in seconds, "" without."""
    text, offering = f"{asked.call}: {code}: {message}", asked.offering
    if code in _RATE or status == 429:
        return RateLimited(text, code=code, retry_after_ms=max(_seconds(retry_after) * 1000, _PAUSE_MS))
    if code in _CREDENTIALS:
        return CredentialsRejected(text, code=code)
    if code in GONE and offering is None:
        return VmNotFound(text, code=code)
    if code in TOKEN_USED:
        return InDoubt(text, code=code)
    if code in _AGAIN:
        return Transient(text, code=code)
    refusal = _refusal(code, text, offering)
    if refusal is not None:
        return refusal
    if code in _SERVER or status >= 500:
        return (InDoubt if offering is not None else Transient)(text, code=code)
    return InvalidRequest(text, code=code)


def _refusal(code: str, text: str, offering: Offering | None) -> ProviderError | None:
    """There is none of it, or the account may have no more of it; None for another kind of error."""
    type_name = offering.type.name if offering else ""
    family = offering.type.family if offering else ""
    zone, region = (offering.zone, offering.region) if offering else ("", "")
    market = str(Market.SPOT) if code in _SPOT_CODES else str(offering.market) if offering else ""
    if code in _OF_ZONE:
        return CapacityUnavailable(text, code=code, scope=Scope(zone=zone))
    if code in _OF_REGION:
        return CapacityUnavailable(text, code=code, scope=Scope(region=region))
    if code in _CAPACITY or _out_of(code):
        return CapacityUnavailable(text, code=code, scope=Scope(type=type_name, zone=zone, market=market))
    if code in _NOT_THERE:
        return CapacityUnavailable(text, code=code, scope=Scope(type=type_name, zone=zone))
    if code in _VCPUS:
        return QuotaExceeded(text, code=code, scope=Scope(family=family, market=market, region=region))
    if code == _NO_SPOT_ROLE:
        of_spot = Scope(market=str(Market.SPOT), region=region)
        return QuotaExceeded(f"{text.rstrip('.')}; {_MAKE_IT}", code=code, scope=of_spot)
    if code == "InstanceLimitExceeded":
        return QuotaExceeded(text, code=code, scope=Scope(type=type_name, market=market, region=region))
    if code.endswith("LimitExceeded"):  # volumes, interfaces, addresses: of everything in the region
        return QuotaExceeded(text, code=code, scope=Scope(region=region))
    return None


def _out_of(code: str) -> bool:
    """Whether EC2 says that it has too little of something. It answers some of these with a server's status, and has
    more of them than its list of codes: by the status alone a launch that was refused would be in doubt."""
    return code.startswith("Insufficient") and "Capacity" in code


def _seconds(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 7 else 0
