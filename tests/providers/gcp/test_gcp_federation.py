"""Files of a federation: an identity of elsewhere that Google takes for an account. They hold no secret."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from google.auth import aws, identity_pool, pluggable

from cloud_dispatch.provider.errors import CredentialsRejected
from cloud_dispatch_gcp.credentials import of_settings, who
from tests.providers.gcp import scenes

ACCOUNT = "dispatcher@lab-123456.iam.gserviceaccount.com"
_AWS = {
    "environment_id": "aws1",
    "regional_cred_verification_url": "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity",
}
_SOURCES: dict[str, tuple[str, dict[str, Any], type]] = {
    "aws": ("urn:ietf:params:aws:token-type:aws4_request", _AWS, aws.Credentials),
    "file": ("urn:ietf:params:oauth:token-type:jwt", {"file": "/run/token"}, identity_pool.Credentials),
    "program": ("urn:ietf:params:oauth:token-type:jwt", {"executable": {"command": "/bin/x"}}, pluggable.Credentials),
}


def written(folder: Path, kind: str, source: object) -> dict[str, Any]:
    path = folder / "federation.json"
    path.write_text(json.dumps({
        "type": "external_account", "token_url": "https://sts.googleapis.com/v1/token", "credential_source": source,
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        "subject_token_type": kind,
        "service_account_impersonation_url":
            f"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken",
    }))  # fmt: skip
    return {"credentials_file": path}


@pytest.mark.parametrize("name", _SOURCES)
def test_a_file_is_read_without_asking_anybody(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can't be asked just now is asked by the next call: the file itself is good."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(socket.socket, "connect", refused)
    kind, source, expected = _SOURCES[name]
    found = of_settings(scenes.settings(**written(tmp_path, kind, source)))
    assert (type(found), who(found)) == (expected, ACCOUNT)


@pytest.mark.parametrize("source", [None, {}, "x"])
def test_a_file_that_says_no_source_is_refused(source: object, tmp_path: Path) -> None:
    with pytest.raises(CredentialsRejected, match="holds no credentials"):
        of_settings(scenes.settings(**written(tmp_path, "urn:ietf:params:oauth:token-type:jwt", source)))
