"""Spending: which hard ends VMs get, and what the budgets leave for launches. Owns the facts that the pure rules of
`cloud_dispatch.spend` decide on, and the order of what follows: first the store commits the dearer end, then the
provider is told.

Where no budget covers a VM nothing is asked: it may live as long as its pool says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import structlog

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.errors import OverBudget
from cloud_dispatch.domain.ids import InstanceId, ProfileName, VmId
from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState
from cloud_dispatch.domain.money import HOUR_MS, Rate, format_amount
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import EndRules, Pool
from cloud_dispatch.ports.executor import give_way
from cloud_dispatch.ports.store import InstanceChange, Store
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import HardEnd, Provider
from cloud_dispatch.reconcile import restored
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.settings import Settings
from cloud_dispatch.reconcile.together import Together
from cloud_dispatch.spend import clocks
from cloud_dispatch.spend.budget import Stage
from cloud_dispatch.spend.commitment import OF_PAYERS, Commitment, Key
from cloud_dispatch.spend.ends import Extension, FirstEnds, Holder, first_ends, last_tasks, renew
from cloud_dispatch.spend.grant import NO_GRANT
from cloud_dispatch.spend.instances import commitment_of, keys_of, keys_of_place
from cloud_dispatch.spend.left import Left
from cloud_dispatch.spend.stages import Reached, reached
from cloud_dispatch.spend.upcoming import Upcoming
from cloud_dispatch.spend.windows import Window

log = structlog.get_logger(__name__)
_S, _E = InstanceState, InstanceEvent
_COMING = frozenset({_S.INTENDED, _S.LAUNCHING, _S.BOOTING})
_DRAIN = frozenset({Stage.DRAIN, Stage.LIMIT})
#: So many take two milliseconds.
HOLDERS_AT_ONCE = 200
_NO_LAUNCH = _DRAIN | {Stage.NO_LAUNCH}
#: Which setting has its way though the limit is not reached.
_PAST = {Stage.NO_LAUNCH: ", past its `stop_launches`", Stage.DRAIN: ", past its `drain`"}
_UNKNOWN_POOL = EndRules()
_LEAVING = NO_GRANT | {_S.DRAINING}
_SERVING = frozenset({_S.IDLE, _S.BUSY, _S.OUT_OF_CONTACT, _S.UNKNOWN})


#: How long a guest whose timer has ended may take to be off: killing what runs, a slow end command, a slow shutdown.
GUEST_MS = 300_000

#: So many tasks of each shape are looked at to see what comes next.
MOST_UPCOMING = 256

_ESTIMATE = "; it is an estimate: let the profile's credentials read prices, or write what you pay into the profile"

#: What an operator is told of limits then.
UNSURE = (
    "the statestore came back from a backup, or another one's VMs are or were there, so that nobody knows what was"
    " spent; what was open then counts as spent until `budget reconcile`"
)


def is_unsure(store: Store) -> bool:
    """Whether a limit counts as spent now for that."""
    return any(store.unsure(span) for _, span in store.standing().present())


#: For so long a price may be taken for true: lists of prices change by the day or week, and spot has its maximum.
PRICE_GOOD_MS = 7 * 24 * HOUR_MS


def lag_ms(settings: Settings, profile: ProfileName) -> int | None:
    """How long after its hard end, by the dispatcher's clock, a VM may still bill; None where nobody keeps it, nor for
    a profile that has left."""
    if profile not in settings.providers:
        return None
    traits = settings.providers[profile].traits
    if traits.hard_end is HardEnd.NONE:
        return GUEST_MS + traits.stop_lag_ms + clocks.CLOCKS_MS if profile in settings.guest_enforced else None
    return traits.hard_end_period_ms + traits.stop_lag_ms + clocks.CLOCKS_MS


def stale_price(offering: Offering, now_ms: int) -> str:
    """Why its price can't be relied on, "" when it can: it was true too long ago, or nobody says when."""
    if offering.priced_ms + PRICE_GOOD_MS >= now_ms:
        return ""
    if not offering.priced_ms:
        return f"a limit covers it, and its driver does not say when the price of {offering.key} was true"
    age, most = format_duration((now_ms - offering.priced_ms) // HOUR_MS * HOUR_MS), format_duration(PRICE_GOOD_MS)
    why = f"a limit covers it, and the price of {offering.key} is {age} old: more than {most}"
    return why + _ESTIMATE if offering.estimated else why


def _words(one: Reached, unsure: bool = False) -> str:
    spent, limit = format_amount(one.spent), format_amount(one.budget.limit)
    if unsure and one.stage is Stage.LIMIT:
        return f"the budget {one.budget.name} of {limit} counts as spent: {UNSURE}"
    return f"{spent} of the budget {one.budget.name} of {limit} are spent{_PAST.get(one.stage, '')}"


class Spending:
    def __init__(self, context: Context) -> None:
        self._c = context
        self._extensions: Together[int] = Together(context.calls, "extend", self._told_of)
        #: The last hard end of each VM that could not be moved on, of which the log has been told.
        self._refused: dict[InstanceId, int] = {}
        #: Whether VMs may wear other ends than the store has: so it is at a start.
        self._untold = True
        self._reached: list[Reached] = []
        self._announced: dict[tuple[Key, Window, int], Stage] = {}

    @property
    def watches(self) -> bool:
        """Whether there is any limit."""
        return bool(self._c.store.limits())

    # -- launches
    def ends_of(
        self, pool: Pool, offering: Offering, now: int, heads: Upcoming | None = None, slots: int = 1
    ) -> FirstEnds:
        """The hard ends of `slots` VMs whose launch is decided at `now`. `heads`: what waits, where many are asked for
        at once."""
        machine = offering.machine(pool.name, pool.labels, reserve=pool.reserve, max_tasks=pool.max_tasks_per_instance)
        lifetime_ms, settings = pool.end.lifetime_ms, self._c.settings
        if not self._watches()(keys_of_place(pool.name, offering.profile, settings.drivers)):
            return FirstEnds(now + lifetime_ms, now + lifetime_ms, now + lifetime_ms)
        # An end that can't be moved on has to do for all that it takes at first, not for the first of it alone.
        movable, coming = settings.moves_ends(offering.profile), heads or self.heads()
        work_ms = coming.next_ms(machine) if movable else coming.fill_ms(machine, slots)
        return first_ends(now, offering.boot_ms, work_ms, lifetime_ms, settings.pace, movable=movable)

    async def left(self) -> Left | None:
        """What the budgets leave for launches, once everything that runs has been finished; None without limits."""
        if not self.watches:
            return None
        now = self._c.clock.now()
        standing = self._c.store.standing()
        return Left(standing, await self._holders(self._c.store.instances(), now), now, self._c.settings.pace)

    def take(
        self, left: Left, instances: Sequence[Instance], ends: FirstEnds, offering: Offering
    ) -> tuple[Instance, ...]:
        """Those of `instances`, which are alike and of `offering`, that can be launched, with the ends that they
        get."""
        wanted = [commitment_of(one, self._c.settings.drivers) for one in instances]
        if self._is_refused(left, wanted[0], offering):
            return ()
        taken = left.take(wanted, ends, instances[0].end_lag_ms or 0)
        admitted = tuple(instances[: taken.slots])
        if taken.ends_ms == instances[0].ends_ms:
            return admitted  # as they are: making them anew would take as long as all else here
        return tuple(replace(one, ends_ms=taken.ends_ms) for one in admitted)

    def covers(self, instance: Instance) -> bool:
        """Whether a limit covers it."""
        return not self._covered().isdisjoint(commitment_of(instance, self._c.settings.drivers).keys)

    def refusal(self, left: Left, instance: Instance, ends: FirstEnds, offering: Offering) -> str:
        """Why `take` would launch no such instance, "" where it would. Launches nothing."""
        wanted = commitment_of(instance, self._c.settings.drivers)
        if self._is_refused(left, wanted, offering):
            return left.why
        return left.refuses(wanted, ends, instance.end_lag_ms or 0)

    def _is_refused(self, left: Left, wanted: Commitment, offering: Offering) -> bool:
        """Whether nothing of it is launched whatever is left; why is noted."""
        stale = stale_price(offering, self._c.clock.now())
        if stale and not self._covered().isdisjoint(wanted.keys):
            left.why, left.too_dear = stale, Rate(0)
            return True
        stopped = self._past(wanted.keys, _NO_LAUNCH)
        if stopped is not None:
            left.why, left.too_dear = self._words(stopped), Rate(1)
            return True
        return False

    # -- what lives
    async def renew(self) -> None:
        """Move on the hard ends of what works; drain in time what the budgets refuse. What no budget covers is given
        the end that its pool has, where it had an earlier one while one did."""
        await self._set_free()
        if self.watches:
            await self._renew_watched()
        if self.watches or self._untold:
            self._untold = self._tell(self._c.store.instances().values())

    async def _set_free(self) -> None:
        store, is_watched, drivers = self._c.store, self._watches(), self._c.settings.drivers
        lives_ms = {pool.name: pool.end.lifetime_ms for pool in self._c.settings.pools.values()}
        unknown_ms = _UNKNOWN_POOL.lifetime_ms
        short = [
            row
            for row in store.instances().values()
            if row.ends_ms - row.intended_ms < lives_ms.get(row.pool, unknown_ms)
            and self._is_movable(row)
            and not is_watched(keys_of(row, drivers))
        ]
        for first in range(0, len(short), HOLDERS_AT_ONCE):
            living = [row for row in short[first : first + HOLDERS_AT_ONCE] if row.id in store.instances()]
            if not living:
                continue
            self._untold = True
            try:
                await store.change([InstanceChange(row.id, None, {"ends_ms": self.lifetime_of(row)}) for row in living])
            except OverBudget as error:  # one covers it by now
                log.info("instance.not_extended", instance=living[0].id, why=str(error))

    def _is_movable(self, row: Instance) -> bool:
        """Whether its hard end can be moved on, and is to: in a pool that left only what works needs that."""
        if not row.vm or row.state in NO_GRANT or not self._c.settings.moves_ends(row.profile):
            return False
        return row.pool in self._c.settings.pools or self._c.store.finish_of(row.id, self._c.clock.now())[0]

    async def _renew_watched(self) -> None:
        now, pace, rows = self._c.clock.now(), self._c.settings.pace, self._c.store.instances()
        standing = self._c.store.standing()
        holders = await self._holders(rows, now)
        commitments = [*(holder.commitment for holder in holders), *self._c.store.claim_commitments()]
        self._reached = reached(self._c.store.limits(), standing, commitments, now)
        self._announce()
        self._withhold()
        for holder in holders:
            # Where nobody knows what was spent a limit counts as spent, and is perhaps not: nothing new is admitted,
            # and what was admitted before goes on to the ends that it has.
            over = self._past(holder.commitment.keys, _DRAIN, sure=True)
            if over is not None:
                await self._drain(rows[InstanceId(holder.commitment.name)], self._words(over))
        await give_way()
        found = renew(standing, holders, now, pace)
        # What is to be shown yet may have used a limit up.
        for extension in () if restored.awaited(self._c, now) else found.extensions:
            await self._extend(extension, rows[InstanceId(extension.name)], now)
        for name, refusal in found.refused.items():
            row = rows[InstanceId(name)]
            if row.ends_ms - now <= pace.drain_ms or row.state is _S.IDLE:
                await self._drain(row, f"its hard end can't be moved on: {refusal}")
        if found.extensions or found.refused or self._c.store.instances() is not rows:
            rows, standing = self._c.store.instances(), self._c.store.standing()
            holders = await self._holders(rows, now)
        busy = [one for one in holders if one.movable and rows[InstanceId(one.commitment.name)].state in _SERVING]
        leaving = [one for one in holders if rows[InstanceId(one.commitment.name)].state in _LEAVING]
        soon = sum(one.is_soon_done(now, pace) for one in busy)
        upcoming = Upcoming(self._c.store.coming(min(soon, MOST_UPCOMING)))
        for name, refusal in last_tasks(standing, busy, leaving, upcoming, now, pace).items():
            await self._drain(rows[InstanceId(name)], f"another task would be cut off: {refusal}")
        for holder in holders:
            if not holder.movable and holder.ends_ms - now <= pace.drain_ms:
                await self._drain(rows[InstanceId(holder.commitment.name)], "its hard end comes and can't be moved on")

    def _words(self, one: Reached) -> str:
        return _words(one, self._c.store.unsure(one.span))

    def _announce(self) -> None:
        """Tell the operator of each stage once a window."""
        before, self._announced = self._announced, {}
        for one in self._reached:
            key = (one.budget.key, one.budget.window, one.span.start_ms)
            self._announced[key] = one.stage
            if one.stage is not Stage.CALM and before.get(key) is not one.stage:
                self._c.note(f"budget.{one.stage}", detail=self._words(one))

    def _withhold(self) -> None:
        """Of a project or a user that has come so far no task is begun any more: what runs is finished."""
        stopped = (one for one in self._reached if one.stage in _NO_LAUNCH and one.budget.key.scope in OF_PAYERS)
        self._c.store.withhold({one.budget.key: self._words(one) for one in stopped})

    def _past(self, keys: Collection[Key], stages: frozenset[Stage], *, sure: bool = False) -> Reached | None:
        """A budget of one of `keys` that has come to one of `stages`; where it has to be `sure`, by what the store
        knows."""
        past = (one for one in self._reached if one.stage in stages and one.budget.key in keys)
        return next((one for one in past if not sure or not self._c.store.unsure(one.span)), None)

    async def _extend(self, extension: Extension, row: Instance, now: int) -> None:
        if row.id not in self._c.store.instances():
            return  # gone meanwhile, and booked with the end that it had
        try:
            await self._c.store.change([
                InstanceChange(InstanceId(extension.name), None, {"ends_ms": extension.ends_ms})
            ])  # fmt: skip
        except OverBudget as error:  # of a payer of its claims, or decided on a picture that has changed since
            if self._refused.get(row.id) != row.ends_ms:
                log.info("instance.not_extended", instance=extension.name, why=str(error))
            self._refused[row.id] = row.ends_ms
            if row.ends_ms - now <= self._c.settings.pace.drain_ms:
                await self._drain(row, f"its hard end can't be moved on: {error.message}")

    async def _drain(self, row: Instance, reason: str) -> None:
        if row.state in _SERVING:
            await self._c.apply(
                row.id, _E.DRAIN, cause="budget", reason=reason, expect=frozenset({row.state}),
                drain_token=row.drain_token + 1,
            )  # fmt: skip

    def _tell(self, rows: Collection[Instance]) -> bool:
        """Have providers heed the ends that the store has, where VMs wear others; whether there are any, or may be. One
        that fails is told again by the next pass. What VMs wear that nobody has seen is waited for as long as a first
        listing is under way."""
        if self._refused:
            names = {row.id for row in rows}
            self._refused = {name: ends for name, ends in self._refused.items() if name in names}
        news: dict[ProfileName, list[tuple[VmId, int]]] = {}
        heeded_of, providers, awaited = self._c.heeded.of, self._c.settings.providers, False
        for row in rows:
            heeded = heeded_of(row.vm)
            if heeded == row.ends_ms or not row.vm or row.state is _S.TERMINATING:
                continue
            provider = providers.get(row.profile)
            if provider is None or provider.traits.hard_end is not HardEnd.EXTENDABLE:
                continue
            view = self._c.view(row.profile)
            if heeded is not None or view.listed_ms is not None or view.problem:
                news.setdefault(row.profile, []).append((row.vm, row.ends_ms))
            else:
                awaited = True
        for profile, wanted in news.items():
            self._extensions.start(profile, self._c.settings.providers[profile], wanted)
        return awaited or bool(news)

    async def _told_of(self, provider: Provider, vms: Sequence[VmId], ends_ms: int) -> None:
        try:
            missing = await provider.extend(vms, ends_ms)
        except ProviderError as error:
            log.warning("instance.extend_failed", vms=len(vms), first=vms[0], error=repr(error))
            return
        if missing:
            log.info("instance.extend_missed", vms=len(missing), first=min(missing))
        self._c.heeded.told([vm for vm in vms if vm not in missing], ends_ms, self._c.clock.monotonic())

    # -- facts
    def lifetime_of(self, row: Instance) -> int:
        """The end that its pool has for it, which is never earlier than the one that it has. What runs in a pool that
        left is finished, as all that is drained: within the lifetime that pools have where nobody says another."""
        pool = self._c.settings.pools.get(row.pool)
        end = _UNKNOWN_POOL if pool is None else pool.end
        return max(row.intended_ms + end.lifetime_ms, row.ends_ms)

    def _watches(self) -> Callable[[Collection[Key]], bool]:
        """Whether a limit covers what counts for these keys: all there is where a project or a user has one, whose
        claims may be anywhere."""
        covered = self._covered()
        if any(key.scope in OF_PAYERS for key in covered):
            return lambda keys: True
        return lambda keys: not covered.isdisjoint(keys)

    def _covered(self) -> set[Key]:
        return {budget.key for budget in self._c.store.limits()}

    async def _holders(self, rows: Mapping[InstanceId, Instance], now: int) -> list[Holder]:
        """The VMs that a limit covers. Others have turns meanwhile, so that `rows` are of before: what is decided by
        them is only proposed, and the store admits it by what is then."""
        committed, is_watched = self._c.store.committed(), self._watches()
        heads, found = self.heads(), list[Holder]()
        for number, (name, row) in enumerate(rows.items()):
            if not number % HOLDERS_AT_ONCE:
                await give_way()
            if is_watched(committed[name].keys):
                found.append(self._holder(row, committed[name], now, heads))
        return found

    def _holder(self, row: Instance, commitment: Commitment, now: int, heads: Upcoming) -> Holder:
        works, finish = self._c.store.finish_of(row.id, now)
        coming = row.state in _COMING or self._asks_first(row, now)
        if coming:
            work_ms = heads.next_ms(row.machine)
            finish = None if work_ms is None else max(row.intended_ms, now) + work_ms
        movable = self._c.settings.moves_ends(row.profile) and bool(row.vm)
        return Holder(
            commitment=commitment,
            ends_ms=row.ends_ms,
            lifetime_ms=self.lifetime_of(row),
            works=works or coming,
            wanted=works or coming or row.state in _SERVING,
            finish_ms=finish,
            slack_ms=row.end_lag_ms or 0,
            movable=movable,
            machine=row.machine,
        )

    def _asks_first(self, row: Instance, now: int) -> bool:
        """Whether it has just registered: its first question for work is on the way."""
        since = row.registered_ms
        return row.state is _S.IDLE and since is not None and now - since < self._c.settings.timing.heartbeat_ms

    def heads(self) -> Upcoming:
        """The first of each shape that waits, in the order of claims."""
        last, typical_ms = self._c.last, self._c.store.typical_ms
        demand = [item for item in last[0].demand if item.count and not item.withheld] if last else []
        demand.sort(key=lambda item: (-item.priority, item.oldest_ms))
        return Upcoming(
            [(item.shape, item.head_expected_ms or item.expected_ms or typical_ms(item.shape)) for item in demand],
            [(item.count, item.expected_ms) for item in demand],
        )
