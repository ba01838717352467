"""The reaper of a Google Cloud project: a function of Cloud Run that Cloud Scheduler calls every minute. Owns what it
asks of Compute Engine.

`DEPLOYMENT` names the deployment, `PROJECT` the project, `TIMEOUT_S` how long a call may take. Its role may list, and
delete what is named after the deployment. Compute Engine itself deletes VMs that run at the end of their
`maxRunDuration`; a VM that has stopped lost that end, and its disk bills on: this deletes it too. `SIGN` is the object
of Cloud Storage whose metadata take its sign of life, as `gs://BUCKET/NAME`; empty: it leaves none. It has nothing but
the standard library around it.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.labels import filter_of, to_tags
from cloud_dispatch.domain.reaper import Tagged
from cloud_dispatch.domain.sign import KEY
from cloud_dispatch.domain.tags import DEPLOYMENT
from cloud_dispatch.reapers.rounds import EVERYTHING, Leave, Partial, Unfinished, end_all, look_at_all

#: What can outlive a VM: looked at when everything ends, once no VM is listed.
_REST = ("disks", "addresses")
_EMPTY = "NO_RESULTS_ON_PAGE"
_PAGE, _MAX_PAGES = 500, 1_000
#: 1,500 calls a minute are a project's; each takes a third of a second.
_AT_ONCE = 8
_ANSWER_S = 30
#: On its way out already, and may refuse to be told so again.
_LEAVING = ("STOPPING", "DEPROVISIONING")
_NOT_READY = ("resourceNotReady", "RESOURCE_NOT_READY")
_METADATA = "/computeMetadata/v1/instance/service-accounts/default/token"
#: A token is asked for again when it has no longer than this to live.
_SPARE_S = 120.0
#: No proxy of an environment stands before Google's own services.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Refused(Exception):
    """Google's no."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason = status, reason


class Api:
    """Compute Engine's API of one project. `token`: an access token that is good now."""

    def __init__(self, endpoint: str, project: str, token: Callable[[], str]) -> None:
        self._root, self._token = f"{endpoint}/compute/v1/projects/{project}/", token

    def __call__(self, verb: str, path: str, **query: str) -> Any:
        """The answer to a request without a body; Refused for a no, OSError where there is none."""
        url = self._root + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        return _answer(urllib.request.Request(url, method=verb), self._token())

    def pages(self, path: str, wanted: str) -> Iterator[Any]:
        """All pages of a list over all places. Those that can't be reached are named in it: unasked for, it would fail
        as a whole for one of them."""
        query = {"filter": wanted, "maxResults": str(_PAGE), "returnPartialSuccess": "true"}
        for _ in range(_MAX_PAGES):
            page = self("GET", path, **query)
            yield page
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]
        raise Partial(f"{path}: no end after {_MAX_PAGES} pages")


def leave(endpoint: str, token: str, place: str, text: str) -> None:
    """Have the metadata of the object `place` say this. It makes no new object and no version of it."""
    bucket, _, name = place.removeprefix("gs://").partition("/")
    url = f"{endpoint}/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}"
    said = json.dumps({"metadata": {KEY: text}}).encode()
    kind = {"Content-Type": "application/json"}
    _answer(urllib.request.Request(url, data=said, headers=kind, method="PATCH"), token)


