"""Who the driver is to Google. Owns the way from the settings to credentials that renew themselves.

Found where Google's libraries find them: GOOGLE_APPLICATION_CREDENTIALS, gcloud's file, the machine's own account.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import google.auth
from google.auth import aws, exceptions, identity_pool, impersonated_credentials, pluggable
from google.oauth2 import service_account

from cloud_dispatch.provider.errors import CredentialsRejected
from cloud_dispatch_gcp.settings import GcpSettings

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_AWS = "urn:ietf:params:aws:token-type:aws4_request"
_IAM_PATH = "/v1/projects/-/serviceAccounts/{}:generateAccessToken"


def of_settings(settings: GcpSettings) -> Any:
    """Credentials for the project; CredentialsRejected where there are none."""
    own = _at_home(_own(settings), settings)
    if not settings.impersonate:
        return own
    more = {}
    if settings.endpoint_url:
        more["iam_endpoint_override"] = settings.endpoint_url + _IAM_PATH.format(settings.impersonate)
    made = impersonated_credentials.Credentials(  # type: ignore[no-untyped-call]
        source_credentials=own, target_principal=settings.impersonate, target_scopes=list(SCOPES), **more
    )
    _at_home(made._source_credentials, settings)  # a copy of them, for the one scope that this needs
    return _at_home(made, settings)


def found(*, at_home: bool) -> Any:
    """Credentials of whoever this machine is, without any settings. `at_home`: they go to an endpoint of one's own."""
    here = _own(GcpSettings.model_construct(credentials_file=None))
    return _kept_at_home(here) if at_home else here


def who(credentials: Any) -> str:
    """The account that they are of, as far as they say so themselves."""
    said = getattr(credentials, "service_account_email", "") or getattr(credentials, "account", "")
    return said if said and said != "default" else type(credentials).__module__.rpartition(".")[2]


def _at_home(made: Any, settings: GcpSettings) -> Any:
    """With an endpoint of one's own nothing goes to Google's hosts: the library asks them, beside each call, in which
    regions the credentials may be used."""
    return _kept_at_home(made) if settings.endpoint_url else made


def _kept_at_home(made: Any) -> Any:
    made._is_regional_access_boundary_lookup_required = lambda: False
    return made


def _own(settings: GcpSettings) -> Any:
    try:
        with warnings.catch_warnings():
            # It warns of end users' credentials, and of files from strangers: this one is the operator's own word.
            warnings.simplefilter("ignore")
            if settings.credentials_file is None:
                return google.auth.default(scopes=SCOPES)[0]
            path = settings.credentials_file.expanduser()
            found = json.loads(path.read_text(encoding="utf-8"))
            kind = found.get("type") if isinstance(found, dict) else None
            if kind == "service_account":
                return service_account.Credentials.from_service_account_info(found, scopes=SCOPES)  # type: ignore[no-untyped-call]
            if kind == "external_account":
                return _federated(found)
            return google.auth.load_credentials_from_file(str(path), scopes=SCOPES)[0]  # type: ignore[no-untyped-call]
    except OSError as error:
        text = f"credentials_file: {error.filename}: {error.strerror}"
        raise CredentialsRejected(text, code=type(error).__name__) from error
    except (exceptions.GoogleAuthError, ValueError) as error:
        # What a library says of a file that it can't read may have a part of it, a key even.
        text = f"{error}" if settings.credentials_file is None else "credentials_file: it holds no credentials"
        raise CredentialsRejected(text, code=type(error).__name__) from error


def _federated(found: dict[str, Any]) -> Any:
    """By the library's ways for others' identities. Its own loader would at once ask for a token, and Google for the
    project's name: credentials are made without a call, and what fails is said by the call that needs them."""
    source = found.get("credential_source")
    if found.get("subject_token_type") == _AWS:
        return aws.Credentials.from_info(found, scopes=SCOPES)  # type: ignore[no-untyped-call]
    if isinstance(source, dict) and "executable" in source:
        return pluggable.Credentials.from_info(found, scopes=SCOPES)  # type: ignore[no-untyped-call]
    return identity_pool.Credentials.from_info(found, scopes=SCOPES)  # type: ignore[no-untyped-call]
