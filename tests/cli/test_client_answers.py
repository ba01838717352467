"""The client library where a call gets no answer: whether it was done is then not known, and that is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from cloud_dispatch.client import Client
from cloud_dispatch.domain.errors import Unavailable

LOST = [httpx.ReadTimeout(""), httpx.RemoteProtocolError("Server disconnected"), httpx.WriteError("Broken pipe")]


def client(error: httpx.HTTPError) -> Client:
    """One whose calls end with `error`."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise error

    return Client("https://dispatcher:7717", transport=httpx.MockTransport(fail))


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "call",
    [lambda c: c.submit([{"command": "true"}]), lambda c: c.rerun([1]), lambda c: c.set_budget("pool", "p", "day", 1)],
    ids=["submit", "rerun", "set_budget"],
)
def test_a_change_without_an_answer_may_be_made(error: httpx.HTTPError, call: Callable[[Client], Any]) -> None:
    """Who only reads `Unavailable` would try again, and double the tasks."""
    with client(error) as lost, pytest.raises(Unavailable) as caught:
        call(lost)
    assert "it may be done all the same" in caught.value.hint
    assert "idempotency key" in caught.value.hint


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ConnectTimeout("")], ids=["refused", "silent"])
def test_what_was_never_sent_is_not_done(error: httpx.HTTPError) -> None:
    """Nobody need look."""
    with client(error) as away, pytest.raises(Unavailable) as caught:
        away.submit([{"command": "true"}])
    assert "may be done" not in caught.value.hint


def test_a_look_that_got_no_answer_may_be_repeated() -> None:
    """It changes nothing."""
    with client(LOST[0]) as lost, pytest.raises(Unavailable) as caught:
        lost.counts()
    assert caught.value.hint == ""
