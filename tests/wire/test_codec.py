"""The standard-library codec: round trips, tolerance to neighbouring versions, places in errors, names."""

from __future__ import annotations

import json
from dataclasses import fields

import msgspec
import pytest

from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import TaskSpec, Transfer
from cloud_dispatch.wire import codec, messages


def test_messages_come_back_as_sent() -> None:
    """Nested messages, lists and optionals survive."""
    reply = messages.SyncReply(
        seq=3, claims=[messages.Order(task=1, token=2, spec=messages.OrderSpec(argv=["true"], env=[("A", "ü")]))],
        policy=messages.Policy(health_checks=[messages.HealthCheck(argv=["x"])]),
    )  # fmt: skip
    assert codec.decode(messages.SyncReply, codec.encode(reply)) == reply


def test_both_codecs_speak_the_same() -> None:
    """What the agent's codec writes the dispatcher's reads, and the other way round."""
    request = messages.SyncRequest(
        held=[messages.HeldClaim(1, 2, 3)], results=[messages.Result(task=1, exit_code=None)]
    )
    assert msgspec.json.decode(codec.encode(request), type=messages.SyncRequest) == request
    assert codec.decode(messages.SyncRequest, msgspec.json.encode(request)) == request


def test_unknown_fields_are_ignored_and_missing_ones_default() -> None:
    """Neighbouring versions understand each other."""
    assert codec.decode(messages.SyncReply, b'{"seq": 9, "from_the_future": {}}') == messages.SyncReply(seq=9)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "SyncReply: expected dict"),
        (b'{"seq": "x"}', "SyncReply.seq: expected int, got str"),
        (b'{"claims": [{"task": true}]}', r"SyncReply.claims\[0\].task: expected int, got bool"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_bad_messages_name_the_place(body: bytes, words: str) -> None:
    """A ValueError says where."""
    with pytest.raises(ValueError, match=words):
        codec.decode(messages.SyncReply, body)


def test_an_order_reads_the_stored_spec_of_a_task() -> None:
    """The stored JSON of a TaskSpec goes to the agent as it is: OrderSpec has the same names and meanings."""
    spec = TaskSpec(
        argv=("a", "b"), name="n", env=(("K", "v"),), cwd="w", shape=Shape(Resources(500, 7, 8, 1), exclusive=True),
        inputs=(Transfer("p", "u"),), outputs=(Transfer("o"),), max_runtime_ms=5, project="x", array_index=4,
        checkpoint_signal="SIGUSR1",
    )  # fmt: skip
    order = codec.decode(messages.OrderSpec, msgspec.json.encode(spec))
    assert {f.name for f in fields(messages.OrderSpec)} <= {f.name for f in fields(TaskSpec)}
    assert order.argv == ["a", "b"]
    assert order.env == [("K", "v")]
    assert order.shape == messages.OrderShape(messages.Quantities(500, 7, 8, 1), True, 0)
    assert order.inputs == [messages.FileTransfer("p", "u")]
    assert order.checkpoint_signal == "SIGUSR1"
    assert json.loads(msgspec.json.encode(spec))["array_index"] == order.array_index == 4


def test_what_can_not_be_said_in_utf_8_is_said_without() -> None:
    """A name that a task has made can't keep its agent from speaking; the dispatcher can read the rest."""
    body = codec.encode(messages.Result(7, 1, "output-failed", detail="pipe a\udcffb is not a file"))
    for read in (codec.decode(messages.Result, body), msgspec.json.decode(body, type=messages.Result)):
        assert read.detail == "pipe a?b is not a file"
