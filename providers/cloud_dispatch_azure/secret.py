"""Key Vault. Owns the form of a secret's address, and how its value is read by whoever this machine is.

By REST and with what the Compute SDK brings: one call needs no other. The address says which cloud the vault is in, and
a token for vaults goes to no host that is none.
(https://learn.microsoft.com/rest/api/keyvault/secrets/get-secret)
"""

from __future__ import annotations

import re
from typing import Any

from cloud_dispatch.provider.errors import CredentialsRejected, InvalidRequest, ProviderError, Transient

_ADDRESS = re.compile(
    r"https://[a-zA-Z0-9-]{3,24}\.(vault\.azure\.net|vault\.azure\.cn|vault\.usgovcloudapi\.net)"
    r"/secrets/[A-Za-z0-9-]{1,127}(?:/[0-9a-f]{32})?"
)
_VERSION = "7.4"
_CONNECT_S, _ANSWER_S, _TRIES = 5, 10, 2
_LONGEST = 300


def check(name: str) -> None:
    """ValueError for what is no secret of a vault."""
    if not _ADDRESS.fullmatch(name):
        raise ValueError("expected https://VAULT.vault.azure.net/secrets/NAME (or .../NAME/VERSION) of Key Vault")


def value(name: str) -> str:
    """The secret's text. ImportError without Azure's SDK."""
    from azure.core import PipelineClient
    from azure.core.exceptions import AzureError, ClientAuthenticationError
    from azure.core.pipeline.policies import BearerTokenCredentialPolicy, RetryPolicy, UserAgentPolicy
    from azure.core.rest import HttpRequest
    from azure.identity import DefaultAzureCredential

    vault = _ADDRESS.fullmatch(name)
    if vault is None:
        raise InvalidRequest(f"{name[:_LONGEST]} is no secret of a vault")
    try:
        with DefaultAzureCredential(exclude_interactive_browser_credential=True) as credential:
            policies = [
                UserAgentPolicy("cloud-dispatch"),
                RetryPolicy(retry_total=_TRIES - 1),
                BearerTokenCredentialPolicy(credential, f"https://{vault[1]}/.default"),
            ]
            client: Any = PipelineClient(name, policies=policies)
            with client:
                request = HttpRequest("GET", name, params={"api-version": _VERSION})
                waits = {"connection_timeout": _CONNECT_S, "read_timeout": _ANSWER_S}
                answer = client.send_request(request, **waits)
    except ClientAuthenticationError as error:
        from cloud_dispatch_azure.signin import tried

        raise CredentialsRejected(tried(error.message or str(error))) from None
    except AzureError as error:
        raise Transient(str(error.message or error)[:_LONGEST], code=type(error).__name__) from None
    return _told(answer)


def _told(answer: Any) -> str:
    try:
        document = answer.json()
    except ValueError:
        document = {}
    status = answer.status_code
    if status == 200 and isinstance(document.get("value"), str):
        return str(document["value"])
    told = document.get("error") or {}
    kind: type[ProviderError] = Transient
    if status in (400, 404, 200):
        kind = InvalidRequest
    elif status in (401, 403):
        kind = CredentialsRejected
    raise kind(str(told.get("message") or f"status {status}")[:_LONGEST], code=str(told.get("code") or ""))
