"""What a session remembers of the claims that its agent was handed."""

from __future__ import annotations

from cloud_dispatch.api.sessions import Session
from cloud_dispatch.api.translate import MOST_CLAIMS
from cloud_dispatch.domain.ids import FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.task import Cause, Outcome
from cloud_dispatch.ports.fleet import Ended
from cloud_dispatch.ports.store import Claimed, ClaimResult


def handed(*tokens: int) -> Session:
    session = Session("a")
    for token in tokens:
        claim = Claimed(TaskId(token), FencingToken(token), 1, b'{"argv":["./fit"]}')
        session.took([claim], InstanceId("i"), lambda *_: "")
    return session


def result(token: int, cause: Cause | None) -> ClaimResult:
    return ClaimResult(TaskId(token), FencingToken(token), 5, Outcome(cause) if cause else None)


def test_results_are_told_with_their_kind_once() -> None:
    """One that comes again, as its answer was lost, is of no kind: it counts for nothing. So is another's."""
    session = handed(1, 2)
    one = result(1, Cause.SUCCESS)
    assert session.ended([one, result(2, None)]) == (Ended(TaskId(1), Cause.SUCCESS, "./fit"),)
    assert session.ended([one, result(3, Cause.SIGNAL)]) == (
        Ended(TaskId(1), Cause.SUCCESS), Ended(TaskId(3), Cause.SIGNAL),
    )  # fmt: skip


def test_claims_without_results_are_forgotten() -> None:
    session = handed(*range(3 * MOST_CLAIMS))
    assert len(session.kinds) == 2 * MOST_CLAIMS
    assert session.ended([result(0, Cause.SUCCESS)]) == (Ended(TaskId(0), Cause.SUCCESS),)
