"""What an operation gets to work with, and the table of the operations that the fake has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.fakes.aws.auth import Key
from tests.fakes.aws.errors import AwsError, Unmodelled
from tests.fakes.aws.model import Operation
from tests.fakes.ec2.region import Region
from tests.fakes.faults import Call

if TYPE_CHECKING:
    from tests.fakes.ec2.cloud import Cloud


@dataclass(frozen=True, slots=True)
class Session:
    """One request of one caller, in one region. `key` is None for what needs no signature."""

    cloud: Cloud
    operation: Operation
    region: Region
    key: Key | None

    @property
    def now(self) -> int:
        """The fake's clock."""
        return self.region.now

    def staleness_ms(self) -> int:
        """How old the world is that this read shows."""
        return self.cloud.faults.staleness_ms(self.operation.name, self.now)

    def check_page(self, number: int) -> None:
        """Fail where a fault breaks the listing off before this page."""
        fault = self.cloud.faults.breaks_off(self.operation.name, number, self.now)
        if fault is not None:
            raise AwsError(fault.code or "InternalError", f"page {number} of {self.operation.name} could not be made")

    def unmodelled(self, what: str) -> Unmodelled:
        """The loud error for what AWS has and the fake has not."""
        return Unmodelled(f"{what} of {self.operation.name}")


Run = Callable[[Session, dict[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Handled:
    """An operation that the fake has. `heeds` are the members of its input that mean something here."""

    run: Run
    heeds: frozenset[str]
    call: Callable[[Session, Mapping[str, Any]], Call]


#: By botocore's name of the service and the operation's.
OPERATIONS: dict[tuple[str, str], Handled] = {}


def operation(
    service: str, name: str, *heeds: str, call: Callable[[Session, Mapping[str, Any]], Call] | None = None
) -> Callable[[Run], Run]:  # fmt: skip
    """Enter a function as an operation. A request with any other member than `heeds` fails loudly."""

    def enter(run: Run) -> Run:
        scope = call or (lambda session, params: Call(name))
        OPERATIONS[service, name] = Handled(run, frozenset((*heeds, "DryRun")), scope)
        return run

    return enter


def unheeded(handled: Handled, params: Mapping[str, Any], under: str = "") -> str:
    """The first member of a request that the fake would pass over in silence, "" where there is none."""
    for name, value in params.items():
        path = f"{under}{name}"
        if path in handled.heeds:
            continue
        if not any(heed.startswith(f"{path}.") for heed in handled.heeds):
            return path
        for below in value if isinstance(value, list) else [value]:
            found = unheeded(handled, below, f"{path}.")
            if found:
                return found
    return ""
