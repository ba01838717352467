"""The reaper of an Azure subscription: a function that a timer calls every minute. Owns what it asks of ARM.

`DEPLOYMENT` names the deployment, `GROUP` the resource group of its VMs by its id, `CLIENT` the function's identity by
its client id. That may read and delete the VMs of the group; what a VM holds goes with it, as the driver made it so.
`SIGN` is the resource whose tag takes its sign of life, by its id; empty: it leaves none.
The standard library only: there is nothing to install, and nothing that changes with the function's host.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.reaper import Tagged
from cloud_dispatch.domain.sign import KEY
from cloud_dispatch.reapers.rounds import EVERYTHING, Partial, end_all, look_at_all

ARM = "https://management.azure.com"
_VMS, _VERSION = "Microsoft.Compute/virtualMachines", "2024-07-01"
_TOKENS_VERSION, _TAGS_VERSION = "2019-08-01", "2021-04-01"
#: A call's own time, of the five minutes that its host gives it (host.json), and an answer's.
_CALL_S, _ANSWER_S = 270.0, 20
#: ARM takes hundreds of deletions at once, and each takes it a second to accept.
_TOGETHER = 8
_MOST_PAGES = 1_000
_PAUSE_S = 5.0


class Refused(Exception):
    """There is no token to ask with, or ARM's no."""


@dataclass(frozen=True)
class Answer:
    """What was answered; `document` is {} for what is no JSON."""

    status: int
    headers: Mapping[str, str]
    document: Mapping[str, Any]


def asked(
    method: str, url: str, headers: Mapping[str, str], trusted: ssl.SSLContext | None = None, body: bytes | None = None
) -> Answer:
    """One request, past whatever proxy the environment names. OSError where there is no answer."""
    request = Request(url, data=body, method=method, headers=dict(headers))
    try:
        with build_opener(ProxyHandler({}), HTTPSHandler(context=trusted)).open(request, timeout=_ANSWER_S) as found:
            return Answer(found.status, _lower(found.headers), _document(found.read()))
    except HTTPError as error:
        with error:
            return Answer(error.code, _lower(error.headers), _document(error.read()))


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _document(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def token(endpoint: str, secret: str, client: str) -> str:
    """A token for ARM of the function's own identity ("Managed identities for App Service and Azure Functions")."""
    query = urlencode({"resource": ARM, "api-version": _TOKENS_VERSION, "client_id": client})
    answer = asked("GET", f"{endpoint}?{query}", {"X-IDENTITY-HEADER": secret})
    if answer.status != 200 or "access_token" not in answer.document:
        raise Refused(f"no token for {client}: {_said(answer)}")
    return str(answer.document["access_token"])


class Arm:
    """The VMs of one resource group. `leaving`: also those that are being deleted; `left_s`: how much time there is to
    wait for who is told to come later."""

    def __init__(
        self, url: str, group: str, bearer: str, left_s: Callable[[], float], sleep: Callable[[float], None],
        *, leaving: bool = False, trusted: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self._url, self._all = url, f"{url}{group}/providers/{_VMS}"
        self._headers = {"Authorization": f"Bearer {bearer}"}
        self._left_s, self._sleep, self._leaving = left_s, sleep, leaving
        self._trusted = trusted or ssl.create_default_context()

    def vms(self) -> Iterator[Tagged]:
        """Partial where a page is missing."""
        url = f"{self._all}?api-version={_VERSION}"
        for _ in range(_MOST_PAGES):
            try:
                page = self._ask("GET", url)
            except OSError as error:
                raise Partial(f"{type(error).__name__}: {error}") from error
            if page.status != 200:
                raise Partial(_said(page))
            for vm in page.document.get("value") or ():
                state = str((vm.get("properties") or {}).get("provisioningState", "")).lower()
                if self._leaving or state != "deleting":
                    yield VmId(vm["name"]), vm.get("tags") or {}
            url = page.document.get("nextLink") or ""
            if not url:
                return
        raise Partial(f"no end of the list after {_MOST_PAGES} pages")

    def end(self, vms: Sequence[VmId]) -> Mapping[VmId, str]:
        with ThreadPoolExecutor(_TOGETHER) as hands:
            return {vm: why for vm, why in zip(vms, hands.map(self._refusal, vms), strict=True) if why}

    def _refusal(self, vm: VmId) -> str:
        """Why it is not deleted, "" where it is, or is gone."""
        try:
            answer = self._ask("DELETE", f"{self._all}/{vm}?api-version={_VERSION}")
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return "" if answer.status < 300 or answer.status == 404 else _said(answer)

    def leave(self, resource: str, text: str) -> None:
        """Have a tag of the resource say this; its other tags stay. Refused for a no."""
        said = json.dumps({"operation": "Merge", "properties": {"tags": {KEY: text}}}).encode()
        url = f"{self._url}{resource}/providers/Microsoft.Resources/tags/default?api-version={_TAGS_VERSION}"
        answer = self._ask("PATCH", url, said)
        if answer.status >= 300:
            raise Refused(_said(answer))

    def _ask(self, method: str, url: str, body: bytes | None = None) -> Answer:
        """The answer, later where that is asked for and there is time."""
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        while True:
            answer = asked(method, url, headers, self._trusted, body)
            if answer.status != 429:
                return answer
            told = answer.headers.get("retry-after", "")
            wait = float(told) if told.isdecimal() else _PAUSE_S
            if wait + _ANSWER_S > self._left_s():
                return answer
            self._sleep(wait)


def _said(answer: Answer) -> str:
    error = answer.document.get("error")
    words = error if isinstance(error, dict) else answer.document
    return f"{answer.status} {words.get('code') or words.get('error') or ''}: {words.get('message') or ''}"


def handler(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One call: a round, or with `{"everything": true}` rounds until nothing of the deployment is left."""
    deployment, group = os.environ["DEPLOYMENT"], os.environ["GROUP"]
    everything, end = event.get(EVERYTHING) is True, time.monotonic() + _CALL_S

    def left_s() -> float:
        return end - time.monotonic()

    bearer = token(os.environ["IDENTITY_ENDPOINT"], os.environ["IDENTITY_HEADER"], os.environ["CLIENT"])
    cloud = Arm(os.environ.get("ARM") or ARM, group, bearer, left_s, time.sleep, leaving=everything)
    clouds = {group.rpartition("/")[2]: cloud}
    if everything:
        return end_all(clouds, _now, deployment, left_s, time.sleep)
    sign = os.environ.get("SIGN")
    return look_at_all(clouds, _now, deployment, leave=(lambda text: cloud.leave(sign, text)) if sign else None)


def main(timer: object) -> None:
    """What the function's host calls; an error makes the call one that failed, which the alarms count."""
    handler({})


def _now() -> int:
    return time.time_ns() // 1_000_000
