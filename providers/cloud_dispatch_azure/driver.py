"""The Azure driver: the provider SPI over ARM. Owns what each call does; what Azure's words mean is `translate`'s and
`errors`', how calls are sent `calls`', how slots are made `launching`'s.

It keeps nothing that the cloud does not know, but for answers that are good for a while (images, sizes, prices, names).
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from azure.core import MatchConditions

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.sign import KEY
from cloud_dispatch.domain.tags import DEPLOYMENT, ENDS_AT
from cloud_dispatch.provider import hand
from cloud_dispatch.provider.blocking import both
from cloud_dispatch.provider.errors import (
    InvalidRequest,
    NotProven,
    ProviderError,
    Transient,
    VmNotFound,
)
from cloud_dispatch.provider.kept import Kept
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
)
from cloud_dispatch_azure import identity, paths, preflight, translate
from cloud_dispatch_azure.calls import Calls
from cloud_dispatch_azure.catalogue import Catalogue
from cloud_dispatch_azure.errors import EXISTS, IN_USE, Asked
from cloud_dispatch_azure.images import Images
from cloud_dispatch_azure.launching import Launching, dispatched
from cloud_dispatch_azure.settings import AzureSettings

_CONSOLE_BYTES = 65_536
#: From the order to delete a VM until it and its disks bill no more.
_STOP_LAG_MS = 180_000
_SPOT_NOTICE_MS = 30_000
_POLL_MS = 5_000
#: How often all VMs may be asked for the name that belongs to an id: a stranger may bring many ids.
_LOOK_UP_MS = 5_000
#: Another hand changed the VM's tags between our reading and our writing of them, so many times.
_MOST_TAGGINGS = 4
#: What ARM lets a caller do in a subscription and region ("Understand how Azure Resource Manager throttles requests",
#: since 2024): writes and deletes 200 at once and 10 a second, reads 250 and 25. Our calls are of several requests:
#: a launch is up to 20 slots of two or three writes, a tag a read and a write.
_READS, _WRITES = (25, 250), (10, 200)
_LAUNCHES, _TAGS = (1, 4), (10, 100)


class AzureProvider(Lacking):
    """A driver for one profile: one region of one subscription, in one resource group."""

    def __init__(self, context: ProfileContext) -> None:
        self._settings: AzureSettings = context.settings
        self._profile = context.profile
        self._now = context.now
        self._calls = Calls(self._settings, context.profile)
        self._images = Images(self._calls, self._settings, self._now)
        self._catalogue = Catalogue(context.profile, self._settings, self._calls, self._images, self._now)
        self._launching = Launching(self._calls, self._settings, self._now)
        self._trusted = identity.certificates(self._settings.identity_certificates)
        #: vmId -> name, of those that were seen; all anew with each listing of everything.
        self._names: dict[str, VmId] = {}
        self._all = Kept(self._ask_names, _LOOK_UP_MS, self._now)
        self.traits = traits(self._settings)

    async def offerings(self) -> Sequence[Offering]:
        return await self._catalogue.offerings()

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        user_data = sent(request.user_data, self.traits)
        translate.check(request, user_data, self.traits)
        self._check(request)
        offering = request.offering
        architecture = offering.type.architecture
        if offering.image:
            image = await self._images.of_id(offering.image, architecture)
        else:
            image = await self._images.of_architecture(architecture)
        size = await self._catalogue.of_name(offering.type.name)
        return await self._launching.launch(request, user_data, image, size)

    async def resume(self, operation: Operation) -> LaunchResult:
        return await self._launching.resume(operation)

    async def list(self, deployment: str) -> Listing:
        """The VMs of the group, and, asked for apart, what state each is in: ARM does not list both at once."""
        if not deployment:
            return Listing((), complete=False)
        found, views = await both(self._described(), self._views())
        mine = [one for one in found if (one.get("tags") or {}).get(DEPLOYMENT) == deployment]
        # A VM that starts or ends while pages are read may be on two of them.
        seen = {str(one["name"]): translate.vm(one, views.get(str(one.get("id", "")).lower())) for one in mine}
        return Listing(tuple(seen.values()))

    async def get(self, vm: VmId) -> Vm:
        return translate.vm(await self._shown(vm))

    async def terminate(self, vm: VmId) -> None:
        """Delete it, with all that it holds. Never deallocate alone: disks and addresses would bill on."""
        if not translate.NAME.fullmatch(vm):
            return
        try:
            await self._launching.delete(vm)
        except VmNotFound:
            return

    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        if self.traits.hard_end is not HardEnd.EXTENDABLE:
            return await super().extend(vms, ends_ms)
        return await self.tag(vms, {ENDS_AT: str(ends_ms)})

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        translate.check_tags(tags)
        missing = [vm for vm in bounded(vms, self.traits) if not await self._tagged(vm, tags)]
        return frozenset(missing)

    async def _tagged(self, vm: VmId, tags: Mapping[str, str]) -> bool:
        """A change of tags names all of them, so that they are read first, and written only where they are still those
        that were read. False where there is no such VM."""
        asked, group = Asked("tag", changes=True, vm=True), self._settings.resource_group
        for _ in range(_MOST_TAGGINGS):
            try:
                found = await self._shown(vm, Asked("tag", vm=True))
                if str((found.get("properties") or {}).get("provisioningState", "")).lower() == "deleting":
                    return False
                body = {"tags": {**(found.get("tags") or {}), **tags}}
                etag = str(found.get("etag") or "")
                same: dict[str, Any] = {"etag": etag, "match_condition": MatchConditions.IfNotModified} if etag else {}
                await self._calls.begin(
                    asked,
                    dispatched("virtual_machines", "begin_update", group, vm, body, **same),
                )
            except VmNotFound:
                return False
            except ProviderError as error:
                if error.code not in EXISTS:
                    raise
            else:
                return True
        raise Transient(f"tag: {vm} was changed by somebody else each of {_MOST_TAGGINGS} times")

    async def console(self, vm: VmId) -> str:
        """The serial log of its boot diagnostics, which Azure keeps beside the VM and shows by a link for a while."""
        group = self._settings.resource_group
        try:
            answer = await self._calls.once(
                Asked("console", vm=True),
                lambda clients: clients.compute.virtual_machines.retrieve_boot_diagnostics_data(
                    group, vm, sas_uri_expiration_time_in_minutes=5
                ),
            )
        except (InvalidRequest, VmNotFound):  # it has not begun to boot, or there is none
            return ""
        link = str(answer.get("serialConsoleLogBlobUri") or "")
        text = await self._calls.text(Asked("console"), link) if link else ""
        return text.encode()[-_CONSOLE_BYTES:].decode(errors="ignore")

    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        if not deployment:
            return ()
        kinds = (LeftoverKind.DISK, LeftoverKind.NIC, LeftoverKind.ADDRESS)
        disks, nics, addresses = await asyncio.gather(
            *(self._calls.listed(Asked(f"{kind}s"), paths.parts(self._settings, kind)) for kind in kinds)
        )
        return (
            *self._left(translate.idle_disks(disks), LeftoverKind.DISK, deployment),
            *self._left(translate.idle_nics(nics), LeftoverKind.NIC, deployment),
            *self._left(translate.idle_addresses(addresses), LeftoverKind.ADDRESS, deployment),
        )

    def _left(self, found: Iterable[Mapping[str, Any]], kind: LeftoverKind, deployment: str) -> builtins.list[Leftover]:
        return [
            translate.leftover(one, kind)
            for one in found
            if self._here(one) and (one.get("tags") or {}).get(DEPLOYMENT) == deployment
        ]

    async def delete_leftover(self, leftover: Leftover) -> None:
        try:
            await self._launching.delete_part(leftover.kind, leftover.id)
        except VmNotFound:
            return
        except ProviderError as error:
            if error.code in IN_USE:
                raise InvalidRequest(error.message, code=error.code) from error
            raise

    async def quotas(self) -> Sequence[Quota]:
        return await self._catalogue.quotas()

    async def prices(self) -> Sequence[Price]:
        return await self._catalogue.told() if self.traits.prices else ()

    async def heard(self, deployment: str) -> Heard:
        settings = self._settings
        if not settings.reaper_sign:
            return await super().heard(deployment)
        try:
            found = await self._calls.told(Asked("tags", vm=True), paths.tags(settings.reaper_sign))
        except VmNotFound:
            return hand.heard("", deployment, settings.resource_group)
        tags = (found.get("properties") or {}).get("tags") or {}
        return hand.heard(str(tags.get(KEY, "")), deployment, settings.resource_group)

    async def preflight(self, deployment: str) -> Sequence[Finding]:
        means = preflight.Means(self, self._calls, self._images, self._catalogue, self._now)
        return await preflight.examine(means, self._settings, deployment)

    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        if not self._trusted:
            return await super().identify(proof, challenge)
        now = self._now()
        said = identity.document(proof, self._trusted, now)
        identity.check(
            said,
            subscription=self._settings.subscription,
            nonce=challenge.nonce,
            since_ms=challenge.since_ms,
            now_ms=now,
        )
        known = self._names.get(said.vm_id)
        if known is not None:
            return known
        listed_ms = await self._all.get()
        if said.vm_id in self._names:
            return self._names[said.vm_id]
        # Its document says when it was there at the latest: a listing from before, or from just after, proves nothing.
        if listed_ms < said.created_ms + self.traits.consistency_ms:
            raise Transient("Azure does not list that VM yet")
        raise NotProven("there is no such VM in the profile's resource group")

    async def close(self) -> None:
        self._calls.close()

    async def _shown(self, vm: VmId, asked: Asked = Asked("get", vm=True)) -> dict[str, Any]:
        """One VM with its state; VmNotFound for what is no name of one."""
        if not translate.NAME.fullmatch(vm):
            raise VmNotFound(f"{vm!r} is no VM")
        group = self._settings.resource_group
        found = await self._calls.once(
            asked, lambda clients: clients.compute.virtual_machines.get(group, vm, expand="instanceView")
        )
        self._remember(found)
        return found

    async def _described(self) -> Sequence[dict[str, Any]]:
        """Those of our group in our region: another profile may have another one in the same group."""
        found = await self._calls.listed(Asked("list"), paths.machines(self._settings))
        here = [one for one in found if self._here(one)]
        for one in here:
            self._remember(one)
        return here

    async def _views(self) -> dict[str, Mapping[str, Any]]:
        """The instance views of the subscription's VMs by their id in lower case: lists don't agree on its spelling."""
        found = await self._calls.listed(Asked("list"), paths.states(self._settings))
        return {
            str(one.get("id", "")).lower(): (one.get("properties") or {}).get("instanceView") or {} for one in found
        }

    async def _ask_names(self) -> int:
        """When it was asked, as old as that may be while Azure refuses to be asked again."""
        asked_ms = int(self._now())
        await self._described()
        return asked_ms

    def _remember(self, found: Mapping[str, Any]) -> None:
        vm_id = str((found.get("properties") or {}).get("vmId") or "").lower()
        if vm_id:
            if len(self._names) > 100_000:
                self._names.clear()
            self._names[vm_id] = VmId(str(found["name"]))

    def _here(self, found: Mapping[str, Any]) -> bool:
        return str(found.get("location") or "").lower().replace(" ", "") == self._settings.region

    def _check(self, request: LaunchRequest) -> None:
        """InvalidRequest for what this profile does not rent."""
        offering, settings = request.offering, self._settings
        if not any(fnmatchcase(offering.type.name, pattern) for pattern in settings.sizes):
            raise InvalidRequest(f"profile {self._profile} has no size {offering.type.name!r}")
        region, _, zone = offering.zone.partition("-")
        if region != settings.region or (settings.zones and zone not in settings.zones) or len(zone) > 1:
            raise InvalidRequest(f"profile {self._profile} has no zone {offering.zone!r}")
        if offering.market is Market.SPOT and not settings.spot:
            raise InvalidRequest(f"profile {self._profile} has no spot market: spot = false")


def traits(settings: AzureSettings) -> Traits:
    """What a profile of these settings can do."""
    return Traits(
        consistency_ms=settings.consistency,
        max_batch=translate.MAX_BATCH,
        max_user_data=translate.MAX_USER_DATA,
        gzips_user_data=True,
        hard_end=HardEnd.EXTENDABLE if settings.reaper else HardEnd.NONE,
        hard_end_period_ms=settings.reaper_period if settings.reaper else 0,
        hand_period_ms=settings.reaper_period if settings.reaper_sign else 0,
        stop_lag_ms=_STOP_LAG_MS,
        place=(
            ("subscription", settings.subscription.lower()),
            ("resource_group", settings.resource_group.lower()),
            ("region", settings.region),
        ),
        named_slots=True,
        operation_poll_ms=_POLL_MS,
        leftovers=True,
        quotas=True,
        prices=settings.price_list,
        identity=Identity.MADE_OUT if settings.identity_certificates else Identity.NONE,
        spot_notice_ms=_SPOT_NOTICE_MS if settings.spot else 0,
        spot_bid=True,
        max_tagged=1,
        calls_per_s=_READS[0],
        call_burst=_READS[1],
        paces=(
            Pace("launch", *_LAUNCHES),
            Pace("terminate", *_WRITES),
            Pace("tag", *_TAGS),
            Pace("extend", *_TAGS),
            Pace("delete_leftover", *_WRITES),
        ),
    )
