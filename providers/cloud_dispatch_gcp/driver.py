"""The Google Cloud driver: the provider SPI over Compute Engine. Owns what each call does; what Google's words mean is
`translate`'s and `errors`', how calls are sent `calls`'.

Slots are names, and names are for ever: a launch that is repeated makes what is missing. What Google has only accepted
is an operation, which is asked for by its token (`pending`). Nothing is kept that the cloud does not know, but for
answers that are good for a while.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import structlog

from cloud_dispatch.domain.ids import InstanceId, VmId
from cloud_dispatch.domain.labels import filter_of, merged
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.sign import KEY
from cloud_dispatch.domain.tags import BATCH
from cloud_dispatch.provider import hand
from cloud_dispatch.provider.errors import InDoubt, InvalidRequest, ProviderError, Transient, VmNotFound
from cloud_dispatch.provider.lacking import Lacking, bounded
from cloud_dispatch.provider.sending import sent
from cloud_dispatch.provider.spi import (
    Challenge,
    Finding,
    HardEnd,
    Heard,
    Identity,
    LaunchRequest,
    LaunchResult,
    Leftover,
    LeftoverKind,
    Listing,
    Operation,
    Pace,
    Price,
    ProfileContext,
    Quota,
    Traits,
    Vm,
    VmState,
)
from cloud_dispatch_gcp import identity, labels, pending, preflight, quotas, translate
from cloud_dispatch_gcp.calls import Calls
from cloud_dispatch_gcp.catalogue import Catalogue
from cloud_dispatch_gcp.errors import CHANGED, EXISTS, NOT_READY, Asked, in_use, of_operation
from cloud_dispatch_gcp.images import Images
from cloud_dispatch_gcp.settings import GcpSettings, region_of

log = structlog.get_logger(__name__)

_CONSOLE_BYTES = 65_536
_PAGE = 500
_STORAGE = "https://storage.googleapis.com"
#: Google counts a VM's time from its start, which is so much later than the order to make it.
_START_MS = 120_000
#: From the order to end a VM until it is deleted: a guest has 90 s to shut down, and deleting takes a while.
_STOP_LAG_MS = 180_000
_SPOT_NOTICE_MS = 30_000
#: 1,500 calls of a kind a minute in a project, counted by the minute, so that many at once are fine
#: (https://cloud.google.com/compute/api-quota).
_CALLS_PER_S, _BURST = 25, 250
#: So many seconds' launches may come at once after a rest: with the default, all that a first minute allows.
_REST_S = 15
#: Somebody else changes the same VM's labels at the same time: so often they are read again.
_CHANGES = 5
#: What a list says of a place of which it has nothing on a page. Whatever else it warns of, something may be missing.
_EMPTY = "NO_RESULTS_ON_PAGE"


class GcpProvider(Lacking):
    """A driver for one profile: one project, in some regions."""

    def __init__(self, context: ProfileContext) -> None:
        self._settings: GcpSettings = context.settings
        self._profile = context.profile
        self._now = context.now
        self._calls = Calls(self._settings, context.profile)
        self._images = Images(self._calls, self._settings, self._now)
        self._catalogue = Catalogue(context.profile, self._settings, self._calls, self._images, self._now)
        self._keys = identity.Keys(self._ask_keys, self._now)
        self._requests = itertools.count()
        #: The numbers of VMs that were taken back, as far as was told, and whether it could not be asked last time.
        self._taken: frozenset[int] = frozenset()
        self._blind = False
        self.traits = traits(self._settings)

    async def offerings(self) -> Sequence[Offering]:
        return await self._catalogue.offerings()

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        user_data = sent(request.user_data, self.traits)
        translate.check(request, user_data, self.traits)
        translate.check_offering(request.offering, self._settings)
        image = request.offering.image or await self._images.of_architecture(request.offering.type.architecture)
        outcomes = await asyncio.gather(
            *(self._insert(request, slot, str(image), user_data) for slot in request.instances)
        )
        return _gathered(request, outcomes)

    async def _insert(
        self, request: LaunchRequest, slot: InstanceId, image: str, user_data: bytes
    ) -> Vm | str | ProviderError:
        """One slot: the VM that is there already, the name of the operation that makes it, or why there is none."""
        offering = request.offering
        asked = Asked("instances.insert", changes=True, offering=offering)
        now = self._now()
        made = translate.instance(request, slot, self._settings, user_data, image, now)
        # Good for this call alone, which the library may send again when a token has expired. The name does the rest.
        token = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{slot} {now} {next(self._requests)}"))
        try:
            operation = await self._calls.once(
                asked, "Instances", "insert_unary", zone=offering.zone, instance_resource=made, request_id=token
            )
        except InvalidRequest as error:
            return await self._made_before(request, slot, error) if error.code == EXISTS else error
        except ProviderError as error:
            return error
        failed = of_operation(operation.error.errors, operation.http_error_status_code, asked)
        return failed or str(operation.name)

    async def _made_before(self, request: LaunchRequest, slot: InstanceId, error: ProviderError) -> Vm | ProviderError:
        """The name is taken: by the slot's own VM, which is the answer, or by somebody else's."""
        try:
            found = await self.get(self._vm_of(slot, request.offering.zone))
        except VmNotFound:
            return InDoubt(f"{slot}: the name is taken, and nothing can be seen of it yet", code=error.code)
        except ProviderError as trouble:
            return InDoubt(trouble.message, code=trouble.code)
        return found if found.tags.get(BATCH) == request.batch else error

    async def resume(self, operation: Operation) -> LaunchResult:
        asked = pending.read(operation, self._profile)
        there = await self._batch(asked, operation)
        known = await self._operations(asked, there)
        for slot in pending.unseen(asked, known, there):  # a list may be late, and a get is not
            try:
                there[slot] = await self.get(self._vm_of(slot, asked.zone))
            except VmNotFound:
                continue
        return pending.answer(operation, asked, known, there)

    async def _batch(self, asked: pending.Asking, operation: Operation) -> dict[InstanceId, Vm]:
        """The VMs of a launch that a list shows, by one question for all of them."""
        pages = await self._calls.pages(
            Asked("instances.list"), "Instances", "list", zone=asked.zone, max_results=_PAGE,
            filter=filter_of(BATCH, operation.batch),
        )  # fmt: skip
        named = {one.name: translate.vm(one) for page in pages for one in page.items}
        found = {slot: named.get(translate.name_of(slot, self._settings)) for slot in asked.names}
        return {slot: one for slot, one in found.items() if one is not None}

    async def _operations(self, asked: pending.Asking, there: Mapping[InstanceId, Vm]) -> dict[str, pending.Told]:
        """What has become of operations, without those that Google has forgotten. Each is asked for by its name, and
        only where the VM does not show it: Google keeps the operations of weeks, and what a filter leaves out of a list
        counts."""
        told, silent = pending.by_vms(asked, there)
        for name, found in zip(
            silent, await asyncio.gather(*(self._operation(asked.zone, name) for name in silent)), strict=True
        ):
            if found is not None:
                told[name] = pending.told(type(found).pb(found), asked.offering)
        return told

    async def _operation(self, zone: str, name: str) -> Any:
        try:
            return await self._calls.once(
                Asked("zoneOperations.get", vm=True), "ZoneOperations", "get", zone=zone, operation=name
            )
        except VmNotFound:
            return None

    def _vm_of(self, slot: InstanceId, zone: str) -> VmId:
        return translate.vm_id(zone, translate.name_of(slot, self._settings))

    async def list(self, deployment: str) -> Listing:
        if not deployment:
            return Listing((), complete=False)
        pages = await self._calls.pages(
            Asked("instances.aggregatedList"), "Instances", "aggregated_list", max_results=_PAGE,
            filter=translate.ours(deployment),
        )  # fmt: skip
        found = [one for scope in self._scopes(pages) for one in scope.instances]
        taken_back = await self._taken_back() if any(map(translate.ending_spot, found)) else frozenset()
        # A VM that starts or ends while pages are read may be on two of them.
        vms = {vm.id: vm for vm in (translate.vm(one, taken_back) for one in found)}
        return Listing(tuple(vms.values()), complete=not self._partial(pages))

    def _is_ours(self, place: str) -> bool:
        """Whether a zone or region, by whatever link, is of this profile: another may have the rest of the project."""
        name = translate.last(place)
        return name in self._settings.regions or region_of(name) in self._settings.regions

    def _scopes(self, pages: Sequence[Any]) -> Iterator[Any]:
        """What was listed of the zones and regions of this profile."""
        return (scope for page in pages for place, scope in page.items.items() if self._is_ours(place))

    def _partial(self, pages: Sequence[Any]) -> bool:
        """Whether something of ours may be missing: a zone could not be asked, or is not told in full, as where more
        was filtered out than a project may have in a minute. A warning of a whole page is of the places that it names;
        where it names none it may be of ours."""
        places = {place for page in pages for place in page.unreachables}
        places |= {place for page in pages for place, scope in page.items.items() if _warns(scope)}
        return any(map(self._is_ours, places)) or any(_warns(page) and not page.unreachables for page in pages)

    async def get(self, vm: VmId) -> Vm:
        found = (await self._get(vm))._pb
        taken_back = await self._taken_back(last_of=found) if translate.ending_spot(found) else frozenset()
        return translate.vm(found, taken_back)

    async def _get(self, vm: VmId) -> Any:
        zone, name = _place(vm)
        return await self._calls.once(Asked("instances.get", vm=True), "Instances", "get", zone=zone, instance=name)

    async def _taken_back(self, last_of: Any = None) -> frozenset[int]:
        """The numbers of the VMs that Google has taken back: the VMs themselves do not say why they end. What VMs there
        are is worth more than why they go: where that can't be asked, what was known before counts."""
        try:
            found = await self._preemptions(last_of)
        except ProviderError as error:
            if not self._blind:
                log.warning("preemptions.not_listed", profile=self._profile, error=repr(error))
            self._blind = True
            return self._taken
        self._blind, self._taken = False, found if last_of is None else self._taken | found
        return found

    async def _preemptions(self, last_of: Any) -> frozenset[int]:
        asked, wanted = Asked("operations.list"), 'operationType = "compute.instances.preempted"'
        if last_of is None:
            pages = await self._calls.pages(
                asked, "GlobalOperations", "aggregated_list", filter=wanted, max_results=_PAGE
            )
            return frozenset(
                one.target_id for page in pages for scope in page.items.values() for one in scope.operations
            )
        pages = await self._calls.pages(
            asked, "ZoneOperations", "list", zone=translate.last(last_of.zone), filter=wanted, max_results=_PAGE
        )
        return frozenset(one.target_id for page in pages for one in page.items)

    async def terminate(self, vm: VmId) -> None:
        asked = Asked("instances.delete", changes=True, vm=True)
        try:
            zone, name = _place(vm)
            await self._calls.once(asked, "Instances", "delete_unary", zone=zone, instance=name)
        except VmNotFound:
            return
        except Transient as error:
            if error.code not in NOT_READY or not await self._ending(vm):
                raise

    async def _ending(self, vm: VmId) -> bool:
        """Whether a VM that can't be deleted now is being deleted already."""
        try:
            return (await self.get(vm)).state is VmState.STOPPING
        except VmNotFound:
            return True

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        """Labels are set whole and by their fingerprint: read, changed and written, again where another was faster."""
        labels.of_tags(tags)
        missing = set()
        for vm in bounded(vms, self.traits):
            try:
                await self._tag(vm, tags)
            except VmNotFound:
                missing.add(vm)
        return frozenset(missing)

    async def _tag(self, vm: VmId, tags: Mapping[str, str]) -> None:
        zone, name = _place(vm)
        asked = Asked("instances.setLabels", changes=True, vm=True)
        for attempt in range(_CHANGES):
            found = await self._get(vm)
            wanted = {
                "labels": merged(dict(found.labels), tags), "label_fingerprint": found.label_fingerprint
            }  # fmt: skip
            try:
                operation = await self._calls.once(
                    asked, "Instances", "set_labels_unary", zone=zone, instance=name,
                    instances_set_labels_request_resource=wanted,
                )  # fmt: skip
            except Transient as error:
                if error.code != CHANGED or attempt + 1 == _CHANGES:
                    raise
                continue
            await self._carried_out(asked, zone, operation)
            return

    async def _carried_out(self, asked: Asked, zone: str, operation: Any) -> None:
        """Wait for a short operation, as long as one call takes; raises what it failed by."""
        if operation.status != type(operation).Status.DONE:
            operation = await self._calls.once(asked, "ZoneOperations", "wait", zone=zone, operation=operation.name)
        failed = of_operation(operation.error.errors, operation.http_error_status_code, asked)
        if failed is not None:
            raise failed
        if operation.status != type(operation).Status.DONE:
            raise InDoubt(f"{asked.call}: operation {operation.name} is still under way")

    async def console(self, vm: VmId) -> str:
        asked = Asked("instances.getSerialPortOutput", vm=True)
        try:
            zone, name = _place(vm)
            answer = await self._calls.once(asked, "Instances", "get_serial_port_output", zone=zone, instance=name)
        except VmNotFound:
            return ""
        return str(answer.contents).encode()[-_CONSOLE_BYTES:].decode(errors="ignore")

    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        if not deployment:
            return ()
        mine = translate.ours(deployment)
        disks, addresses = await asyncio.gather(
            self._calls.pages(
                Asked("disks.aggregatedList"), "Disks", "aggregated_list", filter=mine, max_results=_PAGE
            ),
            self._calls.pages(
                Asked("addresses.aggregatedList"), "Addresses", "aggregated_list", filter=mine, max_results=_PAGE
            ),
        )
        return (
            *(translate.disk(one) for scope in self._scopes(disks) for one in scope.disks if not one.users),
            *(translate.address(one) for scope in self._scopes(addresses) for one in scope.addresses if not one.users),
        )

    async def delete_leftover(self, leftover: Leftover) -> None:
        zone, _, name = leftover.id.partition("/")
        try:
            if leftover.kind is LeftoverKind.DISK:
                asked = Asked("disks.delete", changes=True, vm=True)
                await self._calls.once(asked, "Disks", "delete_unary", zone=zone, disk=name)
            elif leftover.kind is LeftoverKind.ADDRESS:
                asked = Asked("addresses.delete", changes=True, vm=True)
                await self._calls.once(asked, "Addresses", "delete_unary", region=zone, address=name)
            else:
                raise InvalidRequest(f"{leftover.id}: Compute Engine has no {leftover.kind} by itself")
        except VmNotFound:
            return
        except ProviderError as error:
            if in_use(error):
                raise InvalidRequest(error.message, code=error.code) from error
            raise

    async def quotas(self) -> Sequence[Quota]:
        """Of the regions and families that the profile rents, and of the whole project."""
        asked_region, asked_project = Asked("regions.get"), Asked("projects.get")
        regions = self._settings.regions
        sold, project, *found = await asyncio.gather(
            self._catalogue.sold(),
            self._calls.once(asked_project, "Projects", "get"),
            *(self._calls.once(asked_region, "Regions", "get", region=region) for region in regions),
        )
        families, gpus = {one.type.family for one in sold}, {one.made.gpu for one in sold if one.made.gpus}
        told = quotas.of_project(project._pb.quotas, gpus=bool(gpus))
        for region, one in zip(regions, found, strict=True):
            told += quotas.of_region(region, one._pb.quotas, families, gpus, addresses=self._settings.public_address)
        return told

    async def prices(self) -> Sequence[Price]:
        return await self._catalogue.told() if self.traits.prices else ()

    async def heard(self, deployment: str) -> Heard:
        settings = self._settings
        if not settings.reaper_sign:
            return await super().heard(deployment)
        bucket, _, name = settings.reaper_sign.removeprefix("gs://").partition("/")
        path = f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}"
        try:
            found = await self._calls.rest(Asked("objects.get", vm=True), _STORAGE, path)
        except VmNotFound:
            return hand.heard("", deployment, settings.project)
        return hand.heard(str(found.get("metadata", {}).get(KEY, "")), deployment, settings.project)

    async def preflight(self, deployment: str) -> Sequence[Finding]:
        means = preflight.Means(self, self._calls, self._images, self._catalogue, self._now)
        return await preflight.examine(means, self._settings, deployment)

    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        if not self._settings.service_account:
            return await super().identify(proof, challenge)
        said = await identity.token(proof, self._keys)
        identity.check(
            said, audience=challenge.audience, project=self._settings.project, since_ms=challenge.since_ms,
            now_ms=self._now(),
        )  # fmt: skip
        return translate.vm_id(said.zone, said.name)

    async def _ask_keys(self) -> Any:
        return await self._calls.public(Asked("certificates"), identity.CERTIFICATES_HOST, identity.CERTIFICATES_PATH)

    async def close(self) -> None:
        self._calls.close()


