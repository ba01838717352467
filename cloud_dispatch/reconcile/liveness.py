"""Is it alive? Owns what silence, a missed boot and an agent's own words mean for an instance. Pure.

An instance is out of contact after the first missed heartbeat and failed once its claims' lease has run out: by then
its agent has killed what it could not renew (promise P1), so that a task put back is not still running there.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState
from cloud_dispatch.ports.fleet import Heard
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.wire.messages import ADVISED, FULL, PREEMPTED

_S, _E = InstanceState, InstanceEvent
#: An agent's words count in these states; in the latter two any of them are news. (Named once: a member of an enum is
#: found through its metaclass, ten times as slowly as a name, and every sync passes here.)
_HEARD = frozenset({_S.IDLE, _S.BUSY, _S.OUT_OF_CONTACT, _S.DRAINING, _S.UNKNOWN})
_MISSED = frozenset({_S.OUT_OF_CONTACT, _S.UNKNOWN})
#: Ends that an agent reports of itself which mean that the machine is not to be trusted.
FAILURES = frozenset({"health", "unkillable", "failed"})
#: What an agent that drains by itself says of its provider's word, or of its VM, and what that means.
_NOTICES = {
    PREEMPTED: ("preempted", "its provider has given notice that it takes the VM back"),
    ADVISED: ("advised", "its provider says that it may well take the VM back"),
    FULL: ("health", "its disk has no room for another task"),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """An event to apply, with the word and the sentence for why."""

    event: InstanceEvent
    cause: str
    reason: str


def judge(instance: Instance, silent_ms: int, now_ms: int, timing: Timing, boots_excused_ms: int = 0) -> Verdict | None:
    """What silence means for `instance`, `silent_ms` after the last contact (or the dispatcher's start). No boot is
    late before `boots_excused_ms`."""
    state = instance.state
    if state is _S.BOOTING:
        if now_ms < max(instance.boot_deadline_ms, boots_excused_ms):
            return None
        waited = (now_ms - (instance.launched_ms or instance.intended_ms)) // 1000
        return Verdict(_E.FAIL, "boot-deadline", f"no compute service registered within {waited} s of the launch")
    if state not in _HEARD:
        return None
    if silent_ms > timing.silence_ms:
        return Verdict(_E.FAIL, "out-of-contact", f"not heard for {silent_ms // 1000} s, its claims' lease has run out")
    if silent_ms > timing.missed_ms and state in (_S.IDLE, _S.BUSY):
        return Verdict(_E.MISSED, "", "")
    return None


def event_heard(instance: Instance, said: Heard, tasks: int) -> Verdict | None:
    """What an agent's own words mean; `tasks` is how many claims it still holds. None: no news."""
    state = instance.state
    if state not in _HEARD:
        return None
    if said.state == "failed" or said.ending in FAILURES:
        cause = said.ending or "failed"
        return Verdict(_E.FAIL, cause, f"its agent says that it failed ({cause}): {said.detail or 'no detail'}")
    if said.ending:
        return Verdict(_E.DRAINED, said.ending, f"its agent ended by itself: {said.ending} {said.detail}".rstrip())
    if said.state == "draining" and said.detail in _NOTICES and state is not _S.DRAINING:
        return Verdict(_E.DRAIN, *_NOTICES[said.detail])
    if said.drain_token > instance.drain_token and said.state in ("draining", "drained") and state is not _S.DRAINING:
        return Verdict(_E.DRAIN, "drained", "its agent was told to drain after the copy that was restored was made")
    if said.state == "drained" and state is _S.DRAINING and said.drain_token == instance.drain_token and tasks == 0:
        return Verdict(_E.DRAINED, instance.cause or "drained", instance.reason)
    if state in _MISSED:
        return Verdict(_E.HEARD_BUSY if tasks else _E.HEARD_IDLE, "", "")
    return None
