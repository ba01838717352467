"""What silence and an agent's own words mean for an instance."""

from __future__ import annotations

import pytest

from cloud_dispatch.domain.instance import INSTANCE_TABLE, InstanceEvent, InstanceState
from cloud_dispatch.ports.fleet import Heard
from cloud_dispatch.reconcile.liveness import event_heard, judge
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.wire.messages import ADVISED, FULL, PREEMPTED
from tests.reconcile.examples import instance

S, E = InstanceState, InstanceEvent
TIMING = Timing(heartbeat_ms=10_000, poll_ms=20_000, lease_ms=60_000)


def heard(state: str = "idle", **more: object) -> Heard:
    return Heard(instance("idle").id, "i", state, **more)  # type: ignore[arg-type]


def test_out_of_contact_from_the_first_missed_heartbeat() -> None:
    """Not before the longest poll and half have passed, and then at once."""
    assert judge(instance(S.BUSY), TIMING.missed_ms, 0, TIMING) is None
    verdict = judge(instance(S.BUSY), TIMING.missed_ms + 1, 0, TIMING)
    assert verdict is not None
    assert verdict.event is E.MISSED


@pytest.mark.parametrize("state", [S.IDLE, S.BUSY, S.OUT_OF_CONTACT, S.DRAINING, S.UNKNOWN])
def test_silence_past_the_lease_is_failure(state: InstanceState) -> None:
    """Only once the agent itself must have killed what it could not renew (P1)."""
    assert TIMING.silence_ms > TIMING.lease_ms
    verdict = judge(instance(state), TIMING.silence_ms + 1, 0, TIMING)
    assert verdict is not None
    assert (verdict.event, verdict.cause) == (E.FAIL, "out-of-contact")
    before = judge(instance(state), TIMING.silence_ms, 0, TIMING)
    assert before is None or before.event is E.MISSED


def test_a_boot_has_a_deadline() -> None:
    """A VM that never registers fails, however long its lease."""
    booting = instance(S.BOOTING, boot_deadline_ms=1000)
    assert judge(booting, 0, 999, TIMING) is None
    verdict = judge(booting, 0, 1000, TIMING)
    assert verdict is not None
    assert (verdict.event, verdict.cause) == (E.FAIL, "boot-deadline")
    assert judge(booting, 0, 1499, TIMING, 1500) is None
    assert judge(booting, 0, 1500, TIMING, 1500) is not None


@pytest.mark.parametrize("state", [S.INTENDED, S.LAUNCHING, S.DRAINED, S.FAILED, S.LOST, S.TERMINATING, S.GONE])
def test_silence_means_nothing_where_no_service_is_expected(state: InstanceState) -> None:
    """A launch in doubt or a VM on its way out is others' concern."""
    assert judge(instance(state), 10**9, 10**9, TIMING) is None


def test_a_drain_is_confirmed_only_with_its_own_token_and_nothing_held() -> None:
    """An answer to an earlier drain, or one given with work on board, confirms nothing (no drain-then-work)."""
    draining = instance(S.DRAINING, drain_token=4, cause="idle", reason="why")
    confirmed = event_heard(draining, heard("drained", drain_token=4), 0)
    assert confirmed is not None
    assert (confirmed.event, confirmed.cause) == (E.DRAINED, "idle")
    assert event_heard(draining, heard("drained", drain_token=3), 0) is None
    assert event_heard(draining, heard("drained", drain_token=4), 1) is None


def test_an_agent_that_ends_by_itself_is_drained_and_one_that_fails_is_failed() -> None:
    """An end for want of work or by the operating system is no failure; ill health is."""
    for ending in ("idle", "lifetime", "shutdown", "max-tasks"):
        verdict = event_heard(instance(S.IDLE), heard(ending=ending), 0)
        assert verdict is not None
        assert (verdict.event, verdict.cause) == (E.DRAINED, ending)
    for said in (heard(ending="health", detail="disk"), heard("failed", detail="disk")):
        verdict = event_heard(instance(S.BUSY), said, 2)
        assert verdict is not None
        assert verdict.event is E.FAIL
        assert "disk" in verdict.reason


def test_being_heard_again_ends_doubt() -> None:
    """Unknown or out of contact becomes idle or busy by what it holds."""
    for state in (S.UNKNOWN, S.OUT_OF_CONTACT):
        busy, idle = event_heard(instance(state), heard(), 1), event_heard(instance(state), heard(), 0)
        assert busy is not None
        assert idle is not None
        assert (busy.event, idle.event) == (E.HEARD_BUSY, E.HEARD_IDLE)


@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("said", [heard(), heard("failed"), heard(ending="idle"), heard("drained", drain_token=0)])
def test_every_verdict_is_an_arrow_of_the_table(state: InstanceState, said: Heard) -> None:
    """Nothing that an agent says can ask for an arrow that does not exist."""
    for tasks in (0, 1):
        for verdict in (event_heard(instance(state), said, tasks), judge(instance(state), 10**9, 10**9, TIMING)):
            assert verdict is None or INSTANCE_TABLE.allows(state, verdict.event)


@pytest.mark.parametrize(("detail", "cause"), [(PREEMPTED, "preempted"), (ADVISED, "advised"), (FULL, "health")])
def test_a_notice_of_preemption_begins_a_drain(detail: str, cause: str) -> None:
    """Or an advice, or a full disk. Once: of one that drains already it is no news, and other details mean nothing."""
    said = heard("draining", detail=detail)
    verdict = event_heard(instance(S.BUSY), said, 1)
    assert verdict is not None
    assert (verdict.event, verdict.cause) == (E.DRAIN, cause)
    assert event_heard(instance(S.DRAINING), said, 1) is None
    assert event_heard(instance(S.BUSY), heard("draining"), 1) is None
