"""An independent judge of plans: slow, task by task, with the domain's own `room_for`. Owns no planning.

`complaints` lists every rule that a plan breaks, so that a property says which one, and so that a test can plant a
broken plan and see the right complaint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.domain.shape import Load, Machine, Shape, room_for
from cloud_dispatch.planner.plan import Drain, Launch, Plan, Terminate
from cloud_dispatch.planner.snapshot import DemandItem, Snapshot, Supply
from tests.planner.scenes import launches, machine_of

_S = InstanceState


def complaints(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Every rule that `plan` breaks for `snapshot`."""
    return [
        *_caps(snapshot, plan),
        *_counts(snapshot, plan),
        *_places(snapshot, plan),
        *_drains(snapshot, plan),
        *_terminations(snapshot, plan),
        *_stopped(snapshot, plan),
        *_reasons(snapshot, plan),
        *_satisfiable(snapshot, plan),
        *_price(snapshot, plan),
    ]


def _caps(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    rows = [(s.pool, s.profile, s.vcpus) for s in snapshot.supply if s.state is not _S.GONE]
    before = list(rows)
    for action in launches(plan):
        rows += [(action.pool, action.offering.profile, action.offering.type.vcpus)] * action.slots
    levels: list[tuple[str, Caps, int | None, str]] = [("all", snapshot.caps, None, "")]
    levels += [(f"profile {name}", caps, 1, name) for name, caps in snapshot.profile_caps]
    levels += [(f"pool {pool.name}", pool.caps, 0, pool.name) for pool in snapshot.pools]
    together = {bounds.driver: bounds for bounds in snapshot.driver_caps}
    levels += [(f"driver {name}", bounds.caps, -1, name) for name, bounds in together.items()]
    for name, caps, column, value in levels:
        if column == -1:
            now = [row for row in rows if row[1] in together[value].profiles]
            was = [row for row in before if row[1] in together[value].profiles]
        else:
            now = [row for row in rows if column is None or row[column] == value]
            was = [row for row in before if column is None or row[column] == value]
        if caps.instances is not None and len(now) > max(caps.instances, len(was)):
            yield f"{name} has {len(now)} instances, cap {caps.instances}"
        used, had = sum(row[2] for row in now), sum(row[2] for row in was)
        if caps.vcpus is not None and used > max(caps.vcpus, had):
            yield f"{name} has {used} vcpus, cap {caps.vcpus}"


def _counts(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    wanted = {pool.name: pool.minimum for pool in snapshot.pools}
    for target in snapshot.targets:
        wanted[target.pool] = max(wanted.get(target.pool, 0), target.count)
    tasks = sum(item.count for item in snapshot.demand if item.gang_size <= 1)
    slots = sum(action.slots for action in launches(plan))
    if slots > tasks + sum(wanted.values()):
        yield f"{slots} instances for {tasks} tasks"
    largest = dict(snapshot.max_batch)
    for action in launches(plan):
        for rented in (action.offering, *action.alternatives):
            if not 1 <= action.slots <= largest.get(rented.profile, 1):
                yield f"a batch of {action.slots} at {rented.key}"
    if snapshot.stop.launches and slots:
        yield "launches while stopped"


def _places(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    for action in launches(plan):
        pool = next(pool for pool in snapshot.pools if pool.name == action.pool)
        for rented in (action.offering, *action.alternatives):
            if not pool.admits(rented) or rented.profile in snapshot.silent:
                yield f"{rented.key} is not for pool {pool.name} now"
            holding = [block for block in snapshot.blocked if block.until_ms > snapshot.now_ms and block.is_for(pool)]
            if any(block.covers(rented) for block in holding):
                yield f"{rented.key} is blocked"
            if rented is not action.offering and rented.key == action.offering.key:
                yield f"{rented.key} is its own alternative"


def _drains(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    rows = {supply.instance: supply for supply in snapshot.supply}
    pools = {pool.name: pool for pool in snapshot.pools}
    gone: dict[str, int] = {}
    replaced: dict[str, int] = {}
    seen: set[str] = set()
    for action in plan.actions:
        if not isinstance(action, Drain):
            continue
        row = rows[action.instance]
        if row.instance in seen:
            yield f"{row.instance} is drained twice"
        seen.add(row.instance)
        if row.behaviour is Behaviour.HOLD:
            yield f"{row.instance} is held and drained"
        if action.cause in ("idle", "surplus", "turn", "lifetime", "price", "oversized", "overpriced"):
            of = replaced if action.cause in ("lifetime", "price") else gone
            of[row.pool] = of.get(row.pool, 0) + 1
            if not all(t.may_drain for t in snapshot.targets if t.pool == row.pool):
                yield f"pool {row.pool} must not be lowered"
            if action.cause == "oversized":
                yield from _oversized(snapshot, row, pools[row.pool])
            elif action.cause == "overpriced":
                yield from _overpriced(snapshot, plan, row, pools[row.pool])
            elif action.cause == "turn":
                yield from _turn(snapshot, row, pools)
            elif row.load.tasks or row.state is not _S.IDLE:
                yield f"{row.instance} is drained with work or not idle"
            if snapshot.unknowns:
                yield f"{row.instance} is drained while instances are unknown"
            due = row.asks_end or snapshot.now_ms - (row.idle_since_ms or 0) >= pools[row.pool].end.idle_ms
            if action.cause == "idle" and not due:
                yield f"{row.instance} is drained before its timeout"
            if action.cause in ("lifetime", "price") and not row.declines:
                yield f"{row.instance} is not too old or too dear for anything"
        elif action.cause == "stale" and not row.stale and row.pool in pools:
            yield f"{row.instance} is not stale"
        elif action.cause == "behaviour" and row.behaviour is not Behaviour.DRAIN:
            yield f"nobody wants {row.instance} drained"
        elif action.cause == "stopped" and not snapshot.stop.drains:
            yield f"{row.instance} is drained, and nothing is stopped"
    for name, count in gone.items():
        pool = next(p for p in snapshot.pools if p.name == name)
        wanted = max([pool.minimum, *(t.count for t in snapshot.targets if t.pool == name)])
        ready = (_S.IDLE, _S.BUSY, _S.INTENDED, _S.LAUNCHING, _S.BOOTING, _S.OUT_OF_CONTACT, _S.UNKNOWN)
        serving = sum(s.pool == name and s.state in ready for s in snapshot.supply)
        if serving - count - replaced.get(name, 0) < wanted:
            yield f"pool {name} falls below {wanted}"
    waiting = sum(item.count for number, item in enumerate(snapshot.demand) if not item.withheld)
    if sum(replaced.values()) > waiting:
        yield f"{sum(replaced.values())} are replaced for {waiting} tasks"


def _oversized(snapshot: Snapshot, row: Supply, pool: Pool) -> Iterator[str]:
    """What is said of one that goes on working is true, and something cheaper can do what it does."""
    if row.state is not _S.BUSY or row.stays.tasks:
        yield f"{row.instance} is drained for its size, and idles, or works for long"
    if row.slack_since_ms is None or snapshot.now_ms - row.slack_since_ms < pool.end.idle_ms:
        yield f"{row.instance} is drained for its size, and was of use"
    if _waiting_for(snapshot, row):
        yield f"{row.instance} is drained for its size, and what waits could use it"
    machines = [machine for _, machine in _cheaper(snapshot, row)]
    smaller = [
        one for one in machines if one.capacity.fits(row.machine.capacity) and one.capacity != row.machine.capacity
    ]
    if not any(all(room_for(machine, Load(), shape, 1) for shape in row.shapes) for machine in smaller):
        yield f"{row.instance} is drained for its size, and nothing cheaper runs what it does"


def _overpriced(snapshot: Snapshot, plan: Plan, row: Supply, pool: Pool) -> Iterator[str]:
    """Nothing that runs there or waits for it needs it, a cheaper spot VM runs all of that, and others stay."""
    if row.state is not _S.BUSY or row.stays.tasks:
        yield f"{row.instance} is drained for its price, and idles, or works for long"
    if row.spot_since_ms is None or snapshot.now_ms - row.spot_since_ms < pool.end.idle_ms:
        yield f"{row.instance} is drained for its price, and was needed"
    waiting = _waiting_for(snapshot, row)
    wanted = [*row.shapes, *(item.shape for item in waiting)]
    machines = [machine for market, machine in _cheaper(snapshot, row) if market is Market.SPOT]
    if not any(all(room_for(machine, Load(), shape, 1) for shape in wanted) for machine in machines):
        yield f"{row.instance} is drained for its price, and nothing cheaper runs what it does"
    going = {a.instance for a in plan.actions if isinstance(a, Drain) and a.cause != "overpriced"}
    leaving = (_S.DRAINING, _S.DRAINED, _S.FAILED, _S.LOST, _S.TERMINATING)
    staying = [s for s in snapshot.supply if s.state not in leaving and s.instance not in going]
    full = snapshot.caps.instances is not None and len(staying) >= snapshot.caps.instances
    like = [
        s for s in snapshot.supply if (s.pool, s.market) == (row.pool, row.market) and s.state in (_S.IDLE, _S.BUSY)
    ]
    if full and len(like) < 2:
        yield f"{row.instance} is drained for its price, and was the last on demand"
    if full and sum(item.count / room_for(row.machine, Load(), item.shape, 10_000) for item in waiting) < 1:
        yield f"{row.instance} is drained for its price, and too little waits for another one"


def _waiting_for(snapshot: Snapshot, row: Supply) -> list[DemandItem]:
    """What waits that it could run by itself, and is given."""
    return [
        item
        for number, item in enumerate(snapshot.demand)
        if item.count and item.gang_size <= 1 and not item.withheld and number not in row.declines
        and room_for(row.machine, Load(), item.shape, 1)
    ]  # fmt: skip


def _cheaper(snapshot: Snapshot, row: Supply) -> list[tuple[Market, Machine]]:
    """What costs less, of whatever size, and on which market."""
    return [
        (rented.market, machine_of(snapshot.pools, other.name, rented))
        for other in snapshot.pools
        for rented in snapshot.offerings
        if other.admits(rented) and rented.rate is not None and row.rate is not None and rented.rate < row.rate
    ]


def _turn(snapshot: Snapshot, row: Supply, pools: Mapping[PoolName, Pool]) -> Iterator[str]:
    """Something that it can't run comes before all that waits for it: by its priority, or, where nothing can run it, by
    its age."""
    if row.state is not _S.BUSY or row.profile in snapshot.silent or row.stale:
        yield f"{row.instance} makes way for others, and does not work as usual"
    if row.stays.tasks and row.load.tasks > 1:
        yield f"{row.instance} makes way for others, and works for long"
    waiting = [
        (-item.priority, item.oldest_ms, number)
        for number, item in enumerate(snapshot.demand)
        if item.gang_size <= 1 and not item.withheld and _starting(snapshot, item.shape, {number}) < item.count
    ]
    rivals = [key for key in waiting if _runs(row, snapshot, key[2])]
    # what may start now by itself may not beside the others: then it is a rival, which is no reason against a turn here
    able = [
        -item.priority for number, item in enumerate(snapshot.demand) if item.count and _runs(row, snapshot, number)
    ]
    for key in waiting:
        urgency, oldest_ms, number = key
        if key in rivals:
            continue
        if max(able, default=urgency) > urgency and all(rival[0] > urgency for rival in rivals):
            return
        waited_ms = snapshot.now_ms - oldest_ms if oldest_ms else 0
        least_ms = min(waited_ms, snapshot.now_ms - row.intended_ms)
        longest = least_ms >= pools[row.pool].target_drain_ms and all(rival > key for rival in rivals)
        ready = (s for s in snapshot.supply if s.state in (_S.IDLE, _S.BUSY) and s.behaviour is Behaviour.RUN)
        if longest and not any(_runs(s, snapshot, number) for s in ready if not s.stale and s.pool in pools):
            return
    yield f"{row.instance} makes way for others before it is their turn"


def _runs(row: Supply, snapshot: Snapshot, number: int) -> bool:
    return number not in row.declines and room_for(row.machine, Load(), snapshot.demand[number].shape, 1) > 0


def _terminations(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    rows = {supply.instance: supply for supply in snapshot.supply}
    for action in plan.actions:
        if isinstance(action, Terminate):
            row = rows[action.instance]
            if action.cause == "stopped":
                if not snapshot.stop.drains:
                    yield f"{row.instance} is terminated, and nothing is stopped"
            elif row.state not in (_S.DRAINED, _S.FAILED, _S.LOST) or row.profile in snapshot.silent:
                yield f"{row.instance} is terminated while {row.state}"


def _stopped(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Nothing goes on that an operator has stopped: not one instance is forgotten, and none is ended too much."""
    ended = {action.instance for action in plan.actions if isinstance(action, Terminate)}
    drained = {action.instance for action in plan.actions if isinstance(action, Drain)}
    for row in snapshot.supply:
        held = row.behaviour is Behaviour.HOLD
        if snapshot.stop.terminates:
            if row.state not in (_S.INTENDED, _S.LAUNCHING, _S.TERMINATING) and row.instance not in ended:
                yield f"{row.instance} is not ended although everything is"
        elif snapshot.stop.drains and not held:
            if row.state is _S.BOOTING and row.instance not in ended:
                yield f"{row.instance} goes on booting although everything is drained"
            if row.state in (_S.IDLE, _S.BUSY, _S.OUT_OF_CONTACT) and row.instance not in drained:
                yield f"{row.instance} is not drained although everything is"
        elif held and row.instance in ended:
            yield f"{row.instance} is held and ended"


def _reasons(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    for said in (*plan.actions, *plan.waiting, *plan.unsatisfiable, *plan.shortfalls):
        if not said.reason.strip():
            yield f"no reason: {said}"
    spoken = {w.shape for w in plan.waiting} | {u.shape for u in plan.unsatisfiable}
    for item in snapshot.demand:
        if item.count and item.shape not in spoken and _starting(snapshot, item.shape) < item.count:
            yield f"nothing is said of {item.shape.describe()}"


def _starting(snapshot: Snapshot, shape: Shape, of: Collection[int] = ()) -> int:
    """At most so many tasks of `shape` can start now, of all its demand or of that with the numbers `of`."""
    ready = (_S.IDLE, _S.BUSY, _S.OUT_OF_CONTACT, _S.UNKNOWN)
    numbers = set(of) or {number for number, item in enumerate(snapshot.demand) if item.shape == shape}
    able = [s for s in snapshot.supply if s.state in ready and not numbers <= set(s.declines)]
    return sum(room_for(s.machine, s.load, shape, 1 << 40) for s in able)


def _satisfiable(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    for verdict in plan.unsatisfiable:
        for pool in snapshot.pools:
            for rented in snapshot.offerings:
                machine = machine_of(snapshot.pools, pool.name, rented)
                if pool.admits(rented) and room_for(machine, Load(), verdict.shape, 1):
                    yield f"{rented.key} can run {verdict.shape.describe()}"


def one_each(snapshot: Snapshot, shape: Shape) -> int | None:
    """The lowest rate at which one task of `shape` gets an instance of its own; None where none may be had."""
    rates = [
        rented.rate
        for pool in snapshot.pools
        for rented in snapshot.offerings
        if rented.rate is not None and _may_rent(snapshot, pool, rented)
        and room_for(machine_of(snapshot.pools, pool.name, rented), Load(), shape, 1)
    ]  # fmt: skip
    return min(rates, default=None)


def _may_rent(snapshot: Snapshot, pool: Pool, rented: object) -> bool:
    return pool.admits(rented)  # type: ignore[arg-type]


def _price(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Without caps, blocks, targets, preemptions and unknown prices: never dearer than an instance for each task. Where
    boots must be worth their while a cheap slow one may be, so that the bound says nothing there."""
    worth = any(pool.min_work_per_boot_percent for pool in snapshot.pools)
    if worth and any(item.expected_ms for item in snapshot.demand):
        return
    limited = snapshot.caps != Caps() or any(caps != Caps() for _, caps in snapshot.profile_caps)
    limited = limited or any(bounds.caps != Caps() for bounds in snapshot.driver_caps)
    limited = limited or any(pool.caps != Caps() or pool.minimum for pool in snapshot.pools)
    if limited or snapshot.blocked or snapshot.silent or snapshot.targets or snapshot.preemptions:
        return
    rented = [action for action in launches(plan) if isinstance(action, Launch)]
    if any(action.offering.rate is None for action in rented):
        return
    total = sum((action.offering.rate or 0) * action.slots for action in rented)
    singles = [(item.count, one_each(snapshot, item.shape)) for item in snapshot.demand]
    bound = sum(count * rate for count, rate in singles if rate is not None)
    if total > bound:
        yield f"launches at {total}, one instance a task would be {bound}"
