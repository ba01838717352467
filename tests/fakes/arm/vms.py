"""Operations on VMs that there are."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.fakes.arm import documents, models
from tests.fakes.arm.errors import ArmError
from tests.fakes.arm.estate import Estate
from tests.fakes.arm.launch import PATH, check_match, checked_tags
from tests.fakes.arm.records import Condition, Phase, Power, Vm
from tests.fakes.arm.routes import GROUP, SUBSCRIPTION, Answer, Session, route
from tests.fakes.faults import Call, Market

_ACTION = "Microsoft.Compute/virtualMachines"


def found(session: Session) -> Vm:
    """The VM of the path, or 404."""
    vm = _there(session)
    if vm is None:
        raise ArmError(
            "ResourceNotFound",
            f"The Resource '{_ACTION}/{session.at['vm']}' under resource group '{session.at['group']}' was not found.",
        )
    return vm


def _there(session: Session) -> Vm | None:
    estate = session.estate
    path = f"{session.path.lower().partition('/providers/')[0]}/providers/{_ACTION.lower()}/{session.at['vm'].lower()}"
    return estate.vms.get(path)


def scope(session: Session) -> Call:
    """What faults of calls about one VM are matched against."""
    vm = _there(session)
    name = session.route.name
    return Call(name, vm.size.name, vm.place, Market(vm.market)) if vm else Call(name)


def check_locks(estate: Estate, identity: str) -> None:
    """Refuse to delete what the owner has locked."""
    for lock in estate.locks:
        if identity.lower().startswith(lock):
            raise ArmError(
                "ScopeLocked",
                f"The scope '{identity}' cannot perform delete operation because following scope(s) are locked: "
                f"'{lock}'. Please remove the lock and try again.",
            )


@route("GET", PATH, "VirtualMachines_Get", f"{_ACTION}/read", queries=["$expand"], call=scope)
def get(session: Session) -> Answer:
    vm = found(session)
    late = session.staleness_ms()
    if vm.hidden_ms > session.now:
        raise ArmError("ResourceNotFound", f"The Resource '{_ACTION}/{vm.name}' was not found.")
    seen = vm.condition.at(session.now - late) if late else vm.condition.true
    tags = vm.tags.at(session.now - late) if late else vm.tags.true
    if seen is None:
        raise ArmError("ResourceNotFound", f"The Resource '{_ACTION}/{vm.name}' was not found.")
    expand = session.query.get("$expand", "")
    if expand not in ("", "instanceView", "userData"):
        raise session.unmodelled(f"$expand={expand}")
    form = documents.VIEW if expand == "instanceView" else documents.PLAIN
    text = documents.text(session.estate, vm, seen, tags, form)
    if expand == "userData" and vm.user_data:
        document = json.loads(text)
        document["properties"]["userData"] = vm.user_data
        return Answer(document=document)
    return Answer(text=text)


@route("GET", f"{PATH}/instanceView", "VirtualMachines_InstanceView", f"{_ACTION}/instanceView/read", call=scope)
def instance_view(session: Session) -> Answer:
    vm = found(session)
    return Answer(document=documents.view(vm, vm.condition.true))


@route("GET", f"{GROUP}/providers/{_ACTION}", "VirtualMachines_List", f"{_ACTION}/read",
       queries=["$expand", "$skiptoken"])  # fmt: skip
def in_group(session: Session) -> Answer:
    return session.page(_listed(session, session.at["group"].lower()))


@route("GET", f"{SUBSCRIPTION}/providers/{_ACTION}", "VirtualMachines_ListAll", f"{_ACTION}/read",
       queries=["$expand", "statusOnly", "$skiptoken"])  # fmt: skip
def everywhere(session: Session) -> Answer:
    return session.page(_listed(session, ""))


def _listed(session: Session, group: str) -> Iterator[tuple[int, str]]:
    """Those that a listing shows, each with its number."""
    expand = session.query.get("$expand", "")
    if expand not in ("", "instanceView"):
        raise session.unmodelled(f"$expand={expand}")
    form = documents.VIEW if expand else documents.PLAIN
    if session.query.get("statusOnly", "false").lower() == "true":
        form = documents.STATUS
    at, now, estate = session.now - session.staleness_ms(), session.now, session.estate
    subscription = session.subscription.lower()
    shown = [*estate.gone, *estate.vms.values()] if estate.gone else list(estate.vms.values())
    shown.sort(key=lambda vm: vm.number)

    def told() -> Iterator[tuple[int, str]]:
        for vm in shown:
            if vm.hidden_ms > now or vm.subscription.lower() != subscription or (group and vm.group.lower() != group):
                continue
            condition = vm.condition.at(at)
            if condition is None or condition.phase is Phase.GONE:
                continue
            yield vm.number, documents.text(estate, vm, condition, vm.tags.at(at), form, listed=True)

    return told()


@route("PATCH", PATH, "VirtualMachines_Update", f"{_ACTION}/write", call=scope)
def patch(session: Session) -> Answer:
    """Tags alone; given ones replace all there are, as Compute does it."""
    models.check("compute", "VirtualMachineUpdate", session.body)
    vm = found(session)
    check_match(session, vm)
    if set(session.body) - {"tags"}:
        raise session.unmodelled(f"changing {sorted(session.body)}")
    if vm.phase is Phase.DELETING:
        raise ArmError("OperationNotAllowed", f"The VM '{vm.name}' is being deleted.")
    session.estate.retag(vm, checked_tags(session.body.get("tags") or {}))
    return Answer(text=documents.text(session.estate, vm, vm.condition.true, vm.tags.true))


@route("DELETE", PATH, "VirtualMachines_Delete", f"{_ACTION}/delete", queries=["forceDeletion"], call=scope)
def delete(session: Session) -> Answer:
    vm = _there(session)
    if vm is None:
        return Answer(204)
    check_match(session, vm)
    check_locks(session.estate, vm.id)
    if vm.phase is Phase.DELETING:
        return session.accepted(session.estate.operation_of_removal(vm))
    # No page says whose right is asked for when parts go with their VM: the stricter of the two is asked for here.
    for part in session.estate.going_with(vm.key):
        session.permit(f"{part.kind}/delete", part.id)
    return session.accepted(session.estate.remove(vm))


@route("POST", f"{PATH}/deallocate", "VirtualMachines_Deallocate", f"{_ACTION}/deallocate/action",
       queries=["hibernate"], call=scope)  # fmt: skip
def deallocate(session: Session) -> Answer:
    vm = found(session)
    if vm.properties["storageProfile"]["osDisk"].get("diffDiskSettings"):
        raise ArmError("OperationNotAllowed", "The VM with an ephemeral OS disk cannot be deallocated.")
    if vm.phase is Phase.DELETING:
        raise ArmError("OperationNotAllowed", f"The VM '{vm.name}' is being deleted.")
    return session.accepted(session.estate.deallocate(vm))


@route("POST", f"{PATH}/powerOff", "VirtualMachines_PowerOff", f"{_ACTION}/powerOff/action",
       queries=["skipShutdown"], call=scope)  # fmt: skip
def power_off(session: Session) -> Answer:
    """Stopped, and billed on."""
    vm = found(session)
    operation = session.estate.operation(vm.subscription, vm.location)
    if vm.power is Power.RUNNING:
        session.estate.become(vm, Condition(vm.phase, Power.STOPPED))
        session.cloud.hooks.on_stop(vm)
    session.estate.finish(operation)
    return session.accepted(operation)


@route("POST", f"{PATH}/simulateEviction", "VirtualMachines_SimulateEviction", f"{_ACTION}/simulateEviction/action",
       call=scope)  # fmt: skip
def simulate_eviction(session: Session) -> Answer:
    vm = found(session)
    if not vm.spot:
        raise ArmError("OperationNotAllowed", "Only Spot VMs can be evicted.")
    session.estate.notify(vm, session.cloud.settings.notice_ms)
    return Answer(204)


@route("POST", f"{PATH}/retrieveBootDiagnosticsData", "VirtualMachines_RetrieveBootDiagnosticsData",
       f"{_ACTION}/retrieveBootDiagnosticsData/action", call=scope,
       queries=["sasUriExpirationTimeInMinutes"])  # fmt: skip
def boot_diagnostics(session: Session) -> Answer:
    """Where the console is; a secret of its own opens it."""
    vm = found(session)
    if not (vm.properties.get("diagnosticsProfile") or {}).get("bootDiagnostics", {}).get("enabled"):
        raise ArmError("BadRequest", f"Boot diagnostics is not enabled for the VM '{vm.name}'.")
    place = f"{session.url}/console/{vm.vm_id}"
    return Answer(document={
        "consoleScreenshotBlobUri": f"{place}.bmp?sig=fake", "serialConsoleLogBlobUri": f"{place}.log?sig=fake",
    })  # fmt: skip


@route("GET", "/console/{blob}", "SerialConsoleLog", queries=["sig"], public=True)
def console(session: Session) -> Answer:
    wanted = session.at["blob"].removesuffix(".log")
    for vm in session.estate.vms.values():
        if vm.vm_id == wanted:
            return Answer(text=vm.console or "\n")
    raise ArmError("NotFound", "The specified blob does not exist.", 404)


@route("GET", f"{SUBSCRIPTION}/providers/Microsoft.Compute/locations/{{location}}/operations/{{operation}}",
       "Operations_Get", "Microsoft.Compute/locations/operations/read", queries=["p", "monitor"])  # fmt: skip
def operation(session: Session) -> Answer:
    """How an operation goes on: 200 whatever became of it."""
    known = session.estate.operations.get(session.at["operation"])
    if known is None or known.subscription.lower() != session.subscription.lower():
        raise ArmError("NotFound", f"The operation '{session.at['operation']}' was not found.")
    headers = (("Retry-After", str(session.cloud.settings.poll_after_s)),)
    if session.query.get("monitor"):
        return Answer(200 if known.ended_ms else 202, headers=() if known.ended_ms else headers)
    return Answer(document=known.document, headers=() if known.ended_ms else headers)
