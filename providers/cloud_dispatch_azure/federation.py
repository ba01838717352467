"""Azure by the word of AWS: what a machine of AWS shows to Entra ID in place of a secret. Owns how AWS is asked for it.

AWS signs whose role a machine has (IAM outbound identity federation), and an identity on Azure that names that issuer
and that role in a federated credential takes it. Both ends are short-lived, and nothing is kept.
"""

from __future__ import annotations

import os
from typing import Any

from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError

#: Whom the token is for, as Entra ID wants it of every federated credential of another cloud.
AUDIENCE = "api://AzureADTokenExchange"
#: It is shown at once. (STS API reference, `GetWebIdentityToken`: 60 to 3600)
_LASTS_S = 300
#: What Entra ID reads.
_ALGORITHM = "RS256"
_CONNECT_S, _ANSWER_S, _TRIES = 5, 10, 2
_DISABLED = "OutboundWebIdentityFederationDisabled"
_SWITCH = "`aws iam enable-outbound-web-identity-federation` turns it on for the account"


def assertion() -> str:
    """A token in which AWS says which role this machine has, for a few minutes.

    ClientAuthenticationError where AWS does not say so, ServiceRequestError where it can't be asked.
    """
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
        from botocore.exceptions import ConnectionError as NotReached
    except ImportError:
        raise ClientAuthenticationError(
            "AWS is asked with boto3, which is not installed: pip install 'cloud-dispatch[aws]'"
        ) from None
    waits = Config(connect_timeout=_CONNECT_S, read_timeout=_ANSWER_S, retries={"total_max_attempts": _TRIES})
    session = boto3.Session()
    try:
        # No endpoint but those of regions has this call.
        region = os.environ.get("AWS_REGION") or session.region_name or _region()
        client: Any = session.client("sts", region_name=region, config=waits)
        if not hasattr(client, "get_web_identity_token"):
            raise ClientAuthenticationError(f"boto3 {boto3.__version__} is too old to ask AWS who this machine is")
        told = client.get_web_identity_token(Audience=[AUDIENCE], SigningAlgorithm=_ALGORITHM, DurationSeconds=_LASTS_S)
    except ClientError as error:
        raise ClientAuthenticationError(_refused(error.response.get("Error", {}))) from None
    except (NotReached, HTTPClientError) as error:
        raise ServiceRequestError(f"AWS can't be asked who this machine is: {error}") from None
    except BotoCoreError as error:
        raise ClientAuthenticationError(f"AWS does not know this machine: {error}") from None
    return str(told["WebIdentityToken"])


def _region() -> str | None:
    """Where the machine is, by its metadata service; None where it has none."""
    import botocore.session
    from botocore.utils import IMDSRegionProvider

    region: str | None = IMDSRegionProvider(botocore.session.get_session()).provide()
    return region


def _refused(told: dict[str, str]) -> str:
    code, message = told.get("Code", ""), told.get("Message", "") or "refused"
    more = f": {_SWITCH}" if code.startswith(_DISABLED) else ""
    return f"AWS does not say who this machine is ({code}): {message.rstrip('.')}{more}"
