"""Secrets Manager. Owns the form of a secret's name, and how its value is read by whoever this machine is.

A name is taken where boto3 finds a region; an ARN says its own.
"""

from __future__ import annotations

import re
from typing import Any

from cloud_dispatch.provider.errors import CredentialsRejected, InvalidRequest, ProviderError, Transient

_ARN = re.compile(r"arn:aws[a-z-]*:secretsmanager:([a-z0-9-]+):\d{12}:secret:[A-Za-z0-9/_+=.@!-]+")
_NAME = re.compile(r"[A-Za-z0-9/_+=.@!-]{1,512}")
_CONNECT_S, _ANSWER_S, _TRIES = 5, 10, 2
#: What no repeating mends. (Secrets Manager API reference, `GetSecretValue`, "Errors")
_SETTLED = frozenset({"ResourceNotFoundException", "InvalidParameterException", "ValidationException"})
_REFUSED = frozenset(
    {"AccessDeniedException", "DecryptionFailure", "UnrecognizedClientException", "InvalidClientTokenId",
     "ExpiredTokenException", "InvalidSignatureException", "IncompleteSignature", "MissingAuthenticationToken"}
)  # fmt: skip


def check(name: str) -> None:
    """ValueError for what is neither a name nor an ARN."""
    if not (_ARN if name.startswith("arn:") else _NAME).fullmatch(name):
        raise ValueError("expected the name or the ARN of a secret in Secrets Manager")


def value(name: str) -> str:
    """The text of the secret's current version. ImportError without boto3."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, NoRegionError

    arn = _ARN.fullmatch(name)
    waits = Config(connect_timeout=_CONNECT_S, read_timeout=_ANSWER_S, retries={"total_max_attempts": _TRIES})
    try:
        client: Any = boto3.Session().client("secretsmanager", region_name=arn[1] if arn else None, config=waits)
        answer = client.get_secret_value(SecretId=name)
    except NoRegionError:
        raise InvalidRequest("this machine has no region of its own: name the secret by its ARN") from None
    except ClientError as error:
        raise _refusal(error.response.get("Error", {})) from None
    except BotoCoreError as error:
        raise Transient(f"{error}", code=type(error).__name__) from None
    if not isinstance(answer.get("SecretString"), str):
        raise InvalidRequest("it is binary: keep it as text")
    return str(answer["SecretString"])


def _refusal(told: dict[str, str]) -> ProviderError:
    code = told.get("Code", "")
    kind = InvalidRequest if code in _SETTLED else CredentialsRejected if code in _REFUSED else Transient
    return kind(told.get("Message") or "refused", code=code)
