"""Names of things. Owns the identifier types; must not know how any of them is made (that is `ports.entropy`)."""

from __future__ import annotations

from typing import NewType

#: A task's number in its statestore: 1, 2, 3 ... in order of submission, never reused.
TaskId = NewType("TaskId", int)
#: Number of a claim, unique and rising within a statestore; guards every write that an attempt makes.
FencingToken = NewType("FencingToken", int)
#: A launch batch: the idempotency token of a launch. `[a-z][a-z0-9]{11}`, so that every cloud accepts it in a name.
BatchId = NewType("BatchId", str)
#: One slot of a batch, `{batch}-{slot}`: our name of an instance from the intent on, before any cloud knows it.
InstanceId = NewType("InstanceId", str)
#: The provider's own name of a VM (i-0abc..., projects/.../instances/..., a folder name for `local`).
VmId = NewType("VmId", str)
PoolName = NewType("PoolName", str)
#: Name of a provider profile of the configuration (several may use one driver).
ProfileName = NewType("ProfileName", str)
#: A task array or sweep: the tasks that one submission expanded to.
ArrayId = NewType("ArrayId", str)


def instance_id(batch: BatchId, slot: int) -> InstanceId:
    """The instance id of `slot` (0-based) of `batch`."""
    return InstanceId(f"{batch}-{slot}")


def slot_of(instance: InstanceId) -> tuple[BatchId, int]:
    """The batch and slot that an instance id names; ValueError if it names none."""
    batch, separator, slot = instance.rpartition("-")
    if not separator or not slot.isdecimal():
        raise ValueError(f"{instance!r} is not an instance id (expected BATCH-SLOT)")
    return BatchId(batch), int(slot)
