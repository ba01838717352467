"""Launches that Google has accepted and not finished. Owns the token that says which, and what their ends mean. Pure.

The token has all that is needed to go on in another process: where, what of, and the name of each slot's operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.cloud import compute_v1

from cloud_dispatch.domain.ids import BatchId, InstanceId, ProfileName
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.provider.errors import InvalidRequest, ProviderError, Transient
from cloud_dispatch.provider.spi import LaunchResult, Operation, Vm, VmState
from cloud_dispatch_gcp import errors, machines
from cloud_dispatch_gcp.settings import region_of

_DONE = int(compute_v1.Operation.Status.DONE)


@dataclass(frozen=True, slots=True)
class Asking:
    """A token, taken apart: the operation of each slot, and as much of the offering as an error can speak of."""

    offering: Offering
    names: Mapping[InstanceId, str]

    @property
    def zone(self) -> str:
        return self.offering.zone


@dataclass(frozen=True, slots=True)
class Told:
    """An operation: whether it has ended, and by which error."""

    done: bool
    error: ProviderError | None = None


def operation(batch: BatchId, offering: Offering, names: Mapping[InstanceId, str]) -> Operation:
    """What is to be asked for again. Slots and names are in the same order."""
    token = f"{offering.zone}/{offering.type.name}/{offering.market}/{','.join(names.values())}"
    return Operation(token, batch, tuple(names))


def read(operation: Operation, profile: ProfileName) -> Asking:
    """InvalidRequest for what `operation` never made."""
    parts = operation.token.split("/")
    names = parts[-1].split(",")
    if len(parts) != 4 or len(names) != len(operation.instances) or parts[2] not in set(Market):
        raise InvalidRequest(f"{operation.token}: no operation of this driver's")
    zone, name, market, _ = parts
    made = InstanceType(name, Resources(), architecture=machines.architecture_of(name), family=machines.quota_of(name))
    offering = Offering(profile, made, zone, Market(market), None, region=region_of(zone))
    return Asking(offering, dict(zip(operation.instances, names, strict=True)))


def told(found: Any, offering: Offering) -> Told:
    """An operation as Google shows it, a plain protocol buffer."""
    if found.status != _DONE:
        return Told(done=False)
    asked = errors.Asked("instances.insert", changes=True, offering=offering)
    return Told(done=True, error=errors.of_operation(found.error.errors, found.http_error_status_code, asked))


def by_vms(asked: Asking, there: Mapping[InstanceId, Vm]) -> tuple[dict[str, Told], list[str]]:
    """What VMs show of their operations, and the names of those that have to be asked for. A VM that is being made is
    under way, and one that runs was made: that is nobody's question. One that ends may be a launch that has failed."""
    shown = {slot: vm.state for slot, vm in there.items()}
    told = {name: Told(done=False) for slot, name in asked.names.items() if shown.get(slot) is VmState.PENDING}
    known = (VmState.PENDING, VmState.RUNNING)
    return told, [name for slot, name in asked.names.items() if shown.get(slot) not in known]


def unseen(asked: Asking, known: Mapping[str, Told], there: Mapping[InstanceId, Vm]) -> list[InstanceId]:
    """The slots whose operations have ended, or were forgotten, and of which no list shows a VM."""
    return [slot for slot, name in asked.names.items() if slot not in there and (name not in known or known[name].done)]


def answer(
    operation_: Operation, asked: Asking, known: Mapping[str, Told], there: Mapping[InstanceId, Vm]
) -> LaunchResult:
    """What has become of the slots. `known`: the operations that Google still has, `there`: the VMs of those that have
    ended. A VM that is there is the answer, whatever its operation says, but for one that ends because its operation
    failed: that was no launch, and why is told once it is gone."""
    vms, left = [], {}
    shortfall: ProviderError | None = None
    for slot, name in asked.names.items():
        what = known.get(name)
        failed = what is not None and what.error is not None
        ends = slot in there and there[slot].state is VmState.STOPPING
        if what is not None and (not what.done or (failed and ends)):
            left[slot] = name
        elif slot in there:
            vms.append(there[slot])
        elif what is not None and what.error is not None:
            shortfall = shortfall or what.error
        else:
            shortfall = shortfall or Transient(f"{slot}: it was made, and is gone again")
    pending = (operation(operation_.batch, asked.offering, left),) if left else ()
    return LaunchResult(tuple(vms), shortfall, pending)
