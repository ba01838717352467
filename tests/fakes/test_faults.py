"""The fault engine of all fakes."""

from __future__ import annotations

import pytest

from tests.fakes.faults import Call, Fault, FaultKind, Faults, Market, fault_of

RUN = Call("RunInstances", "m6i.large", "us-east-1a", Market.SPOT)


def _faults(*faults: Fault) -> Faults:
    engine = Faults((FaultKind.CAPACITY,), 1000)
    engine.add(*faults)
    return engine


def test_the_nth_call_and_no_other_is_refused() -> None:
    """`skip` calls are spared, then `times` are struck."""
    engine = _faults(Fault(FaultKind.ERROR, operation="RunInstances", skip=1, times=1, code="InternalError"))
    struck = [engine.strike(RUN, 1000).refused for _ in range(3)]
    assert [fault.code if fault else "" for fault in struck] == ["", "InternalError", ""]


@pytest.mark.parametrize(
    "scope", [{"operation": "Other"}, {"type": "c6i.large"}, {"zone": "us-east-1b"}, {"market": Market.ON_DEMAND}]
)
def test_a_fault_strikes_in_its_scope_only(scope: dict[str, object]) -> None:
    """Operation, type, zone and market each bound it; what is left empty does not."""
    fault = fault_of({"kind": "error", "code": "X", **scope})
    assert _faults(fault).strike(RUN, 1000).refused is None
    assert _faults(Fault(FaultKind.ERROR, code="X")).strike(RUN, 1000).refused is not None


def test_a_fault_strikes_in_its_window_only() -> None:
    """Times count from the start of the fake."""
    engine = _faults(Fault(FaultKind.SLOW, from_ms=100, until_ms=200, amount=5))
    assert [engine.strike(RUN, 1000 + at).late_ms for at in (99, 100, 199, 200)] == [0, 5, 5, 0]


def test_a_refused_call_is_not_also_lost() -> None:
    """What is not carried out uses up no fault of answers."""
    engine = _faults(
        Fault(FaultKind.ERROR, code="X", times=1), Fault(FaultKind.LOST_ANSWER, times=1)
    )  # fmt: skip
    assert engine.strike(RUN, 1000).lost is None
    assert engine.strike(RUN, 1000).lost is not None


def test_a_listing_breaks_off_after_its_pages() -> None:
    """`amount` pages come; those do not count against `times`."""
    engine = _faults(Fault(FaultKind.INCOMPLETE, amount=2, times=1))
    broken = [engine.breaks_off("DescribeInstances", page, 1000) is not None for page in (1, 2, 3, 3)]
    assert broken == [False, False, True, False]


def test_what_a_fake_does_not_have_is_refused() -> None:
    """A fault that nobody heeds would make a test pass that tests nothing."""
    with pytest.raises(ValueError, match="preempt"):
        _faults(Fault(FaultKind.PREEMPT))
    with pytest.raises(ValueError, match="code"):
        _faults(Fault(FaultKind.ERROR))
    with pytest.raises(ValueError, match="opration"):
        fault_of({"kind": "error", "opration": "RunInstances"})


def test_cleared_faults_strike_no_more() -> None:
    """And those added afterwards do, by the same clock."""
    engine = _faults(Fault(FaultKind.ERROR, code="X"))
    engine.clear()
    assert engine.strike(RUN, 1000).refused is None
    engine.add(Fault(FaultKind.ERROR, code="Y", from_ms=10))
    assert engine.strike(RUN, 1009).refused is None
    assert engine.strike(RUN, 1010).refused is not None
