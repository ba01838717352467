"""The reaper's rule: which VMs end now, by nothing but their tags and the time. Pure.

Whatever ends VMs at their hard end without a dispatcher asks this one function: the local provider's watchdog, the
functions in clouds' accounts (`cloud_dispatch/reapers`), the simulated clouds, `cloud-dispatch reap --overdue`. It has
no store and no memory, so that it can also stand alone beside a cloud account: it needs the standard library and the
domain only.

A hand that ends machines which nobody watches must err towards leaving them. So a VM is ended only if its tags are ours
and whole by the same reading that the dispatcher adopts VMs by (`tags.decode`). An `ends_at` of 0 is no end. One that
can't be read is no end either: such tags are not whole. `unreadable` tells of those, so that an operator sees them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.tags import DEPLOYMENT, decode

#: A VM as a reaper sees it: the provider's name of it, and its tags.
Tagged = tuple[VmId, Mapping[str, str]]


def overdue(vms: Iterable[Tagged], now: int, deployment: str = "") -> list[VmId]:
    """The VMs whose hard end has come, in the order given; `now` in ms since the epoch, and the end itself is past.

    `deployment` "" stands for every deployment of ours. A VM whose deployment tag is empty belongs to none.
    """
    return told_apart(vms, now, deployment)[0]


def unreadable(vms: Iterable[Tagged], deployment: str = "") -> list[VmId]:
    """The VMs that name the deployment in their tags and lack something or hold what can't be read: never ended here,
    whatever the time, and nobody else's either."""
    return told_apart(vms, 0, deployment)[1]


def told_apart(vms: Iterable[Tagged], now: int, deployment: str = "") -> tuple[list[VmId], list[VmId]]:
    """Those that are `overdue` and those that are `unreadable`, by reading each VM's tags once."""
    late: list[VmId] = []
    puzzling: list[VmId] = []
    for vm, worn in vms:
        named = worn.get(DEPLOYMENT)
        if not named or deployment not in ("", named):
            continue
        facts = decode(worn)
        if facts is None:
            puzzling.append(vm)
        elif 0 < facts.ends_ms <= now:
            late.append(vm)
    return late, puzzling
