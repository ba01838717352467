"""The claims that the agent holds. Owns where each one stands, and which waiting one may start in the room there is.

Knows no dispatcher and no clock: moments are passed in. Room is counted from what runs, never from what waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Set, Tuple  # noqa: UP035

from cloud_dispatch.agent.devices import lend
from cloud_dispatch.wire.messages import HeldClaim, Order, OrderShape, Policy, Result

#: An agent never asks for more claims than this at once, whatever its size.
MOST_CLAIMS = 256
#: One berth in so many, and at least two, are for health checks and for what has ended and is being cleaned up after.
_HELD_BACK = 16


def most_claims(berths: int) -> int:
    """How many claims an agent may hold that is lent so many `berths`, 0 where it needs none."""
    if not berths:
        return MOST_CLAIMS
    return max(min(MOST_CLAIMS, berths - max(berths // _HELD_BACK, 2)), 1)


@dataclass
class Attempt:
    """A claim that was given to the shell. `started_ms` None until its command runs; `vacant` once nothing of it lives.

    `kill_cause` not empty: it was told to end, for that cause (`killed_vacant`: when it was vacant already). `kill_at`
    is when SIGKILL follows, `stuck_at` when the agent stops believing that it can be killed at all. `warned`: it was
    told that its VM goes. `gpus`: those that it is lent until it is vacant.
    """

    order: Order
    started_ms: Optional[int] = None
    ran_ms: int = -1
    vacant: bool = False
    kill_cause: str = ""
    killed_vacant: bool = False
    kill_at: Optional[int] = None
    stuck_at: Optional[int] = None
    stuck: bool = False
    warned: bool = False
    gpus: Tuple[int, ...] = ()


@dataclass
class Taken:
    """What the attempts that are not vacant take: so many `tasks`, of which `exclusive` want the instance alone."""

    cpus_milli: int = 0
    memory: int = 0
    disk: int = 0
    gpus: int = 0
    tasks: int = 0
    exclusive: int = 0

    def count(self, shape: OrderShape, tasks: int) -> None:
        """So many `tasks` of `shape` more, or fewer if negative."""
        want = shape.resources
        self.cpus_milli += tasks * want.cpus_milli
        self.memory += tasks * want.memory
        self.disk += tasks * want.disk
        self.gpus += tasks * want.gpus
        self.tasks += tasks
        self.exclusive += tasks if shape.exclusive else 0


@dataclass
class Room:
    """What is free now. `slots`: how many more tasks at most."""

    cpus_milli: int
    memory: int
    disk: int
    gpus: int
    slots: int


@dataclass
class Waiting:
    order: Order
    since_ms: int


@dataclass
class Claims:
    """All claims of the agent by token, in order of arrival: `waiting` to start, `running`, and `results` to settle.

    `untold` are those running whose start no request has told yet; `bounded` are the tokens of those running that more
    than the lease bounds: their run time is limited, or they were told to end. What joins or leaves `running`, or falls
    vacant, is counted in `taken` then: so nothing walks through all that runs to know its room. `most`: how many there
    may be, those included that are vacant and still bring their outputs away.
    """

    waiting: Dict[int, Waiting] = field(default_factory=dict)
    running: Dict[int, Attempt] = field(default_factory=dict)
    results: Dict[int, Result] = field(default_factory=dict)
    untold: Dict[int, Attempt] = field(default_factory=dict)
    bounded: Set[int] = field(default_factory=set)
    taken: Taken = field(default_factory=Taken)
    smallest_milli: int = 1000
    most: int = MOST_CLAIMS

    def knows(self, token: int) -> bool:
        return token in self.running or token in self.waiting or token in self.results

    @property
    def holds(self) -> bool:
        """Whether there is any claim without a result."""
        return bool(self.running or self.waiting)

    def held(self, now_ms: int) -> List[HeldClaim]:
        """The running set for a sync: everything held, results excluded."""
        claims = []
        for token, attempt in self.running.items():
            began_ms = attempt.started_ms
            claims.append(HeldClaim(attempt.order.task, token, -1 if began_ms is None else max(now_ms - began_ms, 0)))
        for token, waiting in self.waiting.items():
            claims.append(HeldClaim(waiting.order.task, token))
        return claims

    def accept(self, order: Order, now_ms: int) -> None:
        self.waiting[order.token] = Waiting(order, now_ms)
        self.smallest_milli = min(self.smallest_milli, max(order.spec.shape.resources.cpus_milli, 0))

    def finish(self, result: Result) -> None:
        """Keep `result` until it is settled; its claim is no longer held."""
        attempt = self.running.pop(result.token, None)
        if attempt is not None:
            self.vacate(attempt)
            self.untold.pop(result.token, None)
            self.bounded.discard(result.token)
        self.waiting.pop(result.token, None)
        self.results[result.token] = result

    def vacate(self, attempt: Attempt) -> None:
        """Nothing of it lives any more: its room is free."""
        if not attempt.vacant:
            attempt.vacant = True
            self.taken.count(attempt.order.spec.shape, -1)

    def starts_told(self) -> None:
        """A request tells of every start so far."""
        if self.untold:
            self.untold = {token: attempt for token, attempt in self.untold.items() if attempt.started_ms is None}

    def release(self, token: int, detail: str) -> None:
        """Hand a waiting claim back unstarted: it costs its task no attempt."""
        task = self.waiting[token].order.task
        self.finish(Result(task, token, "released", detail=detail))

    def active(self) -> List[Attempt]:
        """The attempts that take room."""
        return [attempt for attempt in self.running.values() if not attempt.vacant]

    def room(self, policy: Policy) -> Room:
        """What is free. A capacity of 0 in the policy is no limit, except of GPUs, which are only there if counted."""
        taken = self.taken
        by_count = min((policy.max_tasks_at_once or self.most) - taken.tasks, self.most - len(self.running))
        return Room(
            (policy.cpus_milli or _ENDLESS) - taken.cpus_milli,
            (policy.memory or _ENDLESS) - taken.memory,
            (policy.disk or _ENDLESS) - taken.disk,
            policy.gpus - taken.gpus,
            0 if taken.exclusive else max(by_count, 0),
        )

    def open_slots(self, policy: Policy) -> int:
        """How many more tasks of the smallest size seen could start now, what already waits counted off. Where less is
        free, one: the dispatcher knows what fits, and a smaller one may never have been seen."""
        taken, smallest = self.taken, self.smallest_milli or 1
        free = (policy.cpus_milli or _ENDLESS) - taken.cpus_milli
        if taken.exclusive or free <= 0:
            return 0
        by_count = (policy.max_tasks_at_once or self.most) - taken.tasks
        unheld = self.most - len(self.running)
        return max(min(by_count, max(free // smallest, 1), unheld) - len(self.waiting), 0)

    def admit(self, policy: Policy) -> List[Attempt]:
        """Move every waiting claim that fits to `running`, oldest first, and return these attempts.

        One that does not fit lets later ones pass, except one that wants the instance to itself: it would never start.
        """
        if not self.waiting:
            return []
        room = self.room(policy)
        admitted: List[Attempt] = []
        for token, waiting in list(self.waiting.items()):
            shape = waiting.order.spec.shape
            if room.slots <= 0 or room.cpus_milli < self.smallest_milli:
                break
            if not self._fits(shape, room):
                if shape.exclusive:
                    break
                continue
            del self.waiting[token]
            attempt = Attempt(waiting.order)
            if shape.resources.gpus > 0:
                attempt.gpus = lend(shape.resources.gpus, policy.gpus, self._lent())
            self.running[token] = self.untold[token] = attempt
            if waiting.order.spec.max_runtime_ms:
                self.bounded.add(token)
            self.taken.count(shape, 1)
            admitted.append(attempt)
            room = self.room(policy)
        return admitted

    def _lent(self) -> Set[int]:
        """The GPUs that are not free. An attempt that a program of a former version has started was lent none and sees
        them all: such attempts are taken to use the first, as programs do, as many as they ask for together."""
        lent: Set[int] = set()
        untold = 0
        for attempt in self.active():
            lent.update(attempt.gpus)
            untold += 0 if attempt.gpus else attempt.order.spec.shape.resources.gpus
        return lent.union(range(untold))

    def _fits(self, shape: OrderShape, room: Room) -> bool:
        want = shape.resources
        if room.slots <= 0 or (shape.exclusive and self.taken.tasks):
            return False
        if shape.max_per_instance:
            alike = sum(1 for attempt in self.active() if attempt.order.spec.shape == shape)
            if alike >= shape.max_per_instance:
                return False
        return (
            want.cpus_milli <= room.cpus_milli
            and want.memory <= room.memory
            and want.disk <= room.disk
            and want.gpus <= room.gpus
        )


_ENDLESS = 1 << 62


def misfit(shape: OrderShape, policy: Policy) -> str:
    """Why even an empty instance under `policy` can't run `shape`, or ""."""
    for name in ("cpus_milli", "memory", "disk", "gpus"):
        asked, there = getattr(shape.resources, name), getattr(policy, name)
        if asked > there and (there or name == "gpus"):
            return "asks for %d %s, the instance has %d" % (asked, name, there)
    return ""
