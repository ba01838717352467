"""Breakers at work. Owns the facts that `spend.breaker` judges (what is gone, what lives, what an operator has reset)
and what follows: offerings that are blocked, launches that are cut, events.

Nothing is kept here that matters: after a restart the ledger and the living rows say the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cloud_dispatch.domain.errors import NotFound
from cloud_dispatch.domain.ids import InstanceId, PoolName
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.snapshot import Blocked
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.store import Store
from cloud_dispatch.reconcile.contacts import Contacts
from cloud_dispatch.spend.breaker import (
    MINUTE_MS,
    Breaker,
    Kind,
    News,
    Recipe,
    admitted,
    is_used_up,
    judged,
    known_by,
    most_of,
)
from cloud_dispatch.spend.instances import boot_at_risk

_FACT = "breaker-reset:"
#: What was reckoned of VMs that are gone is forgotten when there is so much of it.
_KEPT = 1_000
#: So much is told of why one ended.
_WHY_LENGTH = 600
#: Rows by profile, template, image and zone: what they were made from, and where.
_Rows = dict[tuple[str, str, str, str], list[Instance]]


class Turn(NamedTuple):
    """A breaker that has opened (again), or closed."""

    recipe: Recipe
    breaker: Breaker
    opened: bool


def recipe_of(row: Instance, kind: Kind) -> Recipe:
    """What `row` was made from."""
    pool = row.pool if kind is Kind.FUTILITY else PoolName("")
    return Recipe(kind, row.profile, row.template, row.image, row.zone, pool)


class Breakers:
    def __init__(
        self, store: Store, clock: Clock, contacts: Contacts, pools: Callable[[], Mapping[PoolName, Pool]]
    ) -> None:
        self._store = store
        self._clock = clock
        self._contacts = contacts
        self._pools = pools
        #: Those that have opened, by the moment when they did; None before the first look.
        self._known: dict[Recipe, int] | None = None
        self._at_risk: dict[InstanceId, Amount] = {}
        #: Of each recipe's last failure why it ended: such as the health check that failed, and how.
        self._ends: dict[InstanceId, str] = {}
        self._looked: Mapping[InstanceId, Instance] | None = None  # at these instances, which are sorted in `_made`
        self._made: _Rows = {}

    # -- why
    async def learn(self) -> None:
        """Look up why the last failure of each recipe ended, for all who are told of its breaker."""
        past, before = self._store.past(), self._ends
        lasts = {past.of(recipe).failures[-1].instance for recipe in past.failing}
        self._ends = {last: before[last] if last in before else await self._end_of(last) for last in sorted(lasts)}

    async def _end_of(self, instance: InstanceId) -> str:
        try:
            row = await self._store.instance(instance)
        except NotFound:  # its row was not kept so long
            return ""
        return " ".join(row.reason.split())[:_WHY_LENGTH]

    def describe(self, recipe: Recipe, breaker: Breaker) -> str:
        """Why `breaker` stands as it does, and why the last one ended."""
        end = self._ends.get(breaker.last, "")
        return breaker.describe(recipe) + (f"; the last, {breaker.last}: {end}" if end else "")

    # -- what follows
    def blocked(self) -> tuple[Blocked, ...]:
        """What is not launched now, for the planner and for people."""
        now = self._clock.now()
        found = []
        for recipe, breaker, rows in self._tripped(now):
            why = self.describe(recipe, breaker)
            if breaker.is_open(now):
                found.append(_block(recipe, breaker.until_ms, f"{why}; one VM is tried after that"))
            elif trial := self._trial(recipe, breaker, rows):
                until = max(trial.boot_deadline_ms if recipe.kind is Kind.BOOT else 0, now + MINUTE_MS)
                found.append(_block(recipe, until, f"{why}; {trial.id} is tried, no other before it has shown itself"))
        return tuple(found)

    def admits(self, one: Instance, wanted: int, rows: Collection[Instance]) -> tuple[int, str]:
        """How many of `wanted` VMs like `one` may be launched besides `rows`, and what stands in the way of more."""
        now, failing = self._clock.now(), self._store.past().failing
        boots, services = recipe_of(one, Kind.BOOT), recipe_of(one, Kind.FUTILITY)
        booting = self._booting(one, rows, now)
        allowance, each = self._allowance(boots), boot_at_risk(one, now)
        breaker = Breaker() if boots not in failing else self._judged(boots, _made_from(boots, rows), now)
        slots = admitted(breaker, allowance, booting, each, wanted, now)
        if slots < wanted and not breaker.trips:  # then it matters how many have registered
            breaker = self._judged(boots, _made_from(boots, rows), now)
            slots = admitted(breaker, allowance, booting, each, wanted, now)
        if slots <= 0:
            what = self.describe(boots, breaker) if breaker.failures else f"{boots}: nothing of it has failed yet"
            return 0, f"{what}; {len(booting)} boot, as many as its allowance bears"
        if services in failing:
            made = _made_from(services, rows)
            breaker = self._judged(services, made, now)
            if breaker.trips:
                waits = breaker.is_open(now) or self._trial(services, breaker, made) is not None
                return (0, self.describe(services, breaker)) if waits else (1, "")
        return slots, ""

    def _booting(self, one: Instance, rows: Iterable[Instance], now: int) -> list[int]:
        """What those of `rows` may burn that are made as `one` is and have not registered. Asked for every launch of
        a plan, of every row: what one may burn until its deadline is always the same."""
        template, image, zone, profile = one.template, one.image, one.zone, one.profile
        found: list[int] = []
        for row in rows:
            if row.registered_ms is None and row.zone == zone and row.template == template:
                if row.image == image and row.profile == profile:
                    amount = self._at_risk.get(row.id) if now <= row.boot_deadline_ms else boot_at_risk(row, now)
                    if amount is None:
                        amount = self._at_risk[row.id] = boot_at_risk(row, now)
                    found.append(amount)
        return found

    def turned(self) -> Sequence[Turn]:
        """Breakers that have opened or closed since the last look; the first look finds nothing new."""
        if len(self._at_risk) > 2 * len(self._store.instances()) + _KEPT:
            self._at_risk.clear()
        if self._known == {} and not self._store.past().failing:
            return ()
        now = self._clock.now()
        tripped = {recipe: breaker for recipe, breaker, _ in self._tripped(now)}
        before, self._known = self._known, {recipe: breaker.opened_ms for recipe, breaker in tripped.items()}
        if before is None:
            return ()
        opened = [Turn(r, b, True) for r, b in tripped.items() if before.get(r) != b.opened_ms]
        return [*opened, *(Turn(recipe, Breaker(), False) for recipe in before if recipe not in tripped)]

    # -- for people
    def listing(self) -> list[dict[str, Any]]:
        """Every recipe with failures since its last success, JSON-ready; amounts in micro-dollars."""
        now = self._clock.now()
        found = []
        for recipe, breaker, rows in self._all(now):
            if breaker.failures:
                state = "open" if breaker.is_open(now) else "half-open" if breaker.trips else "closed"
                trial = self._trial(recipe, breaker, rows) if state == "half-open" else None
                found.append({
                    "name": recipe.name, "kind": str(recipe.kind), "state": state, "pool": recipe.pool,
                    "profile": recipe.profile, "template": recipe.template, "image": recipe.image,
                    "zone": recipe.zone, "burnt": breaker.burnt, "allowance": self._allowance(recipe),
                    "failures": breaker.failures, "trips": breaker.trips,
                    "until_ms": breaker.until_ms if breaker.trips else None,
                    "trial": trial.id if trial else None, "last_failure": breaker.last,
                    "reason": self.describe(recipe, breaker),
                })  # fmt: skip
        return found

    def tripped(self) -> dict[str, int]:
        """By kind, how many are not closed."""
        counts = dict.fromkeys(map(str, Kind), 0)
        for recipe, _, _ in self._tripped(self._clock.now()):
            counts[str(recipe.kind)] += 1
        return counts

    async def reset(self, name: str) -> None:
        """What has happened until now does not count any more for the breaker `name`, "" for all of them. Durable.
        NotFound where nothing of that name has failed."""
        recipes = [one for one in self._store.past().failing if name in ("", one.name)]
        if name and not recipes:
            raise NotFound(f"there is no breaker {name}", hint="`cloud-dispatch breakers list` names them")
        for recipe in sorted(recipes):
            await self._store.set_fact(_FACT + recipe.name, str(self._clock.now()))

    # -- facts
    def _tripped(self, now: int) -> list[tuple[Recipe, Breaker, Sequence[Instance]]]:
        return [one for one in self._all(now, self._is_closed) if one[1].trips]

    def _all(
        self, now: int, closed: Callable[[Recipe], bool] = lambda recipe: False
    ) -> list[tuple[Recipe, Breaker, Sequence[Instance]]]:
        """Every recipe of which something has failed, without those that are `closed` anyway."""
        failing = self._store.past().failing
        asked = sorted(recipe for recipe in failing if not closed(recipe) and self._pools_of(recipe))
        return [
            (recipe, self._judged(recipe, rows, now), rows) for recipe in asked for rows in (self._living_of(recipe),)
        ]

    def _is_closed(self, recipe: Recipe) -> bool:
        """Whether what has failed since one of it last succeeded comes to less than the allowance: then the breaker is
        closed, whatever came before. In a fleet that works this is soon told, and told for every pass: mostly all that
        has ever failed comes to less, and only else the living rows are asked."""
        past = self._store.past()
        failures = past.of(recipe).failures
        if self._is_borne(recipe, failures):
            return True
        latest_ms = known_by(self._clock.now())
        living = self._living(recipe, self._living_of(recipe))
        last_ms = max((at_ms for at_ms in living if at_ms <= latest_ms), default=-1)
        if last_ms > past.failing[recipe]:
            return True
        return self._is_borne(recipe, [news for news in failures if news.at_ms >= last_ms])

    def _is_borne(self, recipe: Recipe, failures: Sequence[News]) -> bool:
        """Whether they come to less than what opens a breaker."""
        costs = [news.amount for news in failures]
        most = most_of(recipe.kind)
        return not is_used_up(self._allowance(recipe), most, sum(costs), len(costs), costs.count(0))

    def _living_of(self, recipe: Recipe) -> Sequence[Instance]:
        """What is not gone of `recipe`. All are sorted by what they were made from once they have changed."""
        rows = self._store.instances()
        if rows is not self._looked:
            made: defaultdict[tuple[str, str, str, str], list[Instance]] = defaultdict(list)
            for row in rows.values():
                made[row.profile, row.template, row.image, row.zone].append(row)
            self._looked, self._made = rows, made
        found = self._made.get((recipe.profile, recipe.template, recipe.image, recipe.zone), ())
        return found if recipe.kind is Kind.BOOT else [row for row in found if row.pool == recipe.pool]

    def _judged(self, recipe: Recipe, rows: Sequence[Instance], now: int) -> Breaker:
        reset = self._store.fact(_FACT + recipe.name)
        history = self._store.past().of(recipe).besides(self._living(recipe, rows))
        reset_ms = -1 if reset is None else int(reset)
        return judged(history, self._allowance(recipe), now, reset_ms, most_of(recipe.kind))

    def _living(self, recipe: Recipe, rows: Iterable[Instance]) -> list[int]:
        """When those succeeded that are not gone."""
        if recipe.kind is Kind.BOOT:
            return [row.registered_ms for row in rows if row.registered_ms is not None]
        worked_ms = self._contacts.worked_ms
        return [at_ms for row in rows if (at_ms := worked_ms(row.id)) is not None]

    def _trial(self, recipe: Recipe, breaker: Breaker, rows: Sequence[Instance]) -> Instance | None:
        """What is being tried. A service that has work shows itself: another may be tried beside it."""
        for row in rows:
            if recipe.kind is Kind.BOOT:
                if row.registered_ms is None:
                    return row
            elif row.intended_ms >= breaker.until_ms and not self._store.held_by(row.id):
                return row
        return None

    def _allowance(self, recipe: Recipe) -> int:
        """Pools that share a template share what its boots may burn: the least that one of them allows."""
        boots = recipe.kind is Kind.BOOT
        allowed = (pool.boot_allowance if boots else pool.futility_allowance for pool in self._pools_of(recipe))
        return min(allowed, default=0)

    def _pools_of(self, recipe: Recipe) -> list[Pool]:
        """Those that are launched for from it. What left the configuration has none."""
        return [
            pool
            for pool in self._pools().values()
            if pool.template == recipe.template and recipe.profile in pool.profiles and recipe.pool in ("", pool.name)
        ]


def _made_from(recipe: Recipe, rows: Iterable[Instance]) -> list[Instance]:
    """Those of `rows` that were."""
    return [
        row
        for row in rows
        if row.zone == recipe.zone
        and row.template == recipe.template
        and row.image == recipe.image
        and row.profile == recipe.profile
        and (recipe.kind is Kind.BOOT or row.pool == recipe.pool)
    ]


def _block(recipe: Recipe, until_ms: int, reason: str) -> Blocked:
    return Blocked(
        recipe.profile, until_ms, reason, zone=recipe.zone, image=recipe.image, pool=recipe.pool,
        template=recipe.template, obstacle=Obstacle.BREAKER,
    )  # fmt: skip