def _answer(request: urllib.request.Request, token: str) -> Any:
    request.add_header("Authorization", f"Bearer {token}")
    try:
        with _OPENER.open(request, timeout=_ANSWER_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(error.code, error.read()) from None


class Gce:
    """What there is in a project: its VMs, or `everything`."""

    def __init__(self, api: Api, deployment: str, *, everything: bool = False) -> None:
        self._api, self._everything = api, everything
        self._filter = filter_of(DEPLOYMENT, deployment)
        self._leaving: set[VmId] = set()

    def vms(self) -> Iterator[Tagged]:
        """By their paths in the project, as `zones/Z/instances/NAME`. Partial where a place, or a page, is missing."""
        self._leaving.clear()
        silent: list[str] = []
        try:
            found = yield from self._listed("instances", silent)
            if self._everything and not found and not silent:
                for kind in _REST:
                    yield from self._listed(kind, silent)
        except (Refused, OSError) as error:
            raise Partial(f"{type(error).__name__}: {error}") from error
        if silent:
            raise Partial(f"could not be asked: {', '.join(sorted(set(silent)))}")

    def _listed(self, kind: str, silent: list[str]) -> Generator[Tagged, None, int]:
        """What the list of a kind has; returns how much that was, and `silent` grows by the places that it lacks."""
        found = 0
        for page in self._api.pages(f"aggregated/{kind}", self._filter):
            silent += page.get("unreachables", ())
            if _warning(page) and not page.get("unreachables"):
                silent.append(f"all places ({_warning(page)})")
            for place, part in page.get("items", {}).items():
                if _warning(part):
                    silent.append(f"{place} ({_warning(part)})")
                for one in part.get(kind, ()):
                    vm = VmId(f"{place}/{kind}/{one['name']}")
                    if one.get("status") in _LEAVING:
                        self._leaving.add(vm)
                    found += 1
                    yield vm, to_tags(one.get("labels", {}))
        return found

    def end(self, vms: Sequence[VmId]) -> Mapping[VmId, str]:
        with ThreadPoolExecutor(_AT_ONCE) as several:
            return {vm: why for vm, why in zip(vms, several.map(self._deleted, vms), strict=True) if why}

    def _deleted(self, vm: VmId) -> str:
        """Why it does not end, "" where it does. With a VM go the disks that are its own."""
        try:
            self._api("DELETE", vm)
        except Refused as no:
            gone = no.status == 404 or (no.reason in _NOT_READY and vm in self._leaving)
            return "" if gone else str(no)
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return ""


def _warning(listed: Mapping[str, Any]) -> str:
    """By which word a page, or a place on one, says that it may lack something; "" where it does not."""
    code = str(listed.get("warning", {}).get("code", _EMPTY))
    return "" if code == _EMPTY else code


def handler(request: Any) -> tuple[str, int, Mapping[str, str]]:
    """What the function's framework calls with a request of Flask's. `{"everything": true}` ends all that is the
    deployment's, and waits until it is gone: `terraform destroy` sends it."""
    began, limit_s = time.monotonic(), float(os.environ.get("TIMEOUT_S", "60"))
    deployment, project = os.environ["DEPLOYMENT"], os.environ["PROJECT"]
    token = _Token()
    api = Api(os.environ.get("COMPUTE_ENDPOINT", "https://compute.googleapis.com"), project, token)
    everything = (request.get_json(silent=True) or {}).get(EVERYTHING) is True
    clouds = {project: Gce(api, deployment, everything=everything)}
    try:
        if everything:
            told = end_all(clouds, _now, deployment, lambda: limit_s - (time.monotonic() - began), time.sleep)
        else:
            told = look_at_all(clouds, _now, deployment, leave=_leaves(token))
    except Unfinished as error:
        return f"{error}\n", 500, {"Content-Type": "application/json"}
    return f"{json.dumps(told)}\n", 200, {"Content-Type": "application/json"}


def _leaves(token: Callable[[], str]) -> Leave | None:
    """What leaves signs of life."""
    place, endpoint = os.environ.get("SIGN"), os.environ.get("STORAGE_ENDPOINT", "https://storage.googleapis.com")
    return (lambda text: leave(endpoint, token(), place, text)) if place else None


class _Token:
    """The access token of the function's own account, from the metadata service."""

    def __init__(self) -> None:
        self._text, self._until = "", 0.0

    def __call__(self) -> str:
        if time.monotonic() >= self._until:
            host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
            request = urllib.request.Request(f"http://{host}{_METADATA}", headers={"Metadata-Flavor": "Google"})
            with _OPENER.open(request, timeout=_ANSWER_S) as answer:
                told = json.load(answer)
            self._text, self._until = told["access_token"], time.monotonic() + told["expires_in"] - _SPARE_S
        return self._text


def _refused(status: int, body: bytes) -> Refused:
    try:
        error = json.loads(body)["error"]
        return Refused(status, str(error.get("errors", [{}])[0].get("reason", "")), str(error.get("message", "")))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return Refused(status, "", body[:200].decode(errors="replace"))


def _now() -> int:
    return time.time_ns() // 1_000_000
