"""How slots become VMs: the address and the interface first, then the VM, each by a name of ours. Owns what is made and
cleared away, and how a creation that was accepted is followed to its end.

A repeat makes only what is missing: the VM is asked for with `If-None-Match: *`, so that one which is there stays as it
is. By its name it is found, by its batch's tag it is told from somebody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from azure.core import MatchConditions

from cloud_dispatch.domain.ids import InstanceId, VmId
from cloud_dispatch.domain.tags import BATCH
from cloud_dispatch.provider.errors import (
    InDoubt,
    InvalidRequest,
    ProviderError,
    RateLimited,
    Transient,
    VmNotFound,
)
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult, LeftoverKind, Operation, Vm
from cloud_dispatch_azure import translate
from cloud_dispatch_azure.calls import Accepted, Calls, Clients
from cloud_dispatch_azure.catalogue import Sold
from cloud_dispatch_azure.errors import EXISTS, Asked, of_failure
from cloud_dispatch_azure.images import Image
from cloud_dispatch_azure.operations import Token
from cloud_dispatch_azure.settings import AzureSettings

#: An address or interface is there in a second or two; what takes longer is asked for again with the next launch.
_LOOKS, _LOOK_S = 20, 0.5
_PARTS = {
    LeftoverKind.DISK: ("compute", "disks"),
    LeftoverKind.NIC: ("network", "network_interfaces"),
    LeftoverKind.ADDRESS: ("network", "public_ip_addresses"),
}
#: What a creation refers to is not there.
_LACKS = "InvalidResourceReference"
_MADE, _FAILED = "succeeded", ("failed", "canceled")
#: Of a creation: a later operation, as a change of tags, took its place, and the VM tells what became of it.
_PREEMPTED = "OperationPreempted"


@dataclass(frozen=True, slots=True)
class _Slot:
    """What a slot's part of a launch came to: a VM, or an operation that makes it."""

    vm: Vm | None = None
    pending: Operation | None = None


def dispatched(
    group: str, operation: str, *arguments: Any, service: str = "compute", **more: Any
) -> Callable[..., Any]:
    """A long-running call of the SDK, for `Calls.begin`."""

    def begin(clients: Clients, **how: Any) -> Any:
        return getattr(getattr(getattr(clients, service), group), operation)(*arguments, **more, **how)

    return begin


