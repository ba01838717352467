"""Azure's scheduled events, as the agent reads them by the driver's template variables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloud_dispatch.agent.identity import NoticeSource
from cloud_dispatch.agent.notices import left_ms
from cloud_dispatch.wire.codec import decode
from cloud_dispatch_azure import NOTICES
from tests.agent.test_notices import documented

VM, NOW_MS = "b1-0", 1_474_309_767_000  # Mon, 19 Sep 2016 18:29:27 GMT


def events(*found: dict[str, Any]) -> str:
    return json.dumps({"DocumentIncarnation": 2, "Events": list(found)})


def event(**more: Any) -> dict[str, Any]:
    return {
        "EventId": "602d9444", "EventStatus": "Scheduled", "EventType": "Preempt", "ResourceType": "VirtualMachine",
        "Resources": ["b1-1", VM], "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT", "Description": "",
        "EventSource": "Platform", "DurationInSeconds": -1, **more,
    }  # fmt: skip


@pytest.fixture
def source() -> NoticeSource:
    (one,) = NOTICES
    found: NoticeSource = decode(NoticeSource, json.dumps(one).encode())
    return found


def test_notices_are_what_the_docs_say(source: NoticeSource) -> None:
    assert [source] == documented()["AZURE"]


def test_a_preemption_says_how_much_time_is_left(source: NoticeSource) -> None:
    assert left_ms(events(event()), source, VM, NOW_MS) == 20_000
    assert left_ms(events(event(EventType="Reboot"), event()), source, VM, NOW_MS) == 20_000


def test_an_event_that_has_begun_has_no_time(source: NoticeSource) -> None:
    """Then it is taken for the half minute that Azure gives."""
    assert left_ms(events(event(EventStatus="Started", NotBefore="")), source, VM, NOW_MS) == 30_000


@pytest.mark.parametrize("more", [{"EventType": "Reboot"}, {"EventType": "Freeze"}, {"Resources": ["b1-00"]}], ids=str)
def test_what_is_no_preemption_of_this_vm_is_no_notice(source: NoticeSource, more: dict[str, Any]) -> None:
    assert left_ms(events(event(**more)), source, VM, NOW_MS) is None
    assert left_ms(events(), source, VM, NOW_MS) is None
