"""A simulated VM from the inside: its clock, its supervisor, and the agent that registers and serves.

Registration is the agent's own code; the supervisor's rules (restart, hang, lifetime) are its own numbers. Knows the
network's way to the dispatcher, nothing else of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import replace
from typing import Protocol

import msgspec

from cloud_dispatch.agent import events
from cloud_dispatch.agent.channel import Endpoint
from cloud_dispatch.agent.identity import Config, Identity
from cloud_dispatch.agent.register import Refused, register
from cloud_dispatch.agent.succession import Succession
from cloud_dispatch.agent.supervisor import LIFETIME_GRACE_MS, MOST_RESTARTS
from cloud_dispatch.agent.timer import GuestTimer
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch.simulation.attempts import VirtualAttempt
from cloud_dispatch.simulation.loop import Frost, Group, VirtualLoop
from cloud_dispatch.simulation.network import Network
from cloud_dispatch.simulation.ports import Stream, TrueVm
from cloud_dispatch.simulation.shell import VirtualChannel, VirtualShell
from cloud_dispatch.wire.timer import TimerPlan

_MILLION = 1_000_000
#: From the user data's start to the agent's first word.
_INSTALL_MS = 200


class UserData(msgspec.Struct, frozen=True):
    """What the dispatcher gives to a VM: all that the agent's boot script would need."""

    join_token: str
    timer: TimerPlan = TimerPlan()
    program: str = ""
    audience: str = ""  # of the VM's proof of identity


class Watcher(Protocol):
    """Who sees what truly happens on VMs."""

    def process_started(self, vm: TrueVm, attempt: VirtualAttempt) -> None: ...

    def process_ended(self, vm: TrueVm, attempt: VirtualAttempt) -> None: ...

    def tell(self, who: str, what: str) -> None: ...

    def registered(self, vm: TrueVm, instance: str) -> None: ...

    def proof_of(self, vm: TrueVm, audience: str) -> str:
        """What the VM's metadata service gives as a proof of identity."""

    def powered_off(self, vm: TrueVm) -> None:
        """The guest has shut its VM down."""


