"""Errors as AWS answers them. Owns the HTTP status of each code; who raises them is elsewhere."""

from __future__ import annotations

#: The status of the codes that do not answer with 400.
_STATUS = {
    "AuthFailure": 401,
    "AccessDenied": 403,
    "AccessDeniedException": 403,
    "ExpiredToken": 403,
    "InvalidClientTokenId": 403,
    "SignatureDoesNotMatch": 403,
    "UnauthorizedOperation": 403,
    "DryRunOperation": 412,
    "InsufficientInstanceCapacity": 500,
    "InternalError": 500,
    "InternalFailure": 500,
    "InternalServerError": 500,
    "InsufficientCapacity": 500,
    "InsufficientAddressCapacity": 500,
    "InsufficientHostCapacity": 500,
    "RequestLimitExceeded": 503,
    "ServiceUnavailable": 503,
    "Unavailable": 503,
}


class AwsError(Exception):
    """Answered to the caller: `code` is AWS's word for it."""

    def __init__(self, code: str, message: str, status: int = 0) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message
        self.status = status or _STATUS.get(code, 400)


class Unmodelled(AwsError):
    """AWS may well do it, this fake does not: answered with 501 and recorded, so that no test passes by it."""

    def __init__(self, what: str) -> None:
        super().__init__("UnmodelledOperation", f"the fake does not model {what}", 501)


class NotInModel(Exception):
    """A bug of the fake: it wants to answer with something that the service's model does not have."""