def traits(settings: GcpSettings) -> Traits:
    """What a profile of these settings can do."""
    launches, batch = rhythm(settings.launches_per_s)
    if not settings.service_account:  # then each of them makes one VM
        launches = settings.launches_per_s
    return Traits(
        consistency_ms=settings.consistency,
        max_batch=batch,
        max_user_data=translate.MAX_USER_DATA,
        gzips_user_data=True,
        hard_end=HardEnd.FIXED,
        hard_end_period_ms=_START_MS,
        hand_period_ms=settings.reaper_period if settings.reaper_sign else 0,
        stop_lag_ms=_STOP_LAG_MS,
        place=(("project", settings.project),),
        zones=tuple(f"{region}-" for region in settings.regions),
        named_slots=True,
        vm_name=f"{{zone}}/{settings.name_prefix}{{instance}}",
        operation_poll_ms=settings.operation_poll,
        leftovers=True,
        quotas=True,
        prices=settings.price_list,
        identity=Identity.MADE_OUT if settings.service_account else Identity.NONE,
        spot_notice_ms=_SPOT_NOTICE_MS if settings.spot else 0,
        max_tagged=1,
        calls_per_s=_CALLS_PER_S,
        call_burst=_BURST,
        paces=(Pace("launch", launches, launches * _REST_S),),
    )


