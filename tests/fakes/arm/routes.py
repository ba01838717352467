"""What an operation gets to work with, and the table of the operations that the fake has."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from tests.fakes.arm.errors import ArmError, Unmodelled
from tests.fakes.arm.records import Operation
from tests.fakes.faults import Call

if TYPE_CHECKING:
    from tests.fakes.arm.cloud import Cloud
    from tests.fakes.arm.estate import Estate

#: Query parameters that any operation may have.
_COMMON = frozenset({"api-version"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a document or its text, and headers."""

    status: int = 200
    document: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    text: str = ""

    @property
    def body(self) -> bytes:
        if self.text:
            return self.text.encode()
        return b"" if self.document is None else json.dumps(self.document).encode()


@dataclass(frozen=True, slots=True)
class Session:
    """One request. `at` holds the parts of the path by name, resource groups and subscriptions as they were written."""

    cloud: Cloud
    route: Route
    at: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    path: str
    url: str

    @property
    def estate(self) -> Estate:
        return self.cloud.estate

    @property
    def now(self) -> int:
        return self.estate.now

    @property
    def subscription(self) -> str:
        return self.at["subscription"]

    def staleness_ms(self) -> int:
        """How old the world is that this read shows."""
        return self.cloud.faults.staleness_ms(self.route.name, self.now)

    def permit(self, action: str, linked: str = "") -> None:
        """Refuse without this right; `linked`: the other resource that it is wanted on."""
        if action.lower() not in {one.lower() for one in self.cloud.denied}:
            return
        if linked:
            raise ArmError(
                "LinkedAuthorizationFailed",
                f"The client has permission to perform action '{self.route.action}' on scope '{self.path}'; however, "
                f"it does not have permission to perform action '{action}' on the linked scope '{linked}' or the "
                "linked scope is invalid.",
            )
        raise ArmError(
            "AuthorizationFailed",
            f"The client does not have authorization to perform action '{action}' over scope '{self.path}' or the "
            "scope is invalid. If access was recently granted, please refresh your credentials.",
        )

    def accepted(self, operation: Operation, status: int = 202, text: str = "") -> Answer:
        """The answer that says where to ask how an operation goes on."""
        place = (
            f"{self.url}/subscriptions/{operation.subscription}/providers/Microsoft.Compute/locations/"
            f"{operation.location}/operations/{operation.id}?p={operation.subscription}&"
        )
        version = urlencode({"api-version": self.query.get("api-version", "")})
        headers = [("Azure-AsyncOperation", place + version), ("Retry-After", str(self.cloud.settings.poll_after_s))]
        if status == 202:
            headers.append(("Location", f"{place}monitor=true&{version}"))
        return Answer(status, headers=tuple(headers), text=text)

    def page(self, texts: Iterable[tuple[int, str]]) -> Answer:
        """The page that is asked for of things with numbers that grow, as JSON, and where the next one is."""
        raw = self.query.get("$skiptoken", "1.0")
        number_text, _, after_text = raw.partition(".")
        try:
            number, after = int(number_text), int(after_text)
        except ValueError:
            raise ArmError("InvalidParameter", f"The skip token {raw} is not valid.") from None
        fault = self.cloud.faults.breaks_off(self.route.name, number, self.now)
        if fault is not None:
            raise ArmError(fault.code or "InternalServerError", f"page {number} of {self.route.name} could not be made")
        most, shown, last, more = self.cloud.settings.page, [], after, False
        for at, text in texts:
            if at <= after:
                continue
            if len(shown) == most:
                more = True
                break
            shown.append(text)
            last = at
        link = ""
        if more:
            query = {**self.query, "$skiptoken": f"{number + 1}.{last}"}
            link = f',"nextLink":{json.dumps(f"{self.url}{quote(self.path)}?{urlencode(query)}")}'
        return Answer(text=f'{{"value":[{",".join(shown)}]{link}}}')

    def unmodelled(self, what: str) -> Unmodelled:
        """The loud error for what Azure has and the fake has not."""
        return Unmodelled(f"{what} of {self.route.name}")


Run = Callable[[Session], Answer]


@dataclass(frozen=True, slots=True)
class Route:
    """An operation that the fake has. `queries` are the parameters that mean something here."""

    method: str
    pattern: re.Pattern[str]
    name: str
    action: str
    run: Run
    queries: frozenset[str] = field(default_factory=frozenset)
    call: Callable[[Session], Call] | None = None
    public: bool = False  # no token is wanted

    def struck_as(self, session: Session) -> Call:
        """What faults are matched against."""
        return self.call(session) if self.call else Call(self.name)


ROUTES: list[Route] = []
GROUP = "/subscriptions/{subscription}/resourceGroups/{group}"
SUBSCRIPTION = "/subscriptions/{subscription}"


def route(
    method: str, template: str, name: str, action: str = "", *, queries: Iterable[str] = (),
    call: Callable[[Session], Call] | None = None, public: bool = False,
) -> Callable[[Run], Run]:  # fmt: skip
    """Enter a function as the operation of this path. `{name}` is one part of it, `{name+}` are one or more."""
    text = re.sub(
        r"\{(\w+)\+\}", r"(?P<\1>.+)", re.escape(template).replace(r"\{", "{").replace(r"\}", "}").replace(r"\+", "+")
    )
    text = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", text)

    def enter(run: Run) -> Run:
        ROUTES.append(
            Route(
                method, re.compile(text, re.IGNORECASE), name, action, run, frozenset(queries) | _COMMON, call, public
            )
        )
        return run

    return enter


def unheeded(heeds: frozenset[str], value: Any, under: str = "") -> str:
    """The first member of a body that the fake would pass over in silence, "" where there is none."""
    if isinstance(value, list):
        return next((found for one in value if (found := unheeded(heeds, one, under))), "")
    if not isinstance(value, Mapping):
        return ""
    for name, below in value.items():
        path = f"{under}{name}"
        if path in heeds:
            continue
        if not any(heed.startswith(f"{path}.") for heed in heeds):
            return path
        found = unheeded(heeds, below, f"{path}.")
        if found:
            return found
    return ""
