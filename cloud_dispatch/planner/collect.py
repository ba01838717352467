"""Ending what is over: instances on which nothing of value is left. Owns no judgement of health, only what follows.

What is terminating already is asked again by the reaper until its provider says that it is gone, not here.
"""

from __future__ import annotations

from collections.abc import Iterator

from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.planner.plan import Terminate
from cloud_dispatch.planner.snapshot import Snapshot

_S = InstanceState
_OVER = {
    _S.DRAINED: "it has finished what it ran and is drained",
    _S.FAILED: "it failed; what it ran was taken back",
    _S.LOST: "its provider does not know it any more; deleting once more makes sure that nothing of it is billed",
}


#: Nothing is known of a VM yet: what a launch brings is ended once it is there.
_NO_VM = (_S.INTENDED, _S.LAUNCHING)


def collect(snapshot: Snapshot) -> Iterator[Terminate]:
    """Terminations, in the order of the supply. None where the provider can't be listed, none of what an operator
    holds; unless all is stopped."""
    if snapshot.stop.drains:
        yield from _stopped(snapshot)
    if snapshot.stop.terminates:
        return
    if not any(alike[0].state in _OVER for alike in snapshot.alike):
        return
    silent = frozenset(snapshot.silent)
    for supply in snapshot.supply:
        reason = _OVER.get(supply.state)
        if reason and supply.profile not in silent and supply.behaviour is not Behaviour.HOLD:
            yield Terminate(supply.instance, str(supply.state), reason)


def _stopped(snapshot: Snapshot) -> Iterator[Terminate]:
    """Everything; where it is only drained, what has nothing to finish because it has not come up yet."""
    everything, why = snapshot.stop.terminates, snapshot.stop.why
    for supply in snapshot.supply:
        if supply.state is _S.BOOTING and (everything or supply.behaviour is not Behaviour.HOLD):
            yield Terminate(supply.instance, "stopped", f"everything is drained, and it has not come up yet: {why}")
        elif everything and supply.state not in (*_NO_VM, _S.TERMINATING):
            yield Terminate(supply.instance, "stopped", f"everything is ended: {why}")
