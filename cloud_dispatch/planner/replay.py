"""Snapshots and plans as JSON bytes, for the record. Owns their stored form and its version; knows no store.

`plan(decode_snapshot(encode_snapshot(s))) == plan(s)`. Equal values have equal bytes. Offerings, which launches name
again and again, are written once a plan. Reading ignores fields that it does not know, and fields added later have
defaults, so that a newer version reads what an older one stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import msgspec

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.planner.plan import Action, Begun, Drain, Launch, Plan, Shortfall, Terminate, Unsatisfiable, Waiting
from cloud_dispatch.planner.snapshot import Snapshot, Supply


@dataclass(frozen=True, slots=True)
class _Launch:
    pool: PoolName
    offering: int
    slots: int
    reason: str
    alternatives: tuple[int, ...] = ()
    begun: Begun | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """One action: exactly one of these is given."""

    launch: _Launch | None = None
    drain: Drain | None = None
    terminate: Terminate | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    offerings: tuple[Offering, ...] = ()
    actions: tuple[_Step, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    unsatisfiable: tuple[Unsatisfiable, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()


class Record(msgspec.Struct, frozen=True):
    """Plan number `id`, made at `at_ms`, outside its statestore: what the API gives and a file holds. Its parts are
    texts as they are stored."""

    id: int
    at_ms: int
    snapshot: msgspec.Raw
    plan: msgspec.Raw


#: All that was planned was begun, as far as is known.
NONE_LESS: Mapping[int, Begun] = {}
_ENCODER = msgspec.json.Encoder()
_FIELDS = tuple(field.name for field in fields(Snapshot))
_SNAPSHOT = msgspec.json.Decoder(Snapshot)
_PLAN = msgspec.json.Decoder(_Plan)
_RECORD = msgspec.json.Decoder(Record)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """`snapshot` as JSON."""
    parts = {name: getattr(snapshot, name) for name in _FIELDS}
    return _ENCODER.encode({**parts, "supply": [_encoded(supply) for supply in snapshot.supply]})


def _encoded(supply: Supply) -> msgspec.Raw:
    """`supply` as JSON, kept with it like a cached property: it never changes, and many snapshots have it."""
    kept = vars(supply)
    encoded: msgspec.Raw | None = kept.get("encoded")
    if encoded is None:
        encoded = kept["encoded"] = msgspec.Raw(_ENCODER.encode(supply))
    return encoded


def decode_snapshot(stored: bytes) -> Snapshot:
    """What `encode_snapshot` wrote; InvalidInput for anything else."""
    try:
        return _SNAPSHOT.decode(stored)
    except msgspec.DecodeError as error:
        raise _unreadable("snapshot", error) from error


def encode_plan(plan: Plan, begun: Mapping[int, Begun] = NONE_LESS) -> bytes:
    """`plan` as JSON. `begun`: by the number of their action, launches of which less was begun."""
    offerings: dict[str, tuple[int, Offering]] = {}
    for action in plan.actions:
        if isinstance(action, Launch):
            for offering in (action.offering, *action.alternatives):
                offerings.setdefault(offering.key, (len(offerings), offering))
    steps = tuple(_step(action, offerings, begun.get(number)) for number, action in enumerate(plan.actions))
    listed = tuple(offering for _, offering in offerings.values())
    return _ENCODER.encode(_Plan(listed, steps, plan.waiting, plan.unsatisfiable, plan.shortfalls))


def decode_plan(stored: bytes) -> Plan:
    """What `encode_plan` wrote; InvalidInput for anything else."""
    try:
        read = _PLAN.decode(stored)
        actions = tuple(_actions(read))
    except (msgspec.DecodeError, IndexError) as error:
        raise _unreadable("plan", error) from error
    return Plan(actions, read.waiting, read.unsatisfiable, read.shortfalls)


def decode_begun(stored: bytes) -> Mapping[int, Begun]:
    """The launches of which less was begun than is planned in `stored`, by the number of their action; InvalidInput for
    anything else than `encode_plan` wrote."""
    try:
        steps = _PLAN.decode(stored).actions
    except msgspec.DecodeError as error:
        raise _unreadable("plan", error) from error
    return {number: step.launch.begun for number, step in enumerate(steps) if step.launch and step.launch.begun}


def decode_record(text: bytes) -> Record:
    """The record in `text`; InvalidInput for anything else. Other fields are left aside; its parts are read later."""
    try:
        return _RECORD.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(
            f"this is not the record of a plan: {error}", hint="expected the JSON that `replay --json` prints"
        ) from error


def _step(action: Action, offerings: dict[str, tuple[int, Offering]], begun: Begun | None) -> _Step:
    if isinstance(action, Drain):
        return _Step(drain=action)
    if isinstance(action, Terminate):
        return _Step(terminate=action)
    others = tuple(offerings[offering.key][0] for offering in action.alternatives)
    return _Step(_Launch(action.pool, offerings[action.offering.key][0], action.slots, action.reason, others, begun))


def _actions(read: _Plan) -> Iterable[Action]:
    for step in read.actions:
        if step.launch is not None:
            found = step.launch
            others = tuple(read.offerings[index] for index in found.alternatives)
            yield Launch(found.pool, read.offerings[found.offering], found.slots, found.reason, others)
        if step.drain is not None:
            yield step.drain
        if step.terminate is not None:
            yield step.terminate


def _unreadable(what: str, error: Exception) -> InvalidInput:
    return InvalidInput(f"this is not a stored {what}: {error}", hint="it may come from a newer version")
