"""The fleet as the worker API and the operator routes see it; `reconcile` implements it. Owns the protocol only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from cloud_dispatch.domain.ids import BatchId, InstanceId, TaskId, VmId
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.spend.commitment import Key
from cloud_dispatch.spend.windows import Window


class Ended(Struct, frozen=True):
    """An attempt that ended on a machine, and by what. `kind`: what the task has in common with others, "" where nobody
    remembers."""

    task: TaskId
    cause: Cause
    kind: str = ""


class Heard(Struct, frozen=True):
    """What an agent said of itself in one sync. `state`: idle, busy, draining, drained, failed. `ending` not empty: it
    ends now, for that reason. `ended`: its results."""

    instance: InstanceId
    incarnation: str
    state: str
    drain_token: int = 0
    ask_end: bool = False
    ending: str = ""
    detail: str = ""
    ended: tuple[Ended, ...] = ()
    #: It has used an answer of this dispatcher, and so goes by its lease and by none of before.
    answered: bool = False


class BootWord(Struct, frozen=True):
    """What a VM says of its boot: it has begun `phase`, or `failed` in it, with the end of its log. `vm` is empty where
    it can't learn its own id."""

    vm: str
    phase: str
    failed: bool = False
    exit_code: int = 0
    log: str = ""


class Directive(Struct, frozen=True):
    """What the dispatcher wants of an agent now. `claiming`: it may be handed work."""

    claiming: bool = True
    drain_token: int = 0
    drain: bool = False
    hold: bool = False
    end: bool = False


class Fleet(Protocol):
    async def admit(self, batch: BatchId, vm: VmId, incarnation: str, proof: str) -> Instance:
        """The VM `vm` of `batch` registers: bind its slot. Admits at most the batch's number of distinct VMs, each by
        the proof that its provider gave it ("" for none), if its driver knows such proofs, and the same incarnation
        again while its instance lives. Denied otherwise; Unavailable while a proof can't be checked."""

    async def boot_said(self, batch: BatchId, word: BootWord) -> None:
        """A VM of `batch` that has not registered says how far its boot is; a failure fails its instance, durably.
        NotFound while nobody knows (yet) which instance it is, Conflict where that is past its boot. What it says is
        kept as an event, without what can't be printed and what looks like a secret."""

    def booting(self, batch: BatchId, vm: str) -> Instance:
        """Which instance of `batch` a VM is that says so itself and has not registered. NotFound while nobody knows
        (yet), Conflict where that is past its boot."""

    def heard(self, said: Heard) -> Awaitable[None] | None:
        """Record the contact and what the agent said; called after the results of the same sync were stored. None when
        there is no news that has to be written, else what to wait for. NotFound for an unknown instance."""

    def directive(self, instance: InstanceId) -> Directive:
        """From memory. An instance that is unknown, terminating or gone is told to end."""

    def on_directive(self, listener: Callable[[InstanceId], None]) -> None:
        """`listener(instance)` is called when an instance's directive changed (wakes its long poll)."""

    async def hold(self, instance: InstanceId, reason: str) -> Instance: ...

    async def drain(self, instance: InstanceId, reason: str) -> Instance: ...

    async def resume(self, instance: InstanceId, reason: str) -> Instance:
        """Back to `run`: ends a hold, takes a drain back while it is not confirmed. Conflict when too late."""

    async def kill(self, instance: InstanceId, reason: str) -> Instance:
        """End the VM now; what runs on it ends instance-lost."""

    async def stop(self, level: StopLevel, reason: str) -> Stop:
        """Stop launches, drain or end everything, or nothing any more; kept over restarts. At once in memory, so that
        it holds even where StoreUnavailable says that it will not survive a restart; what is less than before is
        stored first."""

    def stopped(self) -> Stop:
        """What is stopped now, by whomever."""

    async def set_limit(self, key: Key, window: Window, limit: Amount | None, reason: str) -> None:
        """Tighten a spending limit, or (None) leave it to the configuration. InvalidInput for a limit above the
        configuration's, and for a driver, profile or pool that there is none of."""

    def check_spender(self, key: Key) -> None:
        """InvalidInput for a driver, profile or pool that there is none of. A project or a user may have any name."""

    async def reconcile(self) -> None:
        """An operator says that the ledger is the truth, and that limits are lowered by what it lacks: also by what VMs
        cost that another statestore made, of those that are seen now."""

    def risk(self) -> Sequence[str]:
        """What everything may come to at worst, and which limits hold, in words."""

    async def adopt(self, store: str) -> Mapping[str, int]:
        """Take over the VMs of this deployment that the statestore `store` made (lost, or copied from). They are found
        by the next listings. InvalidInput for what is no store's id. How many VMs the last ones have shown of each
        statestore that was not this one's until now."""

    def unreachable(self, instance: Instance) -> str:
        """Why nobody can end its VM, and what to do, "" where somebody can. From memory."""

    async def preview(self) -> dict[str, Any]:
        """What would be launched and ended now, and why: the plan as JSON-ready values. Changes nothing."""

    async def offers(self, shape: Shape, limit: int) -> dict[str, Any]:
        """What could be rented now for a task of `shape`, the cheapest `limit`, and why the rest could not: JSON-ready.
        Changes nothing."""

    async def explain_task(self, task: int) -> dict[str, Any]:
        """Why a task is where it is, JSON-ready."""

    async def explain_instance(self, instance: InstanceId) -> dict[str, Any]:
        """Why an instance was launched, is what it is, or ended, JSON-ready."""

    def breakers(self) -> list[dict[str, Any]]:
        """What has failed since it last succeeded, by template, image and zone, and whether it is still launched;
        JSON-ready, amounts in micro-dollars."""

    async def reset_breakers(self, name: str) -> None:
        """Launch again what the breaker `name` keeps back ("": what any does): nothing that happened until now counts.
        Durable. NotFound where there is no such breaker."""

    def wake(self) -> None:
        """Something happened that planning should look at soon."""
