"""The snapshot. Owns how store, contacts, providers and configuration become the frozen picture that is planned on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from cloud_dispatch.demand import native
from cloud_dispatch.demand.port import DemandSource
from cloud_dispatch.domain.ids import InstanceId, ProfileName
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.domain.shape import Load, Shape
from cloud_dispatch.planner.snapshot import DemandItem, Snapshot, Supply, TargetItem
from cloud_dispatch.ports.executor import give_way
from cloud_dispatch.ports.store import NEVER_MS, Outlook
from cloud_dispatch.reconcile import apart, foreign, payers, quotas, restored
from cloud_dispatch.reconcile.contacts import Contact
from cloud_dispatch.reconcile.context import Context

_S = InstanceState
#: So many take two milliseconds.
LOOKED_AT_ONCE = 200
#: Into so many steps the time is divided for which work is planned, to tell when what runs is done.
OUTLOOK_STEPS = 8
#: What asks for it runs on no spot VM.
ON_DEMAND = ("market", str(Market.ON_DEMAND))


async def look(context: Context) -> None:
    """Look at the instances that have changed, where these are many, and let others have their turns meanwhile: `take`,
    which can't, finds them looked at."""
    rows, contacts = _known(context)
    now, loads = context.clock.now(), context.store.loads()
    changed = [name for name, row in rows.items() if contacts[name].row is not row or now >= contacts[name].due_ms]
    if len(changed) <= LOOKED_AT_ONCE:
        return
    for start in range(0, len(changed), LOOKED_AT_ONCE):
        await give_way()
        still = context.store.instances()
        for name in changed[start : start + LOOKED_AT_ONCE]:
            row = rows[name]
            if still.get(name) is row:
                _looked_at(context, contacts[name], row, loads[name], now)


def take(context: Context, sources: Sequence[DemandSource]) -> Snapshot:
    """Everything that the next plan may depend on, at one moment of memory."""
    now = context.clock.now()
    settings = context.settings
    demand: list[DemandItem] = []
    targets: list[TargetItem] = []
    for source in sources:
        for item in source.demand(now):
            if isinstance(item, TargetItem):
                targets.append(item)
            else:
                demand.append(item)
    counted = tuple(payers.affordable(context, demand))
    supply, alike = _supply(context, now, _declines(context, counted))
    return Snapshot(
        now_ms=now,
        demand=counted,
        targets=tuple(targets),
        supply=supply,
        pools=tuple(settings.pools.values()),
        offerings=tuple(o for name in settings.providers for o in _offerings(context, name)),
        caps=settings.caps,
        profile_caps=tuple(settings.profile_caps.items()),
        driver_caps=tuple(settings.driver_caps),
        quotas=quotas.known(context),
        blocked=(
            *context.failures.blocked(now),
            *context.breakers.blocked(),
            *restored.blocked(context, now),
            *apart.blocked(context, now),
        ),
        failed=context.failures.failed(now),
        silent=tuple(name for name in settings.providers if _is_silent(context, name)),
        problems=tuple((name, view.trouble) for name, view in context.profiles.items() if view.trouble),
        max_batch=tuple((name, provider.traits.most_slots) for name, provider in settings.providers.items()),
        doubt_ms=settings.timing.doubt_ms,
        unknowns=any(group[0].state is _S.UNKNOWN for group in alike),
        stop=context.stop,
        boots_excused_ms=context.boots_excused_until(now),
        foreign=foreign.known(context),
        preemptions=tuple(context.store.past().spot.seen(now)),
    ).sorted_into(alike)


def _offerings(context: Context, profile: ProfileName) -> tuple[Offering, ...]:
    view = context.profiles.get(profile)
    return view.offerings if view else ()


def _is_silent(context: Context, profile: ProfileName) -> bool:
    view = context.profiles.get(profile)
    return view is None or view.listed_ms is None or bool(view.problem)


def _declines(context: Context, demand: Sequence[DemandItem]) -> Mapping[InstanceId, tuple[int, ...]]:
    """By instance that is too old or too dear for it, what of `demand` it is not given."""
    declined = context.store.declined()
    if not declined:
        return {}
    numbers: defaultdict[tuple[Shape, Payer], list[int]] = defaultdict(list)
    for number, item in enumerate(demand):
        if item.source == native.NAME:
            numbers[item.shape, item.payer].append(number)
    known: dict[int, tuple[int, ...]] = {}  # by the answer, which many share
    for lines in declined.values():
        if id(lines) not in known:
            known[id(lines)] = tuple(sorted(n for line in lines for n in numbers.get(line, ())))
    return {name: known[id(lines)] for name, lines in declined.items()}


