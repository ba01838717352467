"""Why an instance ended, when one thing follows another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.testing.store_builders import instance

S = InstanceState


@pytest.mark.parametrize("state", [S.DRAINED, S.FAILED, S.LOST, S.TERMINATING])
def test_what_follows_on_an_end_keeps_its_word(state: InstanceState) -> None:
    """It idled, it drained, and its VM is ended: because it idled. Without a word of its own it has the new one."""
    row = replace(instance(state=state), cause="idle", reason="it idled")
    assert row.ended_by("gone", "no VM") == ("idle", "it idled")
    assert replace(row, cause="", reason="it was cheapest").ended_by("gone", "no VM") == ("gone", "no VM")


@pytest.mark.parametrize("state", sorted(set(S) - {S.DRAINED, S.FAILED, S.LOST, S.TERMINATING, S.GONE}))
def test_what_still_works_is_ended_by_what_takes_it(state: InstanceState) -> None:
    """Whatever it was to drain for."""
    row = replace(instance(state=state), cause="stale", reason="its pool has left")
    assert row.ended_by("stopped", "all is ended") == ("stopped", "all is ended")


@pytest.mark.parametrize(("state", "cause"), [(S.FAILED, "stopped"), (S.DRAINED, "stopped"), (S.TERMINATING, "idle")])
def test_what_an_operator_holds_is_not_over_before_its_vm_is_ended(state: InstanceState, cause: str) -> None:
    """It failed and stays, until the kill switch ends everything: that is why it ends."""
    row = replace(instance(state=state, behaviour=Behaviour.HOLD), cause="idle", reason="it idled")
    assert row.ended_by("stopped", "all is ended")[0] == cause
