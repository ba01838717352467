"""Errors as Google's APIs answer them."""

from __future__ import annotations

from typing import Any

#: HTTP status by reason, for faults that name a reason alone. A code as "429 rateLimitExceeded" says its own.
STATUSES = {
    "accessNotConfigured": 403,
    "alreadyExists": 409,
    "authError": 401,
    "backendError": 503,
    "badRequest": 400,
    "conditionNotMet": 412,
    "forbidden": 403,
    "internalError": 500,
    "invalid": 400,
    "notFound": 404,
    "quotaExceeded": 403,
    "rateLimitExceeded": 403,
    "required": 400,
    "resourceInUseByAnotherResource": 400,
    "resourceNotReady": 400,
    "userRateLimitExceeded": 403,
}
_DOMAINS = {"quotaExceeded": "usageLimits", "rateLimitExceeded": "usageLimits", "accessNotConfigured": "usageLimits"}
_WORDS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ALREADY_EXISTS",
    412: "FAILED_PRECONDITION", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE",
}  # fmt: skip


class ApiError(Exception):
    """A refusal. `worded`: whether the answer has the `status` that newer parts of the APIs add."""

    def __init__(self, reason: str, message: str, status: int = 0, *, worded: bool = False) -> None:
        super().__init__(message)
        self.reason, self.message, self.worded = reason, message, worded
        self.status = status or STATUSES.get(reason, 400)

    @property
    def body(self) -> dict[str, Any]:
        """The answer."""
        one = {"message": self.message, "domain": _DOMAINS.get(self.reason, "global"), "reason": self.reason}
        told: dict[str, Any] = {"code": self.status, "message": self.message, "errors": [one]}
        if self.worded and self.status in _WORDS:
            told["status"] = _WORDS[self.status]
        return {"error": told}


class Unmodelled(ApiError):
    """What Google has and the fake has not. It is remembered, and fails the test."""

    def __init__(self, what: str) -> None:
        super().__init__("notImplemented", f"the fake has no {what}", 501, worded=True)


def fault_error(code: str, what: str) -> ApiError:
    """The error that a fault's code stands for: a reason, or an HTTP status and a reason."""
    status, _, reason = code.rpartition(" ")
    return ApiError(reason, f"{what} was refused by a fault of the fake", int(status) if status else 0)
