"""Errors as ARM answers them. Owns which status goes with which code."""

from __future__ import annotations

import json
from typing import Any

_STATUS = {
    400: (
        "InvalidParameter", "BadRequest", "InvalidRequestContent", "MissingApiVersionParameter",
        "LinkedInvalidPropertyId", "InvalidApiVersionParameter",
    ),
    401: ("AuthenticationFailed", "InvalidAuthenticationToken", "ExpiredAuthenticationToken"),
    403: (
        "AuthorizationFailed", "LinkedAuthorizationFailed", "RequestDisallowedByPolicy",
    ),
    404: (
        "ResourceNotFound", "NotFound", "ResourceGroupNotFound", "SubscriptionNotFound", "PlatformImageNotFound",
        "InvalidResourceReference",
    ),
    409: (
        "SkuNotAvailable", "QuotaExceeded", "OperationNotAllowed", "AllocationFailed", "ZonalAllocationFailed",
        "OverconstrainedAllocationRequest", "OverconstrainedZonalAllocationRequest", "Conflict",
        "PropertyChangeNotAllowed",
        "ReadOnlyDisabledSubscription", "ScopeLocked", "SpotPriceGreaterThanProvidedMaxPrice", "NicInUse",
        "PublicIPAddressCannotBeDeleted", "AttachDiskWhileBeingDetached", "MissingSubscriptionRegistration",
    ),
    412: ("PreconditionFailed", "ConditionNotMet"),
    429: ("TooManyRequests", "SubscriptionRequestsThrottled", "RetryableError"),
    500: ("InternalServerError", "InternalExecutionError", "InternalOperationError"),
    503: ("ServiceUnavailable", "ServerBusy"),
    504: ("GatewayTimeout", "ServerTimeout"),
}  # fmt: skip
_BY_CODE = {code: status for status, codes in _STATUS.items() for code in codes}

HELD = "RetryableErrorDueToAnotherOperation"


class ArmError(Exception):
    """A refusal; the status is the code's own unless another is told."""

    def __init__(
        self, code: str, message: str, status: int = 0, *, details: list[dict[str, Any]] | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.details, self.headers = code, message, details, headers
        self.status = status or _BY_CODE.get(code, 400)

    @property
    def document(self) -> dict[str, Any]:
        told: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details:
            told["details"] = self.details
        return told

    @property
    def body(self) -> bytes:
        return json.dumps({"error": self.document}).encode()


class Unmodelled(ArmError):
    """What Azure has and the fake has not: it fails loudly."""

    def __init__(self, what: str) -> None:
        super().__init__("UnmodelledOperation", f"the fake has not: {what}", 501)


def throttled(code: str, message: str, retry_after_s: int) -> ArmError:
    """429. Compute says OperationNotAllowed, as it does of a quota, and TooManyRequests among the details alone."""
    headers = (("Retry-After", str(retry_after_s)),) if retry_after_s else ()
    if code == "TooManyRequests":
        details = [{"code": code, "target": "CreateUpdateVM3Min", "message": message}]
        return ArmError("OperationNotAllowed", message, 429, details=details, headers=headers)
    return ArmError(code, message, 429, headers=headers)


def held(message: str, retry_after_s: int) -> ArmError:
    """429 as well, of the network's service: another operation is at the resource."""
    headers = (("Retry-After", str(retry_after_s)),) if retry_after_s else ()
    details = [{"code": HELD, "message": message}]
    return ArmError("RetryableError", "A retryable error occurred.", 429, details=details, headers=headers)
