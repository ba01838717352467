"""State machines as tables. Owns the one function that applies a table, and the questions that tests ask of one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

from cloud_dispatch.domain.errors import IllegalTransition

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class TransitionTable(Generic[S, E]):
    """`(state, event) -> state` for one kind of thing; anything not in the table is a programmer's error."""

    def __init__(self, subject: str, initial: S, arrows: Mapping[tuple[S, E], S]) -> None:
        self.subject = subject
        self.initial = initial
        self.arrows: Mapping[tuple[S, E], S] = MappingProxyType(dict(arrows))

    def allows(self, state: S, event: E) -> bool:
        return (state, event) in self.arrows

    def apply(self, state: S, event: E) -> S:
        """The next state; IllegalTransition when the table has no such arrow."""
        try:
            return self.arrows[state, event]
        except KeyError:
            raise IllegalTransition(f"a {self.subject} that is {state} has no arrow for {event}") from None

    def exits(self, state: S) -> frozenset[S]:
        """The states that `state` can become, itself excluded."""
        return frozenset(after for (before, _), after in self.arrows.items() if before == state) - {state}

    def reachable(self) -> frozenset[S]:
        """Every state that can be reached from the initial one, itself included."""
        seen, frontier = {self.initial}, [self.initial]
        while frontier:
            new = self.exits(frontier.pop()) - seen
            seen |= new
            frontier.extend(new)
        return frozenset(seen)
