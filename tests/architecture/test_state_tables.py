"""Every state machine of the domain is whole: states are reachable, ends are ends, and an end can be reached."""

from __future__ import annotations

import importlib
import pkgutil
from enum import StrEnum
from typing import Any

import pytest

import cloud_dispatch.domain
from cloud_dispatch.domain.instance import ENDED
from cloud_dispatch.domain.task import TERMINAL
from cloud_dispatch.domain.transition import TransitionTable

#: The end states of each table; a new table has to say its own here.
ENDS: dict[str, frozenset[Any]] = {"instance": ENDED, "task": TERMINAL}


def tables() -> list[TransitionTable[Any, Any]]:
    found: dict[int, TransitionTable[Any, Any]] = {}
    for module in pkgutil.walk_packages(cloud_dispatch.domain.__path__, "cloud_dispatch.domain."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, TransitionTable):
                found[id(value)] = value
    return list(found.values())


def faults(table: TransitionTable[Any, Any], ends: frozenset[Any]) -> list[str]:
    """What is wrong with a table, one line each."""
    states = set(type(table.initial))
    events = {event for _, event in table.arrows}
    wrong = [f"{state} can't be reached" for state in states - table.reachable()]
    wrong += [f"{state} is an end but has exits: {sorted(table.exits(state))}" for state in ends if table.exits(state)]
    wrong += [f"{state} has no exit but is no end" for state in states - ends if not table.exits(state)]
    wrong += [f"{event} has no arrow" for event in set(type(next(iter(events)))) - events]
    for state in states - ends:
        seen = {state}
        frontier = [state]
        while frontier:
            new = table.exits(frontier.pop()) - seen
            seen |= new
            frontier.extend(new)
        if not seen & ends:
            wrong.append(f"from {state} no end can be reached")
    return wrong


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.subject)
def test_states_are_reachable_and_ends_are_ends(table: TransitionTable[Any, Any]) -> None:
    """Every state is reachable, every end has no exits, and every other state can come to an end."""
    assert not faults(table, ENDS[table.subject])


class Lamp(StrEnum):
    OFF = "off"
    ON = "on"
    BROKEN = "broken"


class Switch(StrEnum):
    PRESS = "press"
    BREAK = "break"


_WHOLE = {
    (Lamp.OFF, Switch.PRESS): Lamp.ON,
    (Lamp.ON, Switch.PRESS): Lamp.OFF,
    (Lamp.ON, Switch.BREAK): Lamp.BROKEN,
}


@pytest.mark.parametrize(
    ("arrows", "complaint"),
    [
        ({(Lamp.OFF, Switch.PRESS): Lamp.ON, (Lamp.ON, Switch.PRESS): Lamp.OFF}, "broken can't be reached"),
        ({**_WHOLE, (Lamp.BROKEN, Switch.PRESS): Lamp.ON}, "broken is an end but has exits"),
        ({(Lamp.OFF, Switch.PRESS): Lamp.ON, (Lamp.OFF, Switch.BREAK): Lamp.BROKEN}, "on has no exit but is no end"),
        ({(Lamp.OFF, Switch.BREAK): Lamp.BROKEN, (Lamp.ON, Switch.BREAK): Lamp.OFF}, "press has no arrow"),
        ({(Lamp.OFF, Switch.PRESS): Lamp.ON, (Lamp.ON, Switch.PRESS): Lamp.OFF}, "from on no end can be reached"),
    ],
)
def test_a_broken_table_is_found(arrows: dict[tuple[Lamp, Switch], Lamp], complaint: str) -> None:
    """Each kind of hole that is planted in a table is named."""
    assert not faults(TransitionTable("lamp", Lamp.OFF, _WHOLE), frozenset({Lamp.BROKEN}))
    found = faults(TransitionTable("lamp", Lamp.OFF, arrows), frozenset({Lamp.BROKEN}))
    assert any(complaint in line for line in found)
