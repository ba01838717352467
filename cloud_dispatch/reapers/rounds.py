"""One round of a reaper, whatever the cloud. Owns which VMs are ended, and what is told of it.

A round has no memory: what could not be ended is found again by the next. It says so by an error at its end, once all
else is done, so that the cloud's own alarm for functions that fail is the reaper's alarm. One that has seen everything
and ended all that was due leaves a sign of life where the dispatcher can read it (`domain.sign`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.reaper import Tagged, told_apart
from cloud_dispatch.domain.sign import written
from cloud_dispatch.domain.tags import DEPLOYMENT, decode

#: What tells a round to end everything of the deployment: Terraform says it when it destroys the function.
EVERYTHING = "everything"
PAUSE_S = 5.0
#: Puts the text of a sign of life where the dispatcher looks for it; raises whatever its cloud raises.
Leave = Callable[[str], None]


class Cloud(Protocol):
    """What a round needs of a cloud. Errors are the cloud's own; those of a listing end the round, but for Partial."""

    def vms(self) -> Iterable[Tagged]:
        """All VMs that may be the deployment's and are not on their way out, whole. Partial after those that could be
        seen, where there may be others."""

    def end(self, vms: Sequence[VmId]) -> Mapping[VmId, str]:
        """Have them ended with all that is theirs; those that could not be, with the reason."""


class Unfinished(Exception):
    """Some VMs that should end could not be ended: they are billed until the next round, or an operator, ends them."""


class Partial(Exception):
    """A listing has told what it can, and lacks something: what was seen is ended, and the round has failed."""


@dataclass(frozen=True)
class Round:
    """What a round saw and did. `late_ms`: for how long the one that was latest had been past its end; `problem`: why
    it may not have seen all."""

    seen: int = 0
    ended: tuple[VmId, ...] = ()
    failed: Mapping[VmId, str] = field(default_factory=dict)
    unreadable: tuple[VmId, ...] = ()
    late_ms: int = 0
    problem: str = ""

    def view(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "seen": self.seen, "ended": list(self.ended), "failed": dict(self.failed),
            "unreadable": list(self.unreadable), "late_ms": self.late_ms,
            **({"problem": self.problem} if self.problem else {}),
        }  # fmt: skip


def look(cloud: Cloud, now_ms: int, deployment: str, *, everything: bool = False) -> Round:
    """Once: end what is past its hard end, or `everything` of the deployment, also what can't be read.

    `deployment` is never "": a function that ends VMs of whoever they are must not come of a variable left empty.
    """
    if not deployment:
        raise ValueError("the deployment whose VMs are ended has no name: set DEPLOYMENT")
    worn, problem = _seen(cloud)
    wanted, puzzling = told_apart(worn.items(), now_ms, deployment)
    if everything:
        wanted = [vm for vm, tags in worn.items() if tags.get(DEPLOYMENT) == deployment]
    failed = cloud.end(wanted) if wanted else {}
    ends = [facts.ends_ms for vm in wanted if (facts := decode(worn[vm]))]
    return Round(
        seen=len(worn),
        ended=tuple(vm for vm in wanted if vm not in failed),
        failed=failed,
        unreadable=tuple(puzzling),
        late_ms=0 if everything or not ends else now_ms - min(ends),
        problem=problem,
    )


def _seen(cloud: Cloud) -> tuple[dict[VmId, Mapping[str, str]], str]:
    """What the cloud tells, and why that may not be all."""
    worn: dict[VmId, Mapping[str, str]] = {}
    try:
        for vm, tags in cloud.vms():
            worn[vm] = tags  # noqa: PERF403  what was seen before it breaks off is kept
    except Partial as lack:
        return worn, str(lack)
    return worn, ""


def look_at_all(
    clouds: Mapping[str, Cloud], now: Callable[[], int], deployment: str, *, everything: bool = False,
    leave: Leave | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """A round of each place, one line of log each, and a sign of life of it. Unfinished, when all have been looked at,
    where something is left, a place could not be looked at, or the sign could not be left."""
    told: list[dict[str, Any]] = []
    begun_ms = now()
    for place, cloud in clouds.items():
        try:
            view = look(cloud, now(), deployment, everything=everything).view()
        except Exception as error:  # whatever it is, it must not keep the other places' VMs
            view = {"problem": f"{type(error).__name__}: {error}"}
        told.append({"place": place, **view})
        sys.stdout.write(json.dumps(told[-1]) + "\n")
    if any(one.get("problem") or one.get("failed") for one in told):
        raise Unfinished(json.dumps(told))
    if leave is not None:
        _sign(leave, deployment, begun_ms, clouds)
    return told


def _sign(leave: Leave, deployment: str, begun_ms: int, places: Iterable[str]) -> None:
    try:
        leave(written(deployment, begun_ms, places))
    except Exception as error:  # all was done that is a round's to do; the dispatcher will say that it hears nothing
        problem = json.dumps([{"problem": f"no sign of life could be left: {type(error).__name__}: {error}"}])
        sys.stdout.write(problem + "\n")
        raise Unfinished(problem) from error


def end_all(
    clouds: Mapping[str, Cloud], now: Callable[[], int], deployment: str, left_s: Callable[[], float],
    sleep: Callable[[float], None],
) -> list[dict[str, Any]]:  # fmt: skip
    """End everything of the deployment, again and again until no listing has any of it: then what else is its own can
    be destroyed. Unfinished when `left_s` says that time runs out. The clouds list also what is on its way out."""
    while True:
        try:
            told = look_at_all(clouds, now, deployment, everything=True)
        except Unfinished as error:
            told, problem = [], str(error)
        else:
            problem = json.dumps(told)
            if not any(one["ended"] for one in told):
                return told
        if left_s() < 2 * PAUSE_S:
            raise Unfinished(problem)
        sleep(PAUSE_S)
