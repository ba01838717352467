"""What an operation gets to work with, and the table of the operations that the fake has."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.fakes.faults import Call
from tests.fakes.gce.project import Project
from tests.fakes.gce.records import Operation
from tests.fakes.google.errors import ApiError, Unmodelled
from tests.fakes.google.model import Method

if TYPE_CHECKING:
    from tests.fakes.gce.cloud import Cloud


@dataclass(frozen=True, slots=True)
class Session:
    """One request of one caller. `params` are those of path and query together, `body` is {} where there is none."""

    cloud: Cloud
    method: Method
    params: dict[str, Any]
    body: dict[str, Any]
    caller: str
    #: How many things the filter of a list has left out.
    left_out: list[int] = field(default_factory=lambda: [0])

    @property
    def now(self) -> int:
        """The fake's clock."""
        return self.cloud.timers.now

    @property
    def project(self) -> Project:
        """The project that is spoken to."""
        return self.cloud.project(self.params["project"])

    @property
    def zone(self) -> str:
        """The zone in the path, one that there is."""
        zone: str = self.params["zone"]
        self.check_zone(zone)
        return zone

    @property
    def region(self) -> str:
        """The region in the path, one that there is."""
        region: str = self.params["region"]
        if region not in self.cloud.settings.regions:
            raise self.missing(f"projects/{self.project.name}/regions/{region}")
        return region

    def check_zone(self, zone: str) -> None:
        """Fail where there is no such zone."""
        if not any(zone in zones for zones in self.cloud.settings.regions.values()):
            raise ApiError("invalid", f"Invalid value for field 'zone': '{zone}'. Unknown zone.")

    def missing(self, path: str) -> ApiError:
        """The error for what is not there."""
        return ApiError("notFound", f"The resource '{path}' was not found")

    def unmodelled(self, what: str) -> Unmodelled:
        """The loud error for what Google has and the fake has not."""
        return Unmodelled(f"{what} of {self.method.name}")

    def permit(self, *permissions: str) -> None:
        """Fail where one of these is denied."""
        for permission in permissions:
            if permission in self.cloud.denied:
                where = f"projects/{self.params['project']}" if "project" in self.params else "this"
                raise ApiError("forbidden", f"Required '{permission}' permission for '{where}'")

    def remembered(self, scope: str) -> Operation | None:
        """The operation that the same request, with the same requestId, began before."""
        key = self._key(scope)
        if key is None or key not in self.project.requests:
            return None
        asked, operation = self.project.requests[key]
        if asked != self._asked:
            raise ApiError("invalid", f"Invalid value for field 'requestId': '{key[2]}'. It is another's.")
        return operation

    def remember(self, scope: str, operation: Operation) -> None:
        """For as long as requestIds are kept."""
        key, project = self._key(scope), self.project
        if key is not None:
            project.requests[key] = (self._asked, operation)

            def forget() -> None:
                project.requests.pop(key, None)

            self.cloud.timers.after(self.cloud.settings.request_ms, forget)

    @property
    def request_id(self) -> str:
        """The requestId, "" for none."""
        return str(self.params.get("requestId", ""))

    @property
    def _asked(self) -> str:
        return json.dumps([self.params, self.body], sort_keys=True)

    def _key(self, scope: str) -> tuple[str, str, str] | None:
        if not self.request_id:
            return None
        try:
            good = uuid.UUID(self.request_id).int != 0
        except ValueError:
            good = False
        if not good:
            raise ApiError("invalid", f"Invalid value for field 'requestId': '{self.request_id}'. It must be a UUID.")
        return (self.method.name, scope, self.request_id)


Run = Callable[[Session], Any]


@dataclass(frozen=True, slots=True)
class Handled:
    """An operation that the fake has. `heeds` are the parameters of its query and the fields of its body, dotted, that
    mean something here."""

    run: Run
    heeds: frozenset[str]
    call: Callable[[Session], Call]
    permission: str


#: By service and name of the method.
OPERATIONS: dict[tuple[str, str], Handled] = {}


def _call(session: Session) -> Call:
    return Call(session.method.name, zone=str(session.params.get("zone", "")))


def operation(
    name: str, *heeds: str, permission: str = "", service: str = "compute", call: Callable[[Session], Call] = _call
) -> Callable[[Run], Run]:
    """Enter a function as an operation. A request with anything else than `heeds` fails loudly."""

    def enter(run: Run) -> Run:
        OPERATIONS[service, name] = Handled(run, frozenset(heeds), call, permission)
        return run

    return enter


def unheeded(heeds: frozenset[str], values: Mapping[str, Any], under: str = "") -> str:
    """The first thing of a request that the fake would pass over in silence, "" where there is none."""
    for name, value in values.items():
        path = f"{under}{name}"
        if path in heeds:
            continue
        if not any(heed.startswith(f"{path}.") for heed in heeds):
            return path
        for below in value if isinstance(value, list) else [value]:
            found = unheeded(heeds, below, f"{path}.")
            if found:
                return found
    return ""
