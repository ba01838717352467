"""Instances. Owns their life as a table, what an operator may ask of one, and the launch intent that precedes them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName, VmId
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.shape import Machine
from cloud_dispatch.domain.transition import TransitionTable


class InstanceState(StrEnum):
    INTENDED = "intended"
    LAUNCHING = "launching"
    BOOTING = "booting"
    IDLE = "idle"
    BUSY = "busy"
    OUT_OF_CONTACT = "out-of-contact"
    DRAINING = "draining"
    DRAINED = "drained"
    FAILED = "failed"
    UNKNOWN = "unknown"  # tagged as ours, not yet heard since the dispatcher started
    LOST = "lost"  # proof of absence
    TERMINATING = "terminating"
    GONE = "gone"


class InstanceEvent(StrEnum):
    LAUNCH = "launch"  # the call is about to be made
    REFUSED = "refused"  # the provider said no, definitively
    BOUND = "bound"  # a VM of the provider is this slot's
    ADOPTED = "adopted"  # found by its tags, without a row
    REGISTERED = "registered"
    WORK = "work"
    REST = "rest"
    MISSED = "missed"  # first missed heartbeat
    HEARD_IDLE = "heard-idle"
    HEARD_BUSY = "heard-busy"
    DRAIN = "drain"
    RESUME = "resume"
    DRAINED = "drained"
    FAIL = "fail"
    ABSENT = "absent"  # proof of absence
    TERMINATE = "terminate"
    GONE = "gone"  # the provider says that it is no more


_S, _E = InstanceState, InstanceEvent
#: States in which a compute service is, or may be, at work on the VM.
SERVING = (_S.IDLE, _S.BUSY, _S.OUT_OF_CONTACT, _S.DRAINING, _S.UNKNOWN)
_LIVE = (*SERVING, _S.LAUNCHING, _S.BOOTING, _S.DRAINED, _S.FAILED)

INSTANCE_TABLE: TransitionTable[InstanceState, InstanceEvent] = TransitionTable(
    "instance",
    _S.INTENDED,
    {
        (_S.INTENDED, _E.LAUNCH): _S.LAUNCHING,
        (_S.INTENDED, _E.REFUSED): _S.GONE,  # withdrawn before any call was made
        (_S.LAUNCHING, _E.REFUSED): _S.GONE,
        (_S.LAUNCHING, _E.BOUND): _S.BOOTING,
        (_S.LAUNCHING, _E.REGISTERED): _S.IDLE,  # it may speak before the launch call returns
        (_S.BOOTING, _E.REGISTERED): _S.IDLE,
        (_S.IDLE, _E.WORK): _S.BUSY,
        (_S.BUSY, _E.REST): _S.IDLE,
        (_S.IDLE, _E.MISSED): _S.OUT_OF_CONTACT,
        (_S.BUSY, _E.MISSED): _S.OUT_OF_CONTACT,
        (_S.OUT_OF_CONTACT, _E.HEARD_IDLE): _S.IDLE,
        (_S.OUT_OF_CONTACT, _E.HEARD_BUSY): _S.BUSY,
        (_S.UNKNOWN, _E.HEARD_IDLE): _S.IDLE,
        (_S.UNKNOWN, _E.HEARD_BUSY): _S.BUSY,
        (_S.UNKNOWN, _E.REGISTERED): _S.IDLE,
        (_S.BOOTING, _E.ADOPTED): _S.UNKNOWN,
        (_S.INTENDED, _E.ADOPTED): _S.UNKNOWN,
        (_S.LAUNCHING, _E.ADOPTED): _S.UNKNOWN,
        (_S.IDLE, _E.ADOPTED): _S.UNKNOWN,  # the dispatcher restarted: heard of again before anything expires
        (_S.BUSY, _E.ADOPTED): _S.UNKNOWN,
        (_S.OUT_OF_CONTACT, _E.ADOPTED): _S.UNKNOWN,
        **{(state, _E.DRAIN): _S.DRAINING for state in (_S.IDLE, _S.BUSY, _S.OUT_OF_CONTACT, _S.UNKNOWN)},
        (_S.DRAINING, _E.RESUME): _S.IDLE,
        **{(state, _E.DRAINED): _S.DRAINED for state in (_S.IDLE, _S.BUSY, _S.DRAINING, _S.UNKNOWN, _S.OUT_OF_CONTACT)},
        **{(state, _E.FAIL): _S.FAILED for state in (*SERVING, _S.LAUNCHING, _S.BOOTING)},
        **{(state, _E.TERMINATE): _S.TERMINATING for state in (*_LIVE, _S.LOST)},
        **{(state, _E.ABSENT): _S.LOST for state in _LIVE},
        **{(state, _E.GONE): _S.GONE for state in (*_LIVE, _S.LOST, _S.TERMINATING)},
    },
)
#: States that hold a slot: they count against caps until gone.
COUNTED = frozenset(InstanceState) - {_S.GONE}
ENDED = frozenset({_S.GONE})
#: What follows on these is no end of its own: it follows from the one that brought the instance there.
_OVER = frozenset({_S.DRAINED, _S.FAILED, _S.LOST, _S.TERMINATING})


class Behaviour(StrEnum):
    """Set by an operator and kept as a tag. `hold`: takes no work and is not ended. `drain`: finishes, then ends."""

    RUN = "run"
    HOLD = "hold"
    DRAIN = "drain"


@dataclass(frozen=True)
class Instance:
    """An instance: one slot of a launch batch, from its intent until it is gone.

    `rate` nano-dollars an hour at launch, `max_rate` the most that it can come to, `extra_rate` that of its disks and
    addresses. `ends_ms` is the hard end, and so long after it the VM may still bill: `end_lag_ms`, None where nobody
    but the VM itself keeps that end. `vm` is empty until the slot is bound. `template` and `image` are what it boots;
    of one that was adopted nobody knows.
    """

    id: InstanceId
    batch: BatchId
    pool: PoolName
    profile: ProfileName
    type: str
    zone: str
    market: Market
    machine: Machine
    vcpus: int
    rate: Rate | None
    state: InstanceState
    intended_ms: int
    ends_ms: int
    boot_deadline_ms: int  # a moment: not registered by then means failed
    behaviour: Behaviour = Behaviour.RUN
    vm: VmId = VmId("")
    launched_ms: int | None = None  # when the provider began to bill it, as far as known
    registered_ms: int | None = None
    drain_token: int = 0  # rises with every drain and resume; the agent confirms the one it saw
    ended_ms: int | None = None
    reason: str = ""  # why it was launched; once it ends, why it ended
    cause: str = ""  # a word for why it ended: idle, drained, boot-deadline, out-of-contact, refused ...
    busy_ms: int = 0  # union of the intervals in which a task ran
    minimum_ms: int = 0
    increment_ms: int = 1000
    max_rate: Rate | None = None
    extra_rate: Rate = Rate(0)
    end_lag_ms: int | None = None
    template: str = ""
    image: str = ""

    @property
    def offering_key(self) -> str:
        """The key of what it was launched as (`Offering.key`)."""
        return f"{self.profile}/{self.type}/{self.zone}/{self.market}"

    @property
    def last_ms(self) -> int | None:
        """When the hand that keeps its hard end has ended it at the latest; None where there is no such hand."""
        return None if self.end_lag_ms is None else self.ends_ms + self.end_lag_ms

    def ended_by(self, cause: str, reason: str) -> tuple[str, str]:
        """Why it ends, when something ends it for `cause` and `reason`: the word that it has where it was over
        anyway. One that was told to drain, and works, is not, nor one that an operator holds, whatever became of it:
        what takes it then is what ends it."""
        held = self.behaviour is Behaviour.HOLD and self.state is not _S.TERMINATING
        over = bool(self.cause) and self.state in _OVER and not held
        return (self.cause, self.reason) if over else (cause, reason)

    @property
    def known_last_ms(self) -> int:
        """`last_ms`; its hard end where nobody keeps that."""
        return self.ends_ms + (self.end_lag_ms or 0)


@dataclass(frozen=True, slots=True)
class LaunchIntent:
    """What is committed before a launch call: `slots` VMs of one offering, for one reason."""

    batch: BatchId
    pool: PoolName
    offering_key: str
    slots: int
    intended_ms: int
    reason: str
