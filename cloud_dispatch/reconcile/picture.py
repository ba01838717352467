"""The snapshot. Owns how store, contacts, providers and configuration become the frozen picture that is planned on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cloud_dispatch.demand.port import DemandSource
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.shape import Load
from cloud_dispatch.planner.snapshot import DemandItem, Snapshot, Supply, TargetItem
from cloud_dispatch.reconcile.contacts import Contact
from cloud_dispatch.reconcile.context import Context

_S = InstanceState


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
    rows = context.store.instances().values()
    return Snapshot(
        now_ms=now,
        demand=tuple(demand),
        targets=tuple(targets),
        supply=tuple(_supply(context, rows, now)),
        pools=tuple(settings.pools.values()),
        offerings=tuple(o for name in settings.providers for o in _offerings(context, name)),
        caps=settings.caps,
        profile_caps=tuple(settings.profile_caps.items()),
        blocked=context.failures.blocked(now),
        silent=tuple(name for name in settings.providers if _is_silent(context, name)),
        max_batch=tuple((name, provider.traits.max_batch) for name, provider in settings.providers.items()),
        doubt_ms=settings.timing.doubt_ms,
        unknowns=any(row.state is _S.UNKNOWN for row in rows),
        paused=context.paused,
    )


def _offerings(context: Context, profile: ProfileName) -> tuple[Offering, ...]:
    view = context.profiles.get(profile)
    return view.offerings if view else ()


def _is_silent(context: Context, profile: ProfileName) -> bool:
    view = context.profiles.get(profile)
    return view is None or view.listed_ms is None or bool(view.problem)


def _supply(context: Context, rows: Iterable[Instance], now: int) -> Iterator[Supply]:
    stale, in_doubt = _Stale(context), context.in_doubt
    contacts, monotonic, load_of = context.contacts, context.clock.monotonic(), context.store.load_of
    for row in rows:
        contact = contacts.of(row.id, monotonic)
        load, doubted, pictured = load_of(row.id), row.id in in_doubt, contact.pictured
        if pictured is not None and pictured[0] is row:
            supply = pictured[1]
            if (
                supply.load is load
                and supply.idle_since_ms == contact.idle_since_ms
                and supply.in_doubt is doubted
                and supply.asks_end is contact.asks_end
                and supply.stale == stale.of(row)
            ):
                yield supply
                continue
        if contact.state != row.state:
            contact.state, contact.state_since_ms = row.state, now
        if load.tasks:
            contact.idle_since_ms = None
        elif contact.idle_since_ms is None and row.state is _S.IDLE:
            contact.idle_since_ms = now
        supply = _picture(row, load, contact, in_doubt=doubted, stale=stale.of(row))
        contact.pictured = row, supply
        yield supply


def _picture(row: Instance, load: Load, contact: Contact, *, in_doubt: bool, stale: str) -> Supply:
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
    )


class _Stale:
    """Why the configuration no longer wants an instance; found out once for each pool, profile and type."""

    def __init__(self, context: Context) -> None:
        self._pools = context.settings.pools
        self._offered = {
            name: frozenset(offering.type.name for offering in view.offerings)
            for name, view in context.profiles.items()
        }
        self._known: dict[tuple[str, str, str], str] = {}

    def of(self, row: Instance) -> str:
        """The reason, "" while it is wanted."""
        key = (row.pool, row.profile, row.type)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find(row)
        return known

    def _find(self, row: Instance) -> str:
        pool = self._pools.get(row.pool)
        if pool is None:
            return f"pool {row.pool} left the configuration"
        if row.profile not in pool.profiles:
            return f"profile {row.profile} left pool {pool.name}"
        if not pool.types.admits(row.type):
            return f"type {row.type} is no longer allowed in pool {pool.name}"
        offered = self._offered.get(row.profile)
        if offered and row.type not in offered:
            return f"type {row.type} is no longer offered by profile {row.profile}"
        return ""
