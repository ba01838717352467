"""The agent's machine with a clock of the test's own and no world around it: commands are kept, not done."""

from __future__ import annotations

import signal
from typing import Any

from cloud_dispatch.agent import events
from cloud_dispatch.agent.machine import Machine
from cloud_dispatch.wire.messages import (
    Order,
    OrderShape,
    OrderSpec,
    Policy,
    Quantities,
    Result,
    SyncReply,
    SyncRequest,
)


def order(token: int, cpus_milli: int = 1000, **fields: Any) -> Order:
    """A claim of task `token` under fencing token `token`."""
    shape = OrderShape(
        Quantities(cpus_milli, fields.pop("memory", 0), fields.pop("disk", 0), fields.pop("gpus", 0)),
        fields.pop("exclusive", False),
        fields.pop("max_per_instance", 0),
    )
    return Order(token, token, 1, OrderSpec(argv=["true"], shape=shape, **fields))


class VirtualAgent:
    """Drives one machine. `commands` holds everything it said, `requests` the syncs, `running` the tokens started,
    `lent` the GPUs that each was given."""

    def __init__(self, policy: Policy | None = None, **fields: Any) -> None:
        self.policy = policy or Policy(**{"cpus_milli": 2000, **fields})
        self.machine = Machine("inc", self.policy)
        self.now = 1_000_000
        self.commands: list[events.Command] = []
        self.requests: list[SyncRequest] = []
        self.sent_ms: dict[int, int] = {}
        self.running: dict[int, Order] = {}
        self.lent: dict[int, tuple[int, ...]] = {}
        self.feed(events.Boot())

    def feed(self, event: events.Event) -> list[events.Command]:
        out = self.machine.handle(event, self.now)
        self.commands += out
        for command in out:
            if isinstance(command, events.Sync):
                self.requests.append(command.request)
                self.sent_ms[command.request.seq] = self.now
            elif isinstance(command, events.Start):
                self.running[command.order.token] = command.order
                self.lent[command.order.token] = command.gpus
        return out

    @property
    def request(self) -> SyncRequest:
        return self.requests[-1]

    def reply(self, *claims: Order, settle: bool = True, **fields: Any) -> list[events.Command]:
        """Answer the newest request (the next one, if that is answered already); all its results are settled unless
        told otherwise."""
        self.until_request()
        settled = [result.token for result in self.request.results] if settle else []
        lease = fields.pop("lease_ms", self.policy.lease_ms)
        reply = SyncReply(self.request.seq, list(claims), settled, lease_ms=lease, **fields)
        return self.feed(events.Replied(self.request.seq, reply))

    def until_request(self) -> None:
        """Let time pass until a request is on its way."""
        for _ in range(1000):
            if self.machine.courier.outstanding is not None:
                return
            self.pass_ms(20)
        raise AssertionError("the machine says nothing")

    def fail(self, fraction: float = 0.5) -> list[events.Command]:
        self.until_request()
        return self.feed(events.Failed(self.request.seq, fraction))

    def started(self, token: int) -> list[events.Command]:
        return self.feed(events.Started(token))

    def ended(self, token: int, cause: str = "success", **fields: Any) -> list[events.Command]:
        task = self.running.pop(token).task
        return self.feed(events.Ended(Result(task, token, cause, **fields)))

    def run(self, *claims: Order) -> None:
        """Hand claims over and report that their commands started."""
        self.reply(*claims)
        for claim in claims:
            self.started(claim.token)

    def pass_ms(self, milliseconds: int) -> list[events.Command]:
        """Let time pass, with a timer event at every moment that the machine asked for."""
        until, out = self.now + milliseconds, []
        for _ in range(10_000):
            wake = self.machine.wake_at(self.now)
            if wake is None or wake > until:
                break
            self.now = wake
            out += self.feed(events.Timer())
        else:
            raise AssertionError(f"the machine asks for timers without end at {self.now}")
        self.now = until
        return out

    def kills(self, token: int) -> list[int]:
        return [int(c.signal) for c in self.commands if isinstance(c, events.Kill) and c.token == token]

    def prods(self, token: int) -> list[int]:
        return [int(c.signal) for c in self.commands if isinstance(c, events.Prod) and c.token == token]

    @property
    def end(self) -> str | None:
        last = self.commands[-1] if self.commands else None
        return last.reason if isinstance(last, events.End) else None


TERM, KILL = int(signal.SIGTERM), int(signal.SIGKILL)
