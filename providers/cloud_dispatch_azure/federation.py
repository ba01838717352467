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
#: The machine's metadata service: by itself botocore would ask it once, for a second.
_METADATA = {"metadata_service_timeout": 5, "metadata_service_num_attempts": 3}
_DISABLED = "OutboundWebIdentityFederationDisabled"
_SWITCH = "`aws iam enable-outbound-web-identity-federation` turns it on for the account"
#: Of refusals those that pass, beside all with a status of 500 and more. (STS API reference, "Common Errors")
_PASSING = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded", "RequestExpired"})


def assertion() -> str:
    """A token in which AWS says which role this machine has, for a few minutes.

    ClientAuthenticationError where AWS does not say so; with a ServiceRequestError as its cause where it can't now, by
    which the driver knows that nobody was refused.
    """
    try:
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
        from botocore.exceptions import ConnectionError as NotReached
    except ImportError:
        raise ClientAuthenticationError(
            "AWS is asked with boto3, which is not installed: pip install 'cloud-dispatch[aws]'"
        ) from None
    try:
        told = _sts().get_web_identity_token(Audience=[AUDIENCE], SigningAlgorithm=_ALGORITHM, DurationSeconds=_LASTS_S)
    except ClientError as error:
        raise _refused(error.response) from (ServiceRequestError(str(error)) if _passes(error.response) else None)
    except (NotReached, HTTPClientError) as error:
        text = f"AWS can't be asked who this machine is: {error}"
        raise ClientAuthenticationError(text) from ServiceRequestError(text)
    except BotoCoreError as error:
        raise ClientAuthenticationError(f"AWS does not know this machine: {error}") from None
    return str(told["WebIdentityToken"])


def _sts() -> Any:
    """STS of the region of the environment or of the SDK's files, and else of where the machine is: no endpoint but
    those of regions has this call."""
    import boto3
    import botocore.session
    from botocore.config import Config
    from botocore.utils import IMDSRegionProvider

    session = botocore.session.Session()
    for name, value in _METADATA.items():
        session.set_config_variable(name, value)
    ours = boto3.Session(botocore_session=session)
    region = os.environ.get("AWS_REGION") or ours.region_name or IMDSRegionProvider(session).provide()
    waits = Config(connect_timeout=_CONNECT_S, read_timeout=_ANSWER_S, retries={"total_max_attempts": _TRIES})
    client: Any = ours.client("sts", region_name=region, config=waits)
    if not hasattr(client, "get_web_identity_token"):
        raise ClientAuthenticationError(
            f"boto3 {boto3.__version__} can't ask AWS who this machine is: pip install --upgrade boto3"
        )
    return client


def _passes(response: Any) -> bool:
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500 or response.get("Error", {}).get("Code") in _PASSING


def _refused(response: Any) -> ClientAuthenticationError:
    told = response.get("Error", {})
    code, message = told.get("Code", ""), told.get("Message", "") or "refused"
    more = f": {_SWITCH}" if code.startswith(_DISABLED) else ""
    return ClientAuthenticationError(f"AWS does not say who this machine is ({code}): {message.rstrip('.')}{more}")
