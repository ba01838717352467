"""What a checker is. Owns the protocol and the findings; each promise has a module of its own.

Checkers see the truth (clouds, processes, transactions), never what the dispatcher believes. They are told of every
change at the moment when it happens, and asked for a full look now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.ports.store import Store
from cloud_dispatch.simulation.facts import Commit
from cloud_dispatch.simulation.ports import CloudAccount, TrueVm
from cloud_dispatch.simulation.scenario import Scenario

T = TypeVar("T")
#: The cause, the exit code and the signal of a process's end.
Exit = tuple[str, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that was broken: which, when (virtual ms), and how."""

    checker: str
    at_ms: int
    text: str

    def __str__(self) -> str:
        return f"{self.checker} at {self.at_ms} ms: {self.text}"


@dataclass(slots=True)
class Process:
    """A command that truly runs, or ran, on a VM. `end`: its cause, exit code and signal, once it has exited; None also
    where its agent or VM took it along."""

    vm: TrueVm
    task: int
    token: int
    started_ms: int
    unkillable: bool = False
    max_runtime_ms: int = 0  # 0: no limit of its own
    end: Exit | None = None
    stood_ms: int = 0  # for so long its VM stood still while it ran, or was to
    thawed_ms: int = -1  # when its VM had last gone on by then with a clock that had stood still
    run_ms: int = 0  # for so long it runs where nothing ends it; 0: what can't start
    gpus: tuple[int, ...] = ()  # that it was told are its own
    asked_gpus: int = 0


class View(Protocol):
    """The whole truth of a run, for checkers."""

    @property
    def scenario(self) -> Scenario: ...

    @property
    def now_ms(self) -> int:
        """Virtual milliseconds since the start."""

    @property
    def told_ms(self) -> int:
        """What the dispatcher's wall clock says now, epoch milliseconds."""

    @property
    def accounts(self) -> Sequence[CloudAccount]: ...

    @property
    def store(self) -> Store | None:
        """The store as the living dispatcher has it open; None while it is down. Only its reads from memory count."""

    @property
    def healthy_since_ms(self) -> int | None:
        """Since when the dispatcher is up and no fault holds; None while one does."""

    @property
    def processes(self) -> Mapping[tuple[VmId, int], Process]:
        """What runs now, by VM and token, in order of start."""

    @property
    def alive(self) -> Mapping[VmId, TrueVm]:
        """The VMs that are not gone, in order of creation."""

    def report(self, checker: str, text: str) -> None:
        """A promise is broken, now."""


class Checker:
    """One promise. Subclasses watch what they need; all methods return at once and never change anything."""

    name = ""

    def __init__(self, view: View) -> None:
        self.view = view

    def find(self, text: str) -> None:
        """The promise is broken."""
        self.view.report(self.name, text)

    def vm_changed(self, vm: TrueVm) -> None:
        """The truth about a VM has changed."""

    def committed(self, commit: Commit) -> None:
        """The dispatcher's store has committed."""

    def process_started(self, process: Process) -> None:
        """A command runs from now on."""

    def process_ended(self, process: Process) -> None:
        """A command runs no more."""

    def registered(self, vm: TrueVm, instance: str) -> None:
        """The dispatcher admitted `vm` as `instance`."""

    def restored(self) -> None:
        """The store has gone back in time: forget what a backup may forget."""

    def look(self) -> None:
        """A full look, every few virtual seconds."""

    def end(self) -> None:
        """The run is over, and everything that was to end had its time."""


def overriding(checkers: Iterable[Checker], method: Callable[[Any, T], None]) -> list[Callable[[T], None]]:
    """`method`, one of `Checker`'s, of those that do something there: most events are news for few."""
    found = [getattr(checker, method.__name__) for checker in checkers]
    return [own for own in found if getattr(own, "__func__", own) is not method]
