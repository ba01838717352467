"""VMs of this deployment that another statestore made. Owns how they count: nothing is done with them before an
operator says so, and until then they run and bill under this deployment's caps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cloud_dispatch.domain.ids import PoolName, ProfileName, VmId
from cloud_dispatch.planner.snapshot import Foreign
from cloud_dispatch.provider.spi import Traits, VmState
from cloud_dispatch.reconcile.asking import Listed
from cloud_dispatch.reconcile.context import Context, ForeignVm, ProfileView
from cloud_dispatch.reconcile.matching import Finding
from cloud_dispatch.reconcile.matching import Foreign as Stray


def listed(view: ProfileView, found: Iterable[Finding], shown: Listed, traits: Traits) -> None:
    """Note those that a listing shows. One that it does not show may be there all the same, as long as the provider's
    listings may be behind."""
    listing, since_ms = shown.listing, shown.started_ms
    gone = {vm.id for vm in listing.vms if vm.state is VmState.GONE}
    kept = {
        vm: one
        for vm, one in view.foreign.items()
        if vm not in gone and (not listing.complete or since_ms - one.seen_ms < traits.consistency_ms)
    }
    seen = {one.vm.id: ForeignVm(one.facts.pool, one.vm.type, since_ms) for one in found if isinstance(one, Stray)}
    view.foreign = {**kept, **seen}


def known(context: Context) -> tuple[Foreign, ...]:
    """Those that the last listings have shown. Two profiles may list the same; what was taken over since is no more of
    them. A type that is not offered any more counts as the largest that is."""
    views = {name: view for name in context.settings.providers if (view := context.profiles.get(name)) and view.foreign}
    if not views:
        return ()
    places: dict[VmId, tuple[PoolName, int, list[ProfileName]]] = {}
    for profile, view in views.items():
        vcpus = {offering.type.name: offering.type.vcpus for offering in view.offerings}
        largest = max(vcpus.values(), default=0)
        for vm, one in view.foreign.items():
            if context.store.by_vm(vm) is None:
                places.setdefault(vm, (one.pool, vcpus.get(one.type, largest), []))[2].append(profile)
    alike = Counter((pool, tuple(profiles), size) for pool, size, profiles in places.values())
    return tuple(Foreign(pool, profiles, size, count) for (pool, profiles, size), count in sorted(alike.items()))