def _supply(
    context: Context, now: int, declines: Mapping[InstanceId, tuple[int, ...]]
) -> tuple[tuple[Supply, ...], tuple[Sequence[Supply], ...]]:
    """Pictures of all instances, in their order, and the same by kind. Of one of which nothing changed it is the last
    picture again, and neither that nor the row is looked into: with many instances it is that which takes time."""
    rows, contacts = _known(context)
    loads, in_doubt, edition = context.store.loads(), context.in_doubt, context.stale.edition
    found: list[Supply] = []
    alike: defaultdict[str, list[Supply]] = defaultdict(list)
    for name, row in rows.items():
        contact, load, doubted = contacts[name], loads[name], name in in_doubt
        supply = contact.supply
        if (
            supply is None
            or contact.row is not row
            or contact.load is not load
            or contact.idle_seen_ms is not contact.idle_since_ms
            or contact.end_seen is not contact.asks_end
            or contact.in_doubt is not doubted
            or contact.edition != edition
            or now >= contact.due_ms
            or contact.declines != (declines.get(name, ()) if declines else ())
        ):
            contact.declines = declines.get(name, ())
            supply = _looked_at(context, contact, row, load, now)
        found.append(supply)
        alike[contact.kind].append(supply)
    return tuple(found), tuple(alike.values())


def _known(context: Context) -> tuple[Mapping[InstanceId, Instance], Mapping[InstanceId, Contact]]:
    """All instances with what was last seen of each; what is wanted no more is known by the configuration of now."""
    rows = context.store.instances()
    context.stale.configured(context.settings.pools)
    for profile, view in context.profiles.items():
        context.stale.offered(profile, view.offerings)
    return rows, context.contacts.greet(rows.keys(), context.clock.monotonic())


def _looked_at(context: Context, contact: Contact, row: Instance, load: Load, now: int) -> Supply:
    """The picture of an instance of which something may have changed; the last one if it is still the same."""
    contact.enter(row.state, now)
    if load.tasks:
        contact.idle_since_ms = None
    elif contact.idle_since_ms is None and row.state is _S.IDLE:
        contact.idle_since_ms = now
    is_slack = contact.settled and load.used.fits(row.machine.half())
    contact.slack_since_ms = _since(contact.slack_since_ms, is_slack, now)
    pool = context.settings.pools.get(row.pool)
    spared = contact.settled and row.market is Market.ON_DEMAND and pool is not None and Market.SPOT in pool.markets
    shapes = context.store.shapes_of(row.id) if spared or is_slack else ()
    spared = spared and all(shape.preemptible and ON_DEMAND not in shape.labels for shape in shapes)
    contact.spot_since_ms = _since(contact.spot_since_ms, spared, now)
    if not is_slack and not spared:
        shapes = ()
    in_doubt, stale = row.id in context.in_doubt, context.stale
    outlook = _outlook(context, row, load, now)
    contact.due_ms = outlook.until_ms
    supply = _picture(row, load, contact, outlook, shapes, in_doubt=in_doubt, stale=stale.of(row))
    if contact.supply is None or contact.supply != supply:
        contact.supply, contact.kind = supply, supply.kind
    contact.row, contact.load, contact.in_doubt, contact.edition = row, load, in_doubt, stale.edition
    contact.idle_seen_ms, contact.end_seen = contact.idle_since_ms, contact.asks_end
    return contact.supply


def _since(before: int | None, holds: bool, now: int) -> int | None:
    """Since when something holds that did since `before`."""
    return (now if before is None else before) if holds else None


def _outlook(context: Context, row: Instance, load: Load, now: int) -> Outlook:
    """When `load` is done. In steps, so that instances with like work are alike; it is asked again once in a step where
    nothing is known for sure, and where all goes on as expected only when something is done or comes near."""
    pool = context.settings.pools.get(row.pool)
    if not load.tasks or pool is None:
        return Outlook(load, 0, NEVER_MS, 0)
    within_ms = max(pool.target_drain_ms, pool.boot_deadline_ms)  # what boots is not there any sooner
    step_ms = max(within_ms // OUTLOOK_STEPS, 1)
    stays, free_ms, until_ms, work_ms = context.store.outlook(row.id, now, within_ms)
    free_ms = 0 if free_ms <= now else free_ms // step_ms * step_ms
    return Outlook(stays, free_ms, until_ms if until_ms > now else now + step_ms, -(-work_ms // step_ms) * step_ms)


def _picture(
    row: Instance, load: Load, contact: Contact, outlook: Outlook, shapes: tuple[Shape, ...], *, in_doubt: bool,
    stale: str,
) -> Supply:  # fmt: skip
    return Supply(
        instance=row.id,
        pool=row.pool,
        profile=row.profile,
        type=row.type,
        zone=row.zone,
        market=str(row.market),
        state=row.state,
        behaviour=row.behaviour,
        machine=row.machine,
        load=load,
        vcpus=row.vcpus,
        rate=row.rate,
        intended_ms=row.intended_ms,
        since_ms=contact.state_since_ms,
        idle_since_ms=contact.idle_since_ms,
        in_doubt=in_doubt,
        asks_end=contact.asks_end,
        stale=stale,
        declines=contact.declines,
        stays=outlook.stays,
        free_ms=outlook.free_ms,
        slack_since_ms=contact.slack_since_ms,
        spot_since_ms=contact.spot_since_ms,
        work_ms=0 if contact.spot_since_ms is None else outlook.work_ms,
        shapes=shapes,
    )