class Launching:
    """Creations and deletions of one profile."""

    def __init__(self, calls: Calls, settings: AzureSettings, now: Callable[[], int]) -> None:
        self._calls = calls
        self._settings = settings
        self._now = now

    async def launch(self, request: LaunchRequest, user_data: bytes, image: Image, size: Sold) -> LaunchResult:
        """All slots at once. Doubt about one is doubt about the launch: repeated, it finds what is there."""
        answers = await asyncio.gather(
            *(self._slot(request, instance, user_data, image, size) for instance in request.instances),
            return_exceptions=True,
        )
        refusals: list[ProviderError] = []
        slots: list[_Slot] = []
        for answer in answers:
            if isinstance(answer, _Slot):
                slots.append(answer)
            elif isinstance(answer, ProviderError) and not isinstance(answer, InDoubt):
                refusals.append(answer)
            else:
                raise answer
        if refusals and not slots:
            raise refusals[0]
        vms = tuple(slot.vm for slot in slots if slot.vm)
        pending = tuple(slot.pending for slot in slots if slot.pending)
        return LaunchResult(vms, refusals[0] if refusals else None, pending)

    async def _slot(
        self, request: LaunchRequest, instance: InstanceId, user_data: bytes, image: Image, size: Sold
    ) -> _Slot:
        asked = Asked("launch", changes=True, offering=request.offering, vm=False)
        settings, group = self._settings, self._settings.resource_group
        try:
            nic = await self._interface(request, instance, asked)
            body = translate.vm_body(request, instance, settings, user_data, image, size, nic)
            begin = dispatched(
                "virtual_machines", "begin_create_or_update", group, instance, body,
                etag="*", match_condition=MatchConditions.IfMissing,
            )  # fmt: skip
            accepted = await self._calls.begin(asked, begin)
        except InDoubt:
            raise
        except ProviderError as error:
            return await self._refused(request, instance, error)
        return self._begun(request, instance, accepted)

    async def _interface(self, request: LaunchRequest, instance: InstanceId, asked: Asked) -> str:
        """The id of its interface, with a public address where the settings want one."""
        settings, address = self._settings, ""
        if settings.public_address:
            body = translate.address_body(request, settings)
            address = await self._part(LeftoverKind.ADDRESS, translate.address_name(instance), body, asked)
        body = translate.nic_body(request, settings, address)
        return await self._part(LeftoverKind.NIC, translate.nic_name(instance), body, asked)

    async def _refused(self, request: LaunchRequest, instance: InstanceId, error: ProviderError) -> _Slot:
        """What there is after a creation that Azure refused, of the VM or of what it needs: the VM by that name where
        an earlier request for the batch has made it. What it would need is cleared away only where there is none: else
        it is that one's."""
        try:
            found = await self._shown(instance)
        except VmNotFound:
            if error.code in EXISTS:
                raise Transient(f"launch: {instance} was there, and is no more") from error
            await self._clear(instance)
            if error.code == _LACKS and translate.nic_name(instance) in error.message.partition(" referenced by ")[0]:
                text = f"launch: the interface of {instance} is still on its way out, after a launch that was refused"
                raise Transient(text, code=error.code) from error
            raise error from None
        except ProviderError as unseen:
            text = f"{error.message}; whether there is a VM all the same is not told: {unseen.message}"
            raise InDoubt(text, code=error.code) from error
        if (found.get("tags") or {}).get(BATCH) == request.batch:
            return self._there(request, instance, found)
        if error.code in EXISTS:
            text = f"launch: the name {instance} is taken by a VM that is not of the batch {request.batch}"
            raise InvalidRequest(text, code=error.code) from error
        raise error

    def _begun(self, request: LaunchRequest, instance: InstanceId, accepted: Accepted) -> _Slot:
        state = str((accepted.document.get("properties") or {}).get("provisioningState") or "").lower()
        if state == _MADE:
            return _Slot(vm=translate.vm(accepted.document))
        token = Token.of(instance, accepted.poll, request.offering)
        return _Slot(pending=Operation(token.encode(), request.batch, (instance,)))

    def _there(self, request: LaunchRequest, instance: InstanceId, found: Mapping[str, Any]) -> _Slot:
        """The VM that has the slot's name already."""
        if _state(found) in ("creating", *_FAILED):
            token = Token.of(instance, "", request.offering)
            return _Slot(pending=Operation(token.encode(), request.batch, (instance,)))
        return _Slot(vm=translate.vm(found))

    async def resume(self, operation: Operation) -> LaunchResult:
        """One look. A creation that failed leaves a VM, whose disks bill: it is a shortfall once that is gone."""
        token = Token.decode(operation.token)
        asked = Asked("resume", offering=token.offering)
        progress = await self._calls.progress(asked, token.poll) if token.poll else None
        if progress is not None and not progress.done:
            return LaunchResult((), pending=(operation,))
        try:
            found = await self._shown(token.vm)
        except VmNotFound:
            if progress is not None and progress.failed:
                return LaunchResult((), of_failure(progress.code, progress.message, asked))
            return LaunchResult((), Transient(f"resume: there is no VM {token.vm}", code="NotFound"))
        state = _state(found)
        if progress is not None and progress.code == _PREEMPTED and state not in (*_FAILED, "deleting"):
            progress = None
        # The state is that of the last change: of a VM that was made, a change that failed is no failed creation.
        if state in _FAILED if progress is None else progress.failed:
            with contextlib.suppress(RateLimited, Transient, InDoubt, VmNotFound):
                if state != "deleting":
                    await self.delete(VmId(token.vm))
            return LaunchResult((), pending=(operation,))
        if state == "creating" and progress is None:
            return LaunchResult((), pending=(operation,))
        return LaunchResult((translate.vm(found),))

    async def delete(self, vm: VmId) -> None:
        """Ask for a VM to be deleted, and with it all that it holds."""
        group = self._settings.resource_group
        await self._calls.begin(
            Asked("terminate", changes=True, vm=True), dispatched("virtual_machines", "begin_delete", group, vm)
        )

    async def delete_part(self, kind: LeftoverKind, name: str) -> None:
        service, operations = _PARTS[kind]
        group = self._settings.resource_group
        await self._calls.begin(
            Asked(f"delete {kind}", changes=True, vm=True),
            dispatched(operations, "begin_delete", group, name, service=service),
        )

    async def _part(self, kind: LeftoverKind, name: str, body: Mapping[str, Any], asked: Asked) -> str:
        """The id of an address or interface, once it can be used. Asked for again it stays what it is."""
        service, operations = _PARTS[kind]
        group = self._settings.resource_group
        begin = dispatched(operations, "begin_create_or_update", group, name, body, service=service)
        made = (await self._calls.begin(asked, begin)).document
        look = Asked(asked.call, vm=True)
        for _ in range(_LOOKS):
            state = _state(made)
            if state == _MADE:
                return str(made["id"])
            if state in _FAILED:
                raise Transient(f"launch: the {kind} {name} could not be made")
            await asyncio.sleep(_LOOK_S)
            with contextlib.suppress(VmNotFound):  # it was accepted: Azure does not show it everywhere yet
                made = await self._calls.once(
                    look, lambda clients: getattr(getattr(clients, service), operations).get(group, name)
                )
        raise Transient(f"launch: the {kind} {name} is not made yet")

    async def _clear(self, instance: str) -> None:
        """After a refusal nobody needs them; what stays all the same is found as a leftover."""
        parts = [(LeftoverKind.NIC, translate.nic_name(instance))]
        if self._settings.public_address:
            parts.append((LeftoverKind.ADDRESS, translate.address_name(instance)))
        for kind, name in parts:
            with contextlib.suppress(ProviderError):
                await self.delete_part(kind, name)

    async def _shown(self, vm: str) -> dict[str, Any]:
        group = self._settings.resource_group
        return await self._calls.once(
            Asked("get", vm=True),
            lambda clients: clients.compute.virtual_machines.get(group, vm, expand="instanceView"),
        )


def _state(found: Mapping[str, Any]) -> str:
    return str((found.get("properties") or {}).get("provisioningState") or "").lower()
