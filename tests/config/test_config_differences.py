"""What differs between two configurations, and which of it needs a restart."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_dispatch import ruling
from cloud_dispatch.config import Config, Embedded, load
from cloud_dispatch.provider.registry import plugin

BASE = {
    "dispatcher": {"state_dir": "/var/lib/x"},
    "store": {"url": "postgresql://user:secret@host/db"},
    "profiles": {"here": {"driver": "local"}},
    "pools": {"default": {"profiles": ["here"]}},
}


def configured(**changes: Any) -> Config:
    values = {name: {**BASE.get(name, {}), **changes.get(name, {})} for name in {**BASE, **changes}}
    return load(Embedded(values), plugin)


@pytest.mark.parametrize(
    ("changes", "names", "fixed"),
    [
        ({}, [], []),
        ({"caps": {"instances": 3}}, ["caps.instances"], []),
        ({"budget": {"day": "5"}}, ["budget.day"], []),
        ({"projects": {"a.b": {"budget": {"day": "5"}}}}, ["projects.a.b"], []),
        ({"profiles": {"more": {"driver": "local"}}}, ["profiles.more"], []),
        ({"profiles": {"here": {"driver": "local", "shutdown_grace": "9s"}}}, ["profiles.here.shutdown_grace"], []),
        ({"pools": {"default": {"profiles": ["here"], "end": {"idle": "7s"}}}}, ["pools.default.end.idle"], []),
        ({"timing": {"list_interval": "9s", "kill_grace": "3s"}}, ["timing.kill_grace", "timing.list_interval"], []),
        ({"timing": {"lease": "90s"}}, ["timing.lease"], ["timing.lease"]),
        ({"dispatcher": {"pause": True}}, ["dispatcher.pause"], []),
        ({"dispatcher": {"listen": "127.0.0.1:1"}}, ["dispatcher.listen"], ["dispatcher.listen"]),
        ({"dispatcher": {"deployment": "x", "pause": True}},
         ["dispatcher.deployment", "dispatcher.pause"], ["dispatcher.deployment"]),
        ({"store": {"url": "postgresql://user:other@host/db"}}, ["store.url"], ["store.url"]),
        ({"store": {"retain_logs": "1d"}}, ["store.retain_logs"], []),
        ({"limits": {"tasks_per_submission": 9}}, ["limits.tasks_per_submission"], ["limits.tasks_per_submission"]),
    ],
)  # fmt: skip
def test_each_setting_is_named_as_the_file_does(changes: Any, names: list[str], fixed: list[str]) -> None:
    """Its value is not: it may be a secret."""
    before, after = configured(), configured(**changes)
    assert ruling.changed(before, after) == names == ruling.changed(after, before)
    assert ruling.fixed(before, after) == fixed