def rhythm(vms_per_s: int) -> tuple[int, int]:
    """How many launches a second, of how many VMs at most: together no more than `vms_per_s`, and hardly less."""
    launches = -(-vms_per_s // translate.MAX_BATCH)
    return launches, vms_per_s // launches


def _gathered(request: LaunchRequest, outcomes: Sequence[Vm | str | ProviderError]) -> LaunchResult:
    """All slots together. Where one is in doubt the whole launch is: repeated, it makes nothing twice."""
    refused = [one for one in outcomes if isinstance(one, ProviderError)]
    doubtful = [one for one in refused if isinstance(one, InDoubt)]
    if doubtful:
        raise doubtful[0]
    if len(refused) == len(outcomes):
        raise refused[0]
    vms = tuple(one for one in outcomes if isinstance(one, Vm))
    names = {
        slot: one for slot, one in zip(request.instances, outcomes, strict=True) if isinstance(one, str)
    }  # fmt: skip
    operations = (pending.operation(request.batch, request.offering, names),) if names else ()
    return LaunchResult(vms, refused[0] if refused else None, operations)


def _warns(listed: Any) -> bool:
    """Whether a page, or a place on one, says that it may lack something."""
    return listed.warning.code not in ("", _EMPTY)


def _place(vm: VmId) -> tuple[str, str]:
    """VmNotFound for what is no id: an empty one would speak of all of them."""
    place = translate.place_of(vm)
    if place is None:
        raise VmNotFound(f"{vm!r} is no VM")
    return place