class Guest:
    """Everything inside one VM."""

    def __init__(
        self, vm: TrueVm, user_data: str, loop: VirtualLoop, network: Network, chance: Stream, watcher: Watcher,
        epoch_ms: int,
    ) -> None:  # fmt: skip
        """It boots now, at `epoch_ms`."""
        self.vm = vm
        self.loop = loop
        self.network = network
        self.chance = chance
        self.shell: VirtualShell | None = None
        self.dead = False
        told = msgspec.json.decode(user_data, type=UserData)
        self._join_token, self._plan, self._program = told.join_token, told.timer, told.program
        self._audience = told.audience
        self._timer = GuestTimer(told.timer) if told.timer.anchor else None
        self._watcher = watcher
        self._booted_ms = loop.now_ms
        self._wall_ms = epoch_ms + vm.wall_off_ms  # by its wall clock
        self._identity: Identity | None = None
        self._restarts = 0
        self._group = Group(f"agent {vm.id}")
        self._own = Group(f"supervisor {vm.id}")
        self._frost: Frost | None = None
        self._unaware = False
        self._stood_ms = 0  # for so long its clock stood still
        self.thawed_ms = -1  # when it did last
        self._alarm: asyncio.TimerHandle | None = None

    # -- the clock
    def now_ms(self) -> int:
        elapsed = self.loop.now_ms - self._booted_ms - self._stood_ms
        return elapsed + elapsed * self.vm.drift_ppm // _MILLION

    def moment_of(self, guest_ms: int) -> int:
        return self._booted_ms + self._stood_ms - (-guest_ms * _MILLION // (_MILLION + self.vm.drift_ppm))

    def wall_left_ms(self) -> int:
        """How far its first hard end is by its wall clock, which drifts from what it was at its boot."""
        return self._plan.ends_ms - (self._wall_ms + self.now_ms())

    # -- the guest timer: its supervisor's, whatever becomes of the agent
    def hear(self, word: str) -> None:
        """A word that the agent brings."""
        if self._timer is not None:
            self._timer.hear(word)

    def _watch_timer(self) -> None:
        if self.dead or self._timer is None:
            return
        left_ms = self._timer.left_ms(self.now_ms(), self.wall_left_ms())
        if left_ms <= 0:
            self._power_off("the guest timer ended")
        else:
            ends_ms = self.moment_of(self.now_ms() + left_ms)
            self._alarm = self.loop.at_ms(ends_ms, self._watch_timer, context=self._own.context)

    def replaced(self, program: str, tasks: int) -> None:
        self._watcher.tell(self.vm.id, f"its agent is {program[:8]} now, {tasks} tasks run")

    # -- its life
    def boot(self) -> None:
        """The user data runs: the timer before anything else."""
        self._watch_timer()
        self._later(_INSTALL_MS, self._start_agent)

    def die(self) -> None:
        """The VM is no more."""
        self._thaw()
        self.dead = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._stop_agent()

    @property
    def frozen(self) -> bool:
        return self._frost is not None

    def freeze(self, lasts_ms: int, *, unaware: bool) -> None:
        """The VM stands still as a whole: agent, supervisor and all that runs. What is sent to it waits. Its clock goes
        on meanwhile, as in a suspend; `unaware`: it stands still with it, as where a host stops a VM untold."""
        if self.dead or self.frozen:
            return
        self._frost = Frost(self.loop, (self._group, self._own))
        self._unaware = unaware
        self.loop.post(self.loop.now_ms + max(lasts_ms, 1), Context(), self._thaw)

    def _thaw(self) -> None:
        frost, self._frost = self._frost, None
        if frost is not None:
            stood_ms = frost.thaw(later=self._unaware)
            if self._unaware:
                self._stood_ms += stood_ms
                self.thawed_ms = self.loop.now_ms
            self._watcher.tell(self.vm.id, f"goes on after {stood_ms} ms")

    def crash_agent(self, pause_ms: int = 200) -> None:
        """The agent's process dies; the supervisor ends what it ran and starts it again, a few times."""
        if self.dead:
            return
        self._stop_agent()
        if self._restarts >= MOST_RESTARTS:
            self._power_off("the agent failed too often")
            return
        self._restarts += 1
        self._later(pause_ms, self._start_agent)

    def hang_agent(self, hang_ms: int) -> None:
        """The agent stands still, its processes do not; the supervisor sees it after `hang_ms`, or when the lease of
        what runs has ended, and starts it again."""
        if self.shell is not None and not self.shell.hung:
            by_ms = self.shell.machine.answers_by(self.now_ms())
            until_ms = self.loop.now_ms + hang_ms
            self.shell.hung = True
            self._later(
                min(until_ms, self.moment_of(by_ms) if by_ms else until_ms) - self.loop.now_ms, self.crash_agent
            )

    def notice(self, in_ms: int) -> None:
        """The VM is taken in `in_ms`: its metadata say so, and where that stops the VM, services are stopped."""
        if self.shell is not None:
            self._run(self.shell.feed, events.Noticed(in_ms))
            if self.vm.state is VmState.STOPPING:
                self._run(self.shell.feed, events.Signalled("shutdown"))

    def process_started(self, attempt: VirtualAttempt) -> None:
        self._watcher.process_started(self.vm, attempt)

    def process_ended(self, attempt: VirtualAttempt) -> None:
        self._watcher.process_ended(self.vm, attempt)

    # -- the supervisor's steps
    def _later(self, milliseconds: int, callback: Callable[[], None]) -> None:
        group = self._group
        self.loop.at_ms(self.loop.now_ms + milliseconds, self._if_same, group, callback, context=group.context)

    def _if_same(self, group: Group, callback: Callable[[], None]) -> None:
        """Unless the VM, or the agent that this was meant for, has gone meanwhile."""
        if not self.dead and group is self._group:
            callback()

    def _run(self, callback: Callable[..., None], *args: object) -> None:
        self.loop.at_ms(self.loop.now_ms, callback, *args, context=self._group.context)

    def _start_agent(self) -> None:
        self.loop.begin(self._live(), self._group, name=f"agent {self.vm.id}")

    def _stop_agent(self) -> None:
        shell, self.shell = self.shell, None
        if shell is not None:
            shell.die()
        self._group.cancel()
        self._group = Group(f"agent {self.vm.id}")

    async def _live(self) -> None:
        incarnation = f"i{self._restarts}-{self.vm.id}"[:64]
        if self._identity is None:
            try:
                self._identity = await self._register(incarnation)
            except Refused as error:
                self._power_off(str(error))
                return
            self._watcher.registered(self.vm, self._identity.instance)
        identity = replace(self._identity)
        program = Succession(self._program)  # what it was booted with, whatever took its place before a crash
        shell = self.shell = VirtualShell(
            self, self._group, identity, incarnation, self._power_off, self.own_timer, program
        )
        shell.begin(self.now_ms(), self.wall_left_ms())
        lifetime = identity.policy.lifetime_ms
        if lifetime:
            self._later(max(lifetime + LIFETIME_GRACE_MS - self.now_ms(), 1), self._outlived)

    def own_timer(self) -> GuestTimer | None:
        """The agent's, which knows how many words the supervisor's has heard."""
        return None if self._timer is None else GuestTimer(self._plan, self._timer.words)

    async def _register(self, incarnation: str) -> Identity:
        proof = self._watcher.proof_of(self.vm, self._audience)
        config = Config(url="http://dispatcher", join_token=self._join_token, vm=self.vm.id, proof=proof, work_dir="/")
        endpoint = Endpoint("dispatcher", 80, None, "", "")
        group = self._group
        return await register(
            config, endpoint, incarnation, self.now_ms(), self.chance.fraction,
            lambda text: self._watcher.tell(self.vm.id, text),
            connect=lambda _, token: VirtualChannel(self, group, token),
        )  # fmt: skip

    def _outlived(self) -> None:
        self._power_off("its lifetime is over and the agent did not end")

    def _power_off(self, reason: str) -> None:
        if not self.dead:
            self._watcher.tell(self.vm.id, f"powers off: {reason}")
            self.die()
            self._watcher.powered_off(self.vm)
