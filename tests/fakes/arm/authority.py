"""Who may ask: tokens for clients with a secret and for managed identities, and what becomes of them.

Tokens are good by the machine's clock, since the SDK compares their ends with that.
"""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from tests.fakes.arm.errors import ArmError, Unmodelled
from tests.fakes.arm.settings import Settings
from tests.fakes.server import Reply, Request

_JSON = "application/json; charset=utf-8"
#: Whom another issuer's word has to be for.
AUDIENCE = "api://AzureADTokenExchange"
#: Where a VM's identities get tokens, and where a function's do.
IDENTITY_PATH, FUNCTION_PATH = "/metadata/identity/oauth2/token", "/msi/token"
#: The resource of tokens for ARM, as the public cloud names it.
RESOURCES = ("https://management.azure.com", "https://management.core.windows.net")


class Authority:
    """Entra ID of one tenant, and the managed identities of the machine that the dispatcher runs on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._numbers = itertools.count(1)
        self._good: dict[str, tuple[float, str]] = {}
        self._revoked: set[str] = set()
        #: Clients and their secrets, identities by client id (the first is the system's): tests may change them.
        self.clients = dict(settings.clients)
        self.identities = list(settings.identities)
        #: By client, whose word is taken for it: issuer and subject of a federated credential; and the keys of issuers.
        self.federations: dict[str, tuple[str, str]] = {}
        self.issuers: dict[str, RSAPublicKey] = {}

    def revoke(self) -> None:
        """All tokens there are: whoever shows one is told to get a new one (claims challenge)."""
        self._revoked.update(self._good)
        self._good.clear()

    def issue(self, who: str, resource: str) -> dict[str, Any]:
        """A new token."""
        end = int(time.time()) + self._settings.token_s
        claims = {
            "aud": resource, "iss": f"https://sts.windows.net/{self._settings.tenant}/", "tid": self._settings.tenant,
            "appid": who, "oid": who, "exp": end, "jti": next(self._numbers),
        }  # fmt: skip
        token = ".".join(_part(part) for part in ({"typ": "JWT", "alg": "none"}, claims, "no signature"))
        self._good[token] = (time.time() + self._settings.token_s, resource)
        return {"token_type": "Bearer", "expires_in": self._settings.token_s, "access_token": token, "expires_on": end}

    def check(self, headers: Mapping[str, str], url: str) -> None:
        """Refuse a call of ARM without a token that is good."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind != "Bearer" or not token:
            raise self._refusal(
                url, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing."
            )
        if token in self._revoked:
            claims = base64.b64encode(json.dumps({"access_token": {"nbf": {"essential": True}}}).encode()).decode()
            raise self._refusal(url, "InvalidAuthenticationToken", "The access token has been revoked.",
                                f', error="insufficient_claims", claims="{claims}"')  # fmt: skip
        if token not in self._good:
            raise self._refusal(
                url, "InvalidAuthenticationToken", "The access token is invalid.", ', error="invalid_token"'
            )
        end, resource = self._good[token]
        if resource not in RESOURCES:
            raise self._refusal(url, "InvalidAuthenticationTokenAudience", "The access token is for another resource.")
        if end < time.time():
            raise self._refusal(url, "ExpiredAuthenticationToken", "The access token expiry UTC time is over.",
                                ', error="invalid_token", error_description="The token is expired."')  # fmt: skip

    def _refusal(self, url: str, code: str, message: str, more: str = "") -> ArmError:
        challenge = f'Bearer authorization_uri="{url}/{self._settings.tenant}"{more}'
        return ArmError(code, message, 401, headers=(("WWW-Authenticate", challenge),))

    def handle(self, request: Request, url: str) -> Reply | None:
        """What the authority answers; None for what is not its own. `url` is where it listens."""
        path = urlsplit(request.target).path
        words = path.strip("/").split("/")
        if path.endswith("/v2.0/.well-known/openid-configuration"):
            return self._configuration(words[0], url)
        if path.endswith("/oauth2/v2.0/token") and request.method == "POST":
            return self._token(words[0], request)
        return None

    def _configuration(self, tenant: str, url: str) -> Reply:
        if tenant != self._settings.tenant:
            return _refused("invalid_tenant", f"AADSTS90002: Tenant '{tenant}' not found.", 90002)
        here = f"{url}/{tenant}"
        return _said({
            "token_endpoint": f"{here}/oauth2/v2.0/token", "authorization_endpoint": f"{here}/oauth2/v2.0/authorize",
            "issuer": f"{here}/v2.0", "device_authorization_endpoint": f"{here}/oauth2/v2.0/devicecode",
        })  # fmt: skip

    def _token(self, tenant: str, request: Request) -> Reply:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        if tenant != self._settings.tenant:
            return _refused("invalid_tenant", f"AADSTS90002: Tenant '{tenant}' not found.", 90002)
        if form.get("grant_type") != "client_credentials" or not {"client_secret", "client_assertion"} & form.keys():
            raise Unmodelled(f"tokens by {form.get('grant_type')} without a secret or another's word")
        client = form.get("client_id", "")
        if "client_assertion" in form:
            refusal = self._disbelieved(client, form)
            if refusal is not None:
                return refusal
        elif client not in self.clients:
            return _refused("unauthorized_client", f"AADSTS700016: Application '{client}' was not found.", 700016)
        elif form["client_secret"] != self.clients[client]:
            return _refused("invalid_client", "AADSTS7000215: Invalid client secret provided.", 7000215, 401)
        scope = form.get("scope", "").removesuffix("/.default").rstrip("/")
        if scope not in RESOURCES:
            return _refused("invalid_resource", f"AADSTS500011: The resource principal {scope} was not found.", 500011)
        told = self.issue(client, scope)
        return _said(
            {name: told[name] for name in ("token_type", "expires_in", "access_token")}
            | {"ext_expires_in": told["expires_in"]}
        )

    def _disbelieved(self, client: str, form: Mapping[str, str]) -> Reply | None:
        """Why another's word for the client is not taken."""
        if form.get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer":
            return _refused(
                "invalid_request", "AADSTS900144: The request body must contain the assertion's type.", 900144
            )
        said, _, signature = form["client_assertion"].rpartition(".")
        claims = json.loads(_decoded(said.partition(".")[2]))
        trusted = self.federations.get(client)
        if trusted != (claims["iss"], claims["sub"]):
            return _refused("invalid_client", "AADSTS700213: No matching federated identity record found for presented"
                            f" assertion subject '{claims['sub']}'.", 700213, 401)  # fmt: skip
        if claims["aud"] not in (AUDIENCE, [AUDIENCE]):
            return _refused("invalid_client", "AADSTS700212: No matching federated identity record found for presented"
                            f" assertion audience '{claims['aud']}'.", 700212, 401)  # fmt: skip
        try:
            self.issuers[trusted[0]].verify(_decoded(signature), said.encode(), PKCS1v15(), SHA256())
        except InvalidSignature:
            return _refused("invalid_client", "AADSTS5000279: The signature is not the issuer's.", 5000279, 401)
        if claims["exp"] <= time.time():
            return _refused("invalid_client", "AADSTS700024: Client assertion is not within its valid time range.",
                            700024, 401)  # fmt: skip
        return None

    def identity(self, target: str, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """What is said of a managed identity, by a VM's metadata service or a function's host: status and document."""
        path = urlsplit(target).path
        query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        if path == FUNCTION_PATH and headers.get("x-identity-header") != self._settings.identity_header:
            return 400, {"statusCode": 400, "message": "The X-IDENTITY-HEADER is missing or wrong"}
        if path == IDENTITY_PATH and headers.get("metadata", "").lower() != "true":
            return 400, {"error": "invalid_request", "error_description": "Required metadata header not specified"}
        if "api-version" not in query or "resource" not in query:
            return 400, {"error": "invalid_request", "error_description": "Required query variable is missing"}
        unknown = set(query) - {"api-version", "resource", "client_id", "claims"}
        if unknown:
            raise Unmodelled(f"{sorted(unknown)} of the identity endpoint")
        client = query.get("client_id") or (self.identities[0] if self.identities else "")
        if client not in self.identities:
            return 400, {"error": "invalid_request", "error_description": "Identity not found"}
        told = self.issue(client, query["resource"].rstrip("/"))
        return 200, {name: str(value) for name, value in told.items()} | {"resource": query["resource"]}


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _said(document: Mapping[str, Any], status: int = 200) -> Reply:
    return Reply(status, json.dumps(document).encode(), _JSON)


def _refused(error: str, description: str, number: int, status: int = 400) -> Reply:
    return _said({"error": error, "error_description": description, "error_codes": [number]}, status)
