"""VMs of this deployment that another statestore made. Owns how they count: nothing is done with them before an
operator says so, and until then they run and bill under this deployment's caps. Nobody knows what they cost.

They are remembered by the store until a listing shows that they are gone, or ours: also where a profile can't be listed
just now, and over restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from cloud_dispatch.domain.ids import ProfileName, VmId
from cloud_dispatch.planner.snapshot import Foreign
from cloud_dispatch.ports.store import Store
from cloud_dispatch.provider.spi import Traits
from cloud_dispatch.reconcile import restored
from cloud_dispatch.reconcile.asking import Listed
from cloud_dispatch.reconcile.context import Context, ForeignVm, Question
from cloud_dispatch.reconcile.matching import Finding, was_adopted
from cloud_dispatch.reconcile.matching import Foreign as Stray
from cloud_dispatch.spend import doubt

#: The facts that have them, by VM.
_FACT = "foreign-vm:"
#: So long after its hard end one is forgotten whose profiles have all left the configuration: nobody can list it.
_ENDED_MS = 86_400_000


def remembered(store: Store) -> dict[VmId, ForeignVm]:
    """Those that the store knows."""
    return {
        VmId(name.removeprefix(_FACT)): msgspec.json.decode(value, type=ForeignVm)
        for name, value in store.facts(_FACT).items()
    }


async def listed(
    context: Context, profile: ProfileName, found: Iterable[Finding], shown: Listed, traits: Traits
) -> None:
    """Note those that a listing shows, and tell of them once. One that it does not show may be there all the same, as
    long as the provider's listings may be behind."""
    listing, since_ms, known = shown.listing, shown.started_ms, context.foreign
    strays = {one.vm.id: one for one in found if isinstance(one, Stray)}
    sizes = {one.type.name: one.type.vcpus for one in context.view(profile).offerings}
    after: dict[VmId, ForeignVm | None] = {}
    for vm, stray in strays.items():
        context.foreign_seen[profile, vm] = since_ms
        facts, before = stray.facts, known.get(vm)
        profiles, vcpus = (before.profiles, before.vcpus) if before else ((), 0)
        vcpus = sizes.get(stray.vm.type, vcpus)
        together = tuple(sorted({*profiles, profile}))
        after[vm] = ForeignVm(facts.store, facts.pool, stray.vm.type, vcpus, facts.ends_ms, together)
    told = {vm.id for vm in listing.vms}
    for vm, one in known.items():
        if profile in one.profiles and vm not in strays:
            seen_ms = context.foreign_seen.get((profile, vm), context.begun_ms)
            if vm in told or (listing.complete and since_ms - seen_ms >= traits.consistency_ms):
                left = tuple(name for name in one.profiles if name != profile)
                after[vm] = replace(one, profiles=left) if left else None
    new = [vm for vm in strays if vm not in known]
    await _remember(context, {vm: one for vm, one in after.items() if known.get(vm) != one})
    for vm in new:
        whose = strays[vm].facts.store
        context.note(
            "instance.foreign",
            detail=f"VM {vm} of profile {profile} belongs to statestore {whose}: left alone, and counted; "
            f"`adopt --store {whose}` takes over all of them",
        )


async def _remember(context: Context, changed: Mapping[VmId, ForeignVm | None]) -> None:
    if not changed:
        return
    await context.store.set_facts({
        f"{_FACT}{vm}": None if one is None else msgspec.json.encode(one).decode() for vm, one in changed.items()
    })  # fmt: skip
    for vm, one in changed.items():
        if one is None:
            context.foreign.pop(vm, None)
        else:
            context.foreign[vm] = one
    context.foreign_seen = {key: at for key, at in context.foreign_seen.items() if key[1] in context.foreign}


def known(context: Context) -> tuple[Foreign, ...]:
    """Those that count now. Two profiles may list the same; what was taken over since is no more of them. A type that
    nobody who lists it has offered counts as the largest that they do, at least as one vCPU."""
    places = {vm: one for vm, one in context.foreign.items() if context.store.by_vm(vm) is None}
    if not places:
        return ()
    largest = {
        name: max((one.type.vcpus for one in view.offerings), default=1) for name, view in context.profiles.items()
    }
    alike = Counter(
        (one.store, one.pool, one.profiles, one.vcpus or _most(one.profiles, largest)) for one in places.values()
    )
    return tuple(Foreign(*kind, count) for kind, count in sorted(alike.items()))


def _most(profiles: Sequence[ProfileName], largest: Mapping[ProfileName, int]) -> int:
    return max((largest.get(name, 1) for name in profiles), default=1)


def stores(context: Context) -> Counter[str]:
    """The statestores that made them, and how many."""
    counted: Counter[str] = Counter()
    for one in known(context):
        counted[one.store] += one.count
    return counted


def words(context: Context) -> list[str]:
    """What an operator is told of them, by statestore."""
    return [
        f"VMs of the statestore {store} are there ({number}): `adopt --store {store}` takes them over, `reap` ends all"
        for store, number in sorted(stores(context).items())
    ]


def uncounted(context: Context) -> dict[str, str]:
    """What bills and nobody counts, in words: by the statestore, VMs that another one made; by the instance, a VM that
    was taken over and of which nobody tells what it costs at most. Its tag has the price at its launch, which is no
    bound: of a spot machine least of all. What its profile offers is waited for. By the profile and the restore, VMs
    that nobody knows, since no listing has shown them."""
    others = {store: f"VMs of the statestore {store}" for store in stores(context)}
    rows = context.store.instances().values()
    priceless = [
        row
        for row in rows
        if row.max_rate is None and was_adopted(row) and (row.rate is None or not _is_awaited(context, row.profile))
    ]
    unseen = restored.unseen(context, context.clock.now())
    return {
        **others,
        **{row.id: f"the adopted instance {row.id}" for row in priceless},
        **{
            restored.doubted_as(context, name): f"VMs that were launched at {name} since the statestore's copy"
            for name in unseen
        },
    }


def _is_awaited(context: Context, profile: ProfileName) -> bool:
    """Whether what the profile offers is still to be said for the first time."""
    if profile not in context.settings.providers:
        return False
    view = context.view(profile)
    return view.offered_ms is None and Question.OFFERINGS not in view.problems


async def question(context: Context) -> None:
    """As long as there are VMs that nobody counts, it is not known what is spent: durably, before anything is planned.
    Not of those with which an operator reckons."""
    now, store = context.clock.now(), context.store
    await _remember(context, dict.fromkeys(_left(context, now)))
    found, reckoned = uncounted(context), store.reckoned()
    before, context.uncounted = context.uncounted, frozenset(found).difference(reckoned)
    doubted_ms = store.doubted_ms()
    lapsed = doubted_ms is None or doubt.reach(doubted_ms).end_ms <= now
    if not context.uncounted or not await store.doubt(context.uncounted):
        return
    if lapsed or (before and context.uncounted - before):
        what = ", ".join(found[one] for one in sorted(context.uncounted))
        context.note("budget.doubt", detail=f"nobody knows what {what} cost")


def _left(context: Context, now_ms: int) -> list[VmId]:
    """Those that nobody can list any more and that have ended by now, if a hand has kept their ends."""
    profiles = context.settings.providers.keys()
    return [
        vm
        for vm, one in context.foreign.items()
        if one.ends_ms + _ENDED_MS < now_ms and profiles.isdisjoint(one.profiles)
    ]
