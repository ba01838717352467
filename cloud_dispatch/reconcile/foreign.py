"""VMs of this deployment that another statestore made. Owns how they count: nothing is done with them before an
operator says so, and until then they run and bill under this deployment's caps. Nobody knows what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from cloud_dispatch.domain.ids import ProfileName, VmId
from cloud_dispatch.planner.snapshot import Foreign
from cloud_dispatch.provider.spi import Traits
from cloud_dispatch.reconcile.asking import Listed
from cloud_dispatch.reconcile.context import Context, ForeignVm, ProfileView
from cloud_dispatch.reconcile.matching import Finding
from cloud_dispatch.reconcile.matching import Foreign as Stray
from cloud_dispatch.spend.doubt import is_due


def listed(view: ProfileView, found: Iterable[Finding], shown: Listed, traits: Traits) -> None:
    """Note those that a listing shows. One that it does not show may be there all the same, as long as the provider's
    listings may be behind."""
    listing, since_ms = shown.listing, shown.started_ms
    told = {vm.id for vm in listing.vms}
    kept = {
        vm: one
        for vm, one in view.foreign.items()
        if vm not in told and (not listing.complete or since_ms - one.seen_ms < traits.consistency_ms)
    }
    seen = {
        one.vm.id: ForeignVm(one.facts.store, one.facts.pool, one.vm.type, since_ms)
        for one in found
        if isinstance(one, Stray)
    }
    view.foreign = {**kept, **seen}


def known(context: Context) -> tuple[Foreign, ...]:
    """Those that the last listings have shown. Two profiles may list the same; what was taken over since is no more of
    them. A type that nobody who lists it offers any more counts as the largest that they do, at least as one vCPU."""
    views = {name: view for name in context.settings.providers if (view := context.profiles.get(name)) and view.foreign}
    if not views:
        return ()
    sizes = {name: {one.type.name: one.type.vcpus for one in view.offerings} for name, view in views.items()}
    places: dict[VmId, tuple[ForeignVm, list[ProfileName]]] = {}
    for profile, view in views.items():
        for vm, one in view.foreign.items():
            if context.store.by_vm(vm) is None:
                places.setdefault(vm, (one, []))[1].append(profile)
    alike = Counter(
        (one.store, one.pool, tuple(profiles), _vcpus(one.type, [sizes[name] for name in profiles]))
        for one, profiles in places.values()
    )
    return tuple(Foreign(*kind, count) for kind, count in sorted(alike.items()))


def stores(context: Context) -> frozenset[str]:
    """The statestores that made them, by the last listings."""
    return frozenset(one.store for one in known(context))


async def doubt(context: Context) -> None:
    """As long as there are VMs that nobody counts, it is not known what is spent: durably, before anything is planned.
    Not of statestores whose VMs an operator reckons with."""
    uncounted, store = stores(context).difference(context.store.reckoned()), context.store
    doubted_ms = store.doubted_ms()
    if not uncounted or not is_due(doubted_ms, context.clock.now()):
        return
    await store.doubt()
    if doubted_ms is None:
        whose = ", ".join(sorted(uncounted))
        context.note("budget.doubt", detail=f"nobody knows what VMs of the statestore {whose} have cost and will")


def _vcpus(type_: str, sizes: Sequence[Mapping[str, int]]) -> int:
    told = next((known[type_] for known in sizes if type_ in known), None)
    largest = max((vcpus for known in sizes for vcpus in known.values()), default=1)
    return max(largest if told is None else told, 1)
