"""Secret Manager. Owns the form of a version's name, and how its value is read by whoever this machine is.

By REST and with the libraries that the Compute SDK brings: one call needs no other. Whoever sets gcloud's own variable
for another endpoint has it used here too.
(https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets.versions/access)
"""

from __future__ import annotations

import base64
import os
import re
from typing import Any

from cloud_dispatch.provider.errors import CredentialsRejected, InvalidRequest, ProviderError, Transient

HOST = "https://secretmanager.googleapis.com"
ELSEWHERE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER"
_NAME = re.compile(
    r"projects/[a-z0-9:.-]+/secrets/[A-Za-z0-9_-]{1,255}/versions/(?:latest|\d+|[A-Za-z][A-Za-z0-9_-]{0,62})"
)
_WAIT_S = 15.0
#: What no repeating mends: no such secret or version, one that is disabled or destroyed.
_SETTLED, _REFUSED = (400, 404, 412), (401, 403)
_LONGEST = 300


def check(name: str) -> None:
    """ValueError for what is no version of a secret."""
    if not _NAME.fullmatch(name):
        raise ValueError("expected projects/PROJECT/secrets/NAME/versions/VERSION (or `latest`) of Secret Manager")


def value(name: str) -> str:
    """The text of that version. ImportError without Google's libraries."""
    import requests
    from google.auth import exceptions
    from google.auth.transport.requests import AuthorizedSession

    from cloud_dispatch_gcp.credentials import found

    place = os.environ.get(ELSEWHERE, HOST).rstrip("/")
    try:
        session: Any = AuthorizedSession(found(at_home=place != HOST))  # type: ignore[no-untyped-call]
        with session:
            answer = session.get(f"{place}/v1/{name}:access", timeout=_WAIT_S, max_allowed_time=2 * _WAIT_S)
    except exceptions.RefreshError as error:
        raise CredentialsRejected(f"{error.args[0] if error.args else error}"[:_LONGEST]) from None
    except (requests.RequestException, exceptions.GoogleAuthError) as error:
        raise Transient(f"{error}"[:_LONGEST], code=type(error).__name__) from None
    if answer.status_code != 200:
        raise _refusal(answer)
    try:
        return base64.b64decode(answer.json()["payload"]["data"], validate=True).decode("utf-8")
    except (ValueError, KeyError, TypeError):
        raise InvalidRequest("it is no text") from None


def _refusal(answer: Any) -> ProviderError:
    try:
        told = answer.json()["error"]
        message, code = str(told["message"]), str(told["status"])
    except (ValueError, KeyError, TypeError):
        message, code = f"status {answer.status_code}", ""
    status = answer.status_code
    kind = InvalidRequest if status in _SETTLED else CredentialsRejected if status in _REFUSED else Transient
    return kind(message[:_LONGEST], code=code)
