"""A workload as data. Owns its values; must not know where they came from, nor who runs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import Cause, RetryRules

#: No time of a log is longer: a hundred years, so that a log may count from an epoch.
LONGEST_MS = 100 * 365 * 86_400_000
#: Ends that a task comes to by itself. Everything else is done to it, and that is the simulator's to do.
OWN_CAUSES = frozenset(
    {Cause.SUCCESS, Cause.EXIT_CODE, Cause.SIGNAL, Cause.OUT_OF_MEMORY, Cause.TIMEOUT, Cause.OUTPUT_FAILED}
)


@dataclass(frozen=True, slots=True)
class WorkItem:
    """`count` tasks that are alike, submitted together at `submit_ms` after the workload's start.

    `run_ms` is how long an attempt takes that nothing disturbs, `outcome` (one of OWN_CAUSES) how it then ends.
    `expected_ms` is what the submitter says of it, 0 for nothing: all that the planner knows. `max_runtime_ms` is when
    an attempt is ended in any case, 0 for never. `assumed`: nobody says how long it takes, `run_ms` is a guess.
    `checkpoints`: it would write down how far it is before its instance goes.
    """

    submit_ms: int
    shape: Shape
    run_ms: int
    count: int = 1
    expected_ms: int = 0
    priority: int = 0
    user: str = ""
    project: str = ""
    outcome: Cause = Cause.SUCCESS
    exit_code: int = 1  # where that is the outcome
    retry: RetryRules = RetryRules()
    max_runtime_ms: int = 0
    assumed: bool = False
    checkpoints: bool = False


@dataclass(frozen=True, slots=True)
class BootTime:
    """How long an instance once took from its launch until it was registered."""

    profile: ProfileName
    type: str
    zone: str
    market: Market
    boot_ms: int


@dataclass(frozen=True, slots=True)
class SpotPrice:
    """From `at_ms` after the trace's start on, `type` in `zone` (empty: in all) costs `rate` on the spot market."""

    at_ms: int
    type: str
    zone: str
    rate: Rate


@dataclass(frozen=True, slots=True)
class Workload:
    """Work in order of submission, and what had to be assumed to read it.

    `origin` says where it came from. `boots` are recorded boot times, none where the source has none.
    """

    items: tuple[WorkItem, ...]
    origin: str
    assumptions: tuple[str, ...] = ()
    boots: tuple[BootTime, ...] = ()

    @property
    def tasks(self) -> int:
        """How many tasks it has."""
        return sum(item.count for item in self.items)

    @property
    def span_ms(self) -> int:
        """From its start to the last submission."""
        return self.items[-1].submit_ms if self.items else 0


def compact(items: Iterable[WorkItem]) -> Iterator[WorkItem]:
    """The same work with neighbours that are alike made one: arrays, and logs of arrays, stay small."""
    last: WorkItem | None = None
    for item in items:
        if last is None:
            last = item
        elif last.submit_ms == item.submit_ms and replace(last, count=item.count) == item:
            last = replace(last, count=last.count + item.count)
        else:
            yield last
            last = item
    if last is not None:
        yield last
