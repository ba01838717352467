"""A plan as JSON-ready values, for people and programs. Owns its words; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloud_dispatch.domain.money import format_rate
from cloud_dispatch.planner.plan import Action, Begun, Launch, Plan, Shortfall, Unsatisfiable, Waiting


def plain(decided: Plan) -> dict[str, Any]:
    """The whole plan: its `actions`, what is `waiting` and `unsatisfiable`, and which pools are `short`."""
    return {
        "actions": [plain_action(action) for action in decided.actions],
        "waiting": [plain_answer(waiting) for waiting in decided.waiting],
        "unsatisfiable": [plain_answer(never) for never in decided.unsatisfiable],
        "short": [plain_answer(shortfall) for shortfall in decided.shortfalls],
    }


def plain_actions(decided: Plan, begun: Mapping[int, Begun]) -> list[dict[str, Any]]:
    """The actions of a plan of the past; a launch of which less was `begun` says how many, and why no more."""
    return [
        {**plain_action(action), **({"begun": less.slots, "why": less.why} if (less := begun.get(number)) else {})}
        for number, action in enumerate(decided.actions)
    ]


def plain_action(action: Action) -> dict[str, Any]:
    """One action, with its `kind` and its `reason`."""
    if isinstance(action, Launch):
        rate = action.offering.rate
        return {
            "kind": "launch",
            "pool": action.pool,
            "offering": action.offering.key,
            "slots": action.slots,
            "rate": "unknown" if rate is None else format_rate(rate),
            "reason": action.reason,
        }
    return {
        "kind": type(action).__name__.lower(),
        "instance": action.instance,
        "cause": action.cause,
        "reason": action.reason,
    }


def plain_answer(answer: Waiting | Unsatisfiable | Shortfall) -> dict[str, Any]:
    """Why something is not done."""
    if isinstance(answer, Shortfall):
        return {"pool": answer.pool, "missing": answer.missing, "reason": answer.reason}
    told = {"shape": answer.shape.describe(), "count": answer.count, "reason": answer.reason}
    return {**told, "nearest": answer.nearest} if isinstance(answer, Unsatisfiable) else told
