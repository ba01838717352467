"""Operations of zones and regions: get, list, wait. Owns nothing but the answers."""

from __future__ import annotations

from typing import Any

from tests.fakes.gce.filters import getter, page_of, passes
from tests.fakes.gce.records import LINK, Operation
from tests.fakes.gce.session import Session, operation
from tests.fakes.google.errors import ApiError
from tests.fakes.google.schemas import Rendered


class NotYet(Exception):
    """The answer is to come later: the request is asked again after a moment, until `answer` will do."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__("not yet")
        self.answer = answer


def _scope(session: Session) -> str:
    if "zone" in session.params:
        return f"zones/{session.zone}"
    return f"regions/{session.region}"


def _found(session: Session) -> Operation:
    scope, name = _scope(session), session.params["operation"]
    found = session.project.operations.get((scope, name))
    if found is None:
        raise session.missing(f"projects/{session.project.name}/{scope}/operations/{name}")
    return found


@operation("zoneOperations.get", permission="compute.zoneOperations.get")
@operation("regionOperations.get", permission="compute.regionOperations.get")
def get(session: Session) -> Any:
    """How an operation stands."""
    return _found(session).resource


@operation("zoneOperations.wait", permission="compute.zoneOperations.get")
@operation("regionOperations.wait", permission="compute.regionOperations.get")
def wait(session: Session) -> Any:
    """Answers when it is done, or after two minutes as it is then."""
    found = _found(session)
    if not found.done:
        raise NotYet(found.resource)
    return found.resource


_LISTED = ("filter", "maxResults", "pageToken", "orderBy")
#: What a list over all scopes may say.
AGGREGATED = (*_LISTED, "includeAllScopes", "returnPartialSuccess")


@operation("zoneOperations.list", *_LISTED, permission="compute.zoneOperations.list")
@operation("regionOperations.list", *_LISTED, permission="compute.regionOperations.list")
def listed(session: Session) -> Any:
    """The operations of a zone or region, those that are done too."""
    scope, test = _scope(session), passes(session)
    told = [((one.name,), one.resource) for one in session.project.operations.values() if one.scope == scope]
    page, token = page_of(session, sorted((item for item in told if test(getter(item[1]))), key=lambda item: item[0]))
    path = f"projects/{session.project.name}/{scope}/operations"
    return listing("compute#operationList", path, page, token)


@operation("globalOperations.aggregatedList", *AGGREGATED, permission="compute.globalOperations.list")
def everywhere(session: Session) -> Any:
    """The operations of the whole project, by zone and region."""
    test = passes(session)
    told = [((one.scope, one.name), (one.scope, one.resource)) for one in session.project.operations.values()]
    chosen = sorted((item for item in told if test(getter(item[1][1]))), key=lambda item: item[0])
    page, token = page_of(session, chosen)
    return aggregated(session, "operation", "operations", page, token, zonal=True)


def listing(kind: str, path: str, items: list[Any], token: str) -> dict[str, Any]:
    """An answer of one list."""
    told: dict[str, Any] = {"kind": kind, "id": path, "selfLink": f"{LINK}{path}"}
    if items:
        told["items"] = items
    if token:
        told["nextPageToken"] = token
    return told


def aggregated(
    session: Session, what: str, member: str, page: list[tuple[str, Any]], token: str, *, zonal: bool
) -> dict[str, Any]:
    """An answer by scope. A scope with nothing on the page says so, one that does not answer says that; who does not
    ask for a part gets nothing where one is missing."""
    by_scope: dict[str, Any] = {}
    for scope, item in page:
        by_scope.setdefault(scope, {}).setdefault(member, []).append(item)
    regions = session.cloud.settings.regions
    places = [f"zones/{zone}" for zones in regions.values() for zone in zones] if zonal else [
        f"regions/{region}" for region in regions
    ]  # fmt: skip
    for scope in places:
        if scope not in by_scope:
            by_scope[scope] = {"warning": _warning("NO_RESULTS_ON_PAGE", f"There are no results for scope '{scope}' on "
                                                   "this page.", scope)}  # fmt: skip
    away = [scope for scope in places if scope.partition("/")[2] in session.cloud.unreachable]
    if away and not session.params.get("returnPartialSuccess"):
        raise ApiError("backendError", f"Could not reach: {', '.join(away)}")
    for scope in away:
        by_scope[scope] = {"warning": _warning("UNREACHABLE", f"The scope '{scope}' could not be reached.", scope)}
    for scope in places:
        if code := session.cloud.warned.get(scope.partition("/")[2]):
            by_scope[scope] = {"warning": _warning(code, f"Not all of the scope '{scope}' can be told.", scope)}
    path = f"projects/{session.project.name}/aggregated/{member}"
    told: dict[str, Any] = {
        "kind": f"compute#{what}AggregatedList", "id": path, "selfLink": f"{LINK}{path}", "items": by_scope,
    }  # fmt: skip
    if code := session.cloud.warned.get(""):
        told["warning"] = _warning(code, "Not all can be told.", "")
    if away:
        told["unreachables"] = [f"projects/{session.project.name}/{scope}" for scope in away]
    if token:
        told["nextPageToken"] = token
    return told


def _warning(code: str, message: str, scope: str) -> dict[str, Any]:
    return {"code": code, "message": message, "data": [{"key": "scope", "value": scope}]}


__all__ = ["AGGREGATED", "NotYet", "Rendered", "aggregated", "listing"]
