"""Who a task is done for. Owns the pair that its spending counts for."""

from __future__ import annotations

from typing import NamedTuple


class Payer(NamedTuple):
    """A project and a user, as tasks carry them; empty where a task names none."""

    project: str = ""
    user: str = ""

    def __str__(self) -> str:
        """`project p, user u`; "" for nobody."""
        named = (("project", self.project), ("user", self.user))
        return ", ".join(f"{scope} {name}" for scope, name in named if name)


class Refused(NamedTuple):
    """Tasks that a payer's limits did not admit, and why: such as are expected to take `expected_ms` and longer (0:
    unknown), where one of them comes to `cost` or more, nano-dollars an hour times milliseconds."""

    expected_ms: int
    cost: int
    why: str

    def covers(self, expected_ms: int) -> bool:
        """Whether a task is one of them that is expected to take so long, 0 unknown."""
        return expected_ms >= self.expected_ms > 0 if expected_ms else not self.expected_ms


NOBODY = Payer()
