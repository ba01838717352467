"""Rows against listings: every difference is found, and only complete listings say that something is missing."""

from __future__ import annotations

from dataclasses import replace

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import InstanceId, VmId
from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceState
from cloud_dispatch.provider.spi import Vm, VmState
from cloud_dispatch.reconcile.absence import Absence
from cloud_dispatch.reconcile.matching import Bound, Ended, Finding, Foreign, Missing, Seen, Stranger, match
from tests.reconcile.examples import INSTANCE, instance

S = InstanceState


def vm(
    row: Instance = INSTANCE, name: str = "vm-0", store: str = "s", state: VmState = VmState.RUNNING, slot: int = 0
) -> Vm:
    facts = tags.of_instance(row, "lab", store)
    return Vm(VmId(name), state, row.type, row.zone, facts.encode(), 5, slot)


def findings(
    *vms: Vm, rows: tuple[Instance, ...] = (INSTANCE,), complete: bool = True, others: tuple[str, ...] = ()
) -> list[Finding]:
    stores = frozenset({"s", *others})
    return list(match(vms, {row.id: row for row in rows}, own="s", stores=stores, complete=complete))


def test_a_row_with_its_vm_is_seen() -> None:
    """Nothing to do, unless the tag says another behaviour than the row."""
    assert findings(vm()) == [Seen(INSTANCE.id, vm(), None)]
    held = vm(replace(INSTANCE, behaviour=Behaviour.HOLD))
    assert findings(held) == [Seen(INSTANCE.id, held, Behaviour.HOLD)]


def test_a_launch_in_doubt_finds_its_vm_by_batch_and_slot() -> None:
    """Providers that name slots bind exactly, others bind any free slot of the batch, each once."""
    rows = tuple(instance(S.LAUNCHING, id=InstanceId(f"batch-{n}"), vm=VmId("")) for n in (0, 1))
    assert findings(vm(name="x", slot=1), rows=rows, complete=False) == [Bound(rows[1].id, vm(name="x", slot=1))]
    bound = findings(vm(name="x", slot=-1), vm(name="y", slot=-1), vm(name="z", slot=-1), rows=rows)
    assert [type(f) for f in bound] == [Bound, Bound, Stranger]
    assert {f.instance for f in bound if isinstance(f, Bound)} == {row.id for row in rows}


def test_a_slot_that_a_tag_tells_is_bound_before_any_is_guessed() -> None:
    """A store that came back older finds the VMs that it had named by their tags: their agents know themselves by
    that, whatever order they are listed in. A tag whose slot is taken says no more than none."""
    rows = tuple(instance(S.LAUNCHING, id=InstanceId(f"batch-{n}"), vm=VmId("")) for n in (0, 1))
    tagged = replace(vm(name="y", slot=-1), tags={**vm().tags, tags.SLOT: "0"})
    untagged = vm(name="x", slot=-1)
    assert findings(untagged, tagged, rows=rows) == [Bound(rows[0].id, tagged), Bound(rows[1].id, untagged)]
    other = replace(tagged, id=VmId("z"))
    assert findings(tagged, other, rows=rows) == [Bound(rows[0].id, tagged), Bound(rows[1].id, other)]


def test_another_stores_vms_are_foreign() -> None:
    """A copied control VM or a lost database: reported, never taken for a stranger of ours."""
    other = vm(name="x", store="other")
    assert findings(other, rows=()) == [Foreign(other, tags.of_instance(INSTANCE, "lab", "other"))]


def test_what_was_inherited_is_news_until_its_tags_say_whose_it_is() -> None:
    """A tag that did not take is set again."""
    old, new = vm(store="other"), vm()
    (seen,) = findings(old, others=("other",))
    assert seen == Seen(INSTANCE.id, old, None, inherited=True)
    assert isinstance(seen, Seen)
    assert seen.news
    assert findings(new, others=("other",)) == [Seen(INSTANCE.id, new, None)]


def test_vms_without_whole_tags_are_left_alone() -> None:
    """Whatever a provider's filter lets through."""
    assert findings(replace(vm(), tags={"Name": "somebody's"}), rows=()) == []


def test_missing_needs_a_complete_listing() -> None:
    """A page that failed proves nothing."""
    assert findings(complete=False) == []
    assert findings() == [Missing(INSTANCE.id)]


def test_stopped_and_gone_vms_have_ended() -> None:
    """Both are told apart by the VM's own state."""
    for state in (VmState.STOPPED, VmState.GONE):
        assert findings(vm(state=state)) == [Ended(INSTANCE.id, vm(state=state))]
    assert findings(vm(name="x", state=VmState.GONE), rows=()) == []


def test_absence_takes_two_complete_listings_after_the_horizon() -> None:
    """Listings that started before the consistency horizon count for nothing."""
    absence = Absence(horizon_ms=100)
    assert not absence.missed(50).missed(99).missed(100).worth_a_get
    assert absence.missed(100).missed(101).worth_a_get
