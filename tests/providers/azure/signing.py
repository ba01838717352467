"""AWS's side of a federation: STS of a region, which signs whose role a machine has, and the machine's metadata.

What is asked is read by botocore's own model of STS, and so is what is answered: a call that AWS has not fails.
"""

from __future__ import annotations

import base64
import json
import time
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

import botocore.session
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256

from tests.fakes.server import Fate, Reply, Request, Server

ISSUER = "https://11112222-3333-4444-8555-666677778888.tokens.sts.global.api.aws"
ROLE = "arn:aws:iam::123456789012:role/cd-lab-control"
_CALL = "GetWebIdentityToken"
_STS = botocore.session.get_session().get_service_model("sts")


class Signing:
    """Listens on 127.0.0.1. `refusal`: code, message and status that STS answers with; `drops`: whether it closes the
    connection instead; `asked`: what it was asked, by name; `regions`: which regions' signatures the requests bore."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.key = self._key.public_key()
        self.issuer, self.role = ISSUER, ROLE
        self.refusal: tuple[str, str, int] | None = None
        self.drops = False
        self.asked: list[dict[str, str]] = []
        self.regions: list[str] = []
        self._server = Server(self._handle)
        self._server.start()
        self.url = self._server.url

    def close(self) -> None:
        self._server.stop()

    def _handle(self, request: Request) -> Reply:
        if request.method == "POST":
            if self.drops:
                return Reply(fate=Fate.DROPPED)
            self.regions.append(request.headers["authorization"].partition("Credential=")[2].split("/")[2])
            status, text = self.answer({name: found[0] for name, found in parse_qs(request.body.decode()).items()})
            return Reply(status, text.encode())
        if request.method == "PUT":
            return Reply(200, b"a-session", "text/plain")
        zone = request.target.startswith("/latest/meta-data/placement/availability-zone")
        return Reply(200, b"eu-north-1b", "text/plain") if zone else Reply(404)

    def answer(self, form: dict[str, str]) -> tuple[int, str]:
        """Of STS's query protocol."""
        self.asked.append(form)
        assert form.pop("Version") == _STS.api_version
        call = _STS.operation_model(form.pop("Action"))
        known = {name for name in form if name.partition(".")[0] in call.input_shape.members}
        assert (call.name, known) == (_CALL, set(form)), form
        if self.refusal is not None:
            code, message, status = self.refusal
            told = f"<Type>Sender</Type><Code>{code}</Code><Message>{escape(message)}</Message>"
            return status, f"<ErrorResponse><Error>{told}</Error></ErrorResponse>"
        token = self.token(form["Audience.member.1"], int(form["DurationSeconds"]))
        return 200, (
            f"<{_CALL}Response><{_CALL}Result><WebIdentityToken>{token}</WebIdentityToken>"
            f"<Expiration>2026-01-01T00:00:00Z</Expiration></{_CALL}Result></{_CALL}Response>"
        )

    def token(self, audience: str, lasts_s: int) -> str:
        """Signed, by the form that RS256 has."""
        now = int(time.time())
        claims = {"iss": self.issuer, "sub": self.role, "aud": audience, "iat": now, "exp": now + lasts_s}
        said = ".".join(_part({"alg": "RS256", "typ": "JWT", "kid": "1"}) if not at else _part(claims) for at in (0, 1))
        return f"{said}.{_base64(self._key.sign(said.encode(), PKCS1v15(), SHA256()))}"


def _part(value: Any) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
