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


NOBODY = Payer()
