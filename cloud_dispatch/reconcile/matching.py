"""Rows against a listing. Owns what each difference between them is; pure, decides nothing about it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from msgspec import Struct

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import BatchId, InstanceId, VmId, slot_of
from cloud_dispatch.domain.ids import instance_id as id_of
from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceState
from cloud_dispatch.provider.spi import Vm, VmState

_S = InstanceState
#: Rows in these states expect a VM to be listed.
EXPECTED = frozenset(
    {
        _S.LAUNCHING,
        _S.BOOTING,
        _S.IDLE,
        _S.BUSY,
        _S.OUT_OF_CONTACT,
        _S.DRAINING,
        _S.DRAINED,
        _S.FAILED,
        _S.UNKNOWN,
        _S.TERMINATING,
        _S.LOST,
    }
)


@dataclass(frozen=True, slots=True)
class Bound:
    """A slot whose launch was in doubt, or not yet answered, has this VM."""

    instance: InstanceId
    vm: Vm


@dataclass(frozen=True, slots=True)
class Stranger:
    """A VM of our deployment and store without a live row: to be adopted, or to be ended if its row is gone."""

    vm: Vm
    facts: tags.VmTags


@dataclass(frozen=True, slots=True)
class Foreign:
    """A VM of our deployment that another statestore made: reported, never touched."""

    vm: Vm
    facts: tags.VmTags


@dataclass(frozen=True, slots=True)
class Ended:
    """The VM of a live row is stopped, or the provider says that it is gone. Of one that boots yet it is enough that it
    is on its way there, taken back: some clouds say so of no VM that is gone."""

    instance: InstanceId
    vm: Vm


@dataclass(frozen=True, slots=True)
class Missing:
    """A row that expects a VM, and the listing has none."""

    instance: InstanceId


class Seen(Struct, frozen=True):
    """A row and its VM, both there; `behaviour` is the tag's where it differs from the row's, else None. `nameless`:
    neither name nor tag says which slot it is. `inherited`: its tags still say that another statestore has it."""

    instance: InstanceId
    vm: Vm
    behaviour: Behaviour | None
    nameless: bool = False
    inherited: bool = False

    @property
    def news(self) -> bool:
        """Whether its tags have to be written again."""
        return self.nameless or self.inherited or self.behaviour is not None


Finding = Bound | Stranger | Foreign | Ended | Missing | Seen


def was_adopted(row: Instance) -> bool:
    """Whether the row was made for a VM found by its tags: such a row has no boot deadline."""
    return row.boot_deadline_ms == 0


def has_ended(row: Instance, vm: Vm) -> bool:
    """Whether nothing comes of the VM of `row` any more. While it boots that is so as soon as it is taken back; later
    its agent has notice of that, and uses it."""
    taken = vm.preempted and vm.state is VmState.STOPPING and row.state is _S.BOOTING
    return taken or vm.state in (VmState.STOPPED, VmState.GONE)


def is_open(row: Instance, alike: int, restored_ms: int | None) -> bool:
    """Whether a VM of its launch that says no slot may be taken for that of `row`, one of `alike` that have none. Not
    where the store was restored since the launch: another VM may have become this one before, and its agent know itself
    by it."""
    return alike == 1 or restored_ms is None or row.intended_ms >= restored_ms


def match(
    vms: Iterable[Vm],
    rows: Mapping[InstanceId, Instance],
    *,
    own: str,
    stores: frozenset[str],
    complete: bool,
    restored_ms: int | None = None,
    parted: Callable[[BatchId], Collection[VmId]] = lambda batch: (),
) -> tuple[Finding, ...]:
    """Findings for one profile. `rows`: its instances that are not gone. `own`: the store's id; `stores`: it and those
    of the stores that it took over. Only a complete listing makes `Missing`. `restored_ms`: when the store was made
    from a copy. `parted`: the VMs of instances of a launch that are gone: no slot takes them."""
    by_vm: dict[VmId, Instance] = {}
    unbound: dict[str, list[Instance]] = {}
    for row in rows.values():
        if row.vm:
            by_vm[row.vm] = row
        else:
            unbound.setdefault(row.batch, []).append(row)
    waiting = {
        batch: {row.id: is_open(row, len(alike), restored_ms) for row in alike} for batch, alike in unbound.items()
    }
    findings: list[Finding] = []
    seen: set[InstanceId] = set()
    known = ((vm, facts) for vm in vms if (facts := tags.decode(vm.tags)) is not None)
    # Those whose slot has to be guessed take what is left by those that have one.
    for vm, facts in sorted(known, key=lambda one: _slot(*one) < 0) if waiting else known:
        if facts.store not in stores:
            if vm.state is not VmState.GONE:
                findings.append(Foreign(vm, facts))
            continue
        open_ = waiting.get(facts.batch, {})
        finding = _of_vm(vm, facts, by_vm, {} if open_ and vm.id in parted(facts.batch) else open_, own)
        if finding is not None:
            findings.append(finding)
            if not isinstance(finding, Stranger):
                seen.add(finding.instance)
    if complete:
        findings.extend(Missing(name) for name, row in rows.items() if name not in seen and row.state in EXPECTED)
    return tuple(findings)


def _of_vm(
    vm: Vm, facts: tags.VmTags, by_vm: Mapping[VmId, Instance], waiting: dict[InstanceId, bool], own_store: str
) -> Bound | Stranger | Ended | Seen | None:
    row = by_vm.get(vm.id)
    if row is not None:
        if has_ended(row, vm):
            return Ended(row.id, vm)
        nameless = vm.slot < 0 and facts.slot != slot_of(row.id)[1]
        behaviour = facts.behaviour if facts.behaviour != row.behaviour else None
        return Seen(row.id, vm, behaviour, nameless, facts.store != own_store)
    if vm.state is VmState.GONE:
        return None
    own = id_of(facts.batch, _slot(vm, facts))
    if own not in waiting:
        own = next((row for row, is_open in waiting.items() if is_open), own) if vm.slot < 0 else own
    if own not in waiting:
        return Stranger(vm, facts)
    del waiting[own]
    return Bound(own, vm)


def _slot(vm: Vm, facts: tags.VmTags) -> int:
    """Which slot it is by its name or, where names don't tell, by the tag of a store that knew; -1 where neither does.
    Its agent knows itself by that."""
    return vm.slot if vm.slot >= 0 else facts.slot
