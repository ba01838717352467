"""The AWS driver: the provider SPI over EC2. Owns what each call does; what AWS's words mean is `translate`'s and
`errors`', how calls are sent `calls`'.

It keeps nothing that the cloud does not know, but for answers that are good for a while (images, subnets, prices).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.tags import DEPLOYMENT, ENDS_AT, decode
from cloud_dispatch.provider import hand
from cloud_dispatch.provider.errors import (
    CapacityUnavailable,
    CredentialsRejected,
    InDoubt,
    InvalidRequest,
    ProviderError,
    Scope,
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
    Pace,
    Price,
    ProfileContext,
    Quota,
    Traits,
    Vm,
    VmState,
)
from cloud_dispatch_aws import identity, preflight, quotas, translate
from cloud_dispatch_aws.calls import Calls
from cloud_dispatch_aws.catalogue import Catalogue
from cloud_dispatch_aws.errors import NO_RIGHT, PROTECTED, SUBNET_FULL, TOKEN_USED, Asked
from cloud_dispatch_aws.images import Images
from cloud_dispatch_aws.regions import own_zone
from cloud_dispatch_aws.settings import AwsSettings
from cloud_dispatch_aws.subnets import Subnets

_VM = re.compile(r"i-([0-9a-f]{8}|[0-9a-f]{17})")
#: The same in an error's words.
_VM_SAID = re.compile(r"\bi-[0-9a-f]{8,17}\b")
_CONSOLE_BYTES = 65_536
_PAGE = 1_000
#: From the order to end a VM until it and its disks bill no more.
_STOP_LAG_MS = 120_000
#: A client token is good until a day after its instances have ended; counted from the launch that is the least.
_TOKEN_MS = 86_400_000
_ACCOUNT_MS = 86_400_000
_SPOT_NOTICE_MS = 120_000
#: EC2 tags so many resources in one call. It names those that it does not have: one repeat is the rule.
_MAX_TAGGED, _MOST_TAGGINGS = 1_000, 10
#: EC2 takes so many values of one filter.
_MOST_VALUES = 200
#: What EC2 lets an account do in a region of each kind of call ("Request throttling for the Amazon EC2 API"): so many
#: calls at once, and so many more a second. Describe* first; launches are the profile's to say, since accounts that
#: launch much have them raised. That the instances of launches have a bucket of their own is left for EC2 to say.
_CALLS_PER_S, _BURST = 20, 100
_TERMINATES, _TAGS = (5, 100), (10, 100)


#: How each kind of leftover is deleted: the call, the method, its parameter, and what says that it is gone already.
_DELETIONS = {
    LeftoverKind.DISK: ("DeleteVolume", "delete_volume", "VolumeId", {"InvalidVolume.NotFound"}),
    LeftoverKind.NIC: (
        "DeleteNetworkInterface", "delete_network_interface", "NetworkInterfaceId",
        {"InvalidNetworkInterfaceID.NotFound"},
    ),
    LeftoverKind.ADDRESS: (
        "ReleaseAddress", "release_address", "AllocationId",
        {"InvalidAllocationID.NotFound", "InvalidAddressID.NotFound"},
    ),
}  # fmt: skip
#: How one of each kind is looked for: the call, the method, what it lists, and the filter for its id.
_LOOKS = {
    LeftoverKind.DISK: ("DescribeVolumes", "describe_volumes", "Volumes", "volume-id"),
    LeftoverKind.NIC: (
        "DescribeNetworkInterfaces", "describe_network_interfaces", "NetworkInterfaces", "network-interface-id",
    ),
    LeftoverKind.ADDRESS: ("DescribeAddresses", "describe_addresses", "Addresses", "allocation-id"),
}  # fmt: skip


class AwsProvider(Lacking):
    """A driver for one profile: one account in one region."""

    def __init__(self, context: ProfileContext) -> None:
        self._settings: AwsSettings = context.settings
        self._profile = context.profile
        self._now = context.now
        self._calls = Calls(self._settings, context.profile, self._now)
        self._images = Images(self._calls, self._settings, self._now)
        self._subnets = Subnets(self._calls, self._settings, self._now)
        self._catalogue = Catalogue(
            context.profile, self._settings, self._calls, self._images, self._subnets, self._now
        )
        self._trusted = identity.certificates(self._settings.identity_certificate)
        self._account = Kept(self._ask_account, _ACCOUNT_MS, self._now)
        #: Those that VMs were launched or listed for: whose they are that may be changed.
        self._deployments: set[str] = set()
        self.traits = traits(self._settings)

    async def offerings(self) -> Sequence[Offering]:
        return await self._catalogue.offerings()

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        user_data = sent(request.user_data, self.traits)
        translate.check(request, user_data, self.traits)
        self._check(request)
        self._deployments.add(request.tags.get(DEPLOYMENT, ""))
        offering = request.offering
        if offering.image:
            image = await self._images.of_id(offering.image)
        else:
            image = await self._images.of_architecture(offering.type.architecture)
        subnet = await self._subnets.choose(offering.zone, request.slots)
        parameters = translate.launch(
            request, self._settings, user_data, image, subnet,
            burstable=await self._catalogue.burstable(offering.type.name),
        )  # fmt: skip
        asked = Asked("RunInstances", changes=True, offering=offering)
        try:
            answer = await self._calls.once(asked, "run_instances", **parameters)
        except InDoubt as error:
            if error.code not in TOKEN_USED:
                raise
            return await self._made_before(request, error)
        except CapacityUnavailable as error:
            if error.code == SUBNET_FULL and await self._subnets.refused(offering.zone, subnet):
                raise Transient(f"{error.message}; {offering.zone} has another one", code=error.code) from error
            raise
        self._subnets.served(offering.zone, subnet)
        return _result(request, translate.vms([answer]))

    async def list(self, deployment: str) -> Listing:
        if not deployment:
            return Listing((), complete=False)
        self._deployments.add(deployment)
        found = await self._described(f"tag:{DEPLOYMENT}", deployment)
        # A VM that starts or ends while pages are read may be on two of them.
        return Listing(tuple({vm.id: vm for vm in found}.values()))

    async def get(self, vm: VmId) -> Vm:
        _known(vm)
        answer = await self._calls.once(Asked("DescribeInstances"), "describe_instances", InstanceIds=[vm])
        for found in translate.vms(answer.get("Reservations", ())):
            if found.id == vm:
                return found
        raise VmNotFound(f"no instance {vm}")

    async def terminate(self, vm: VmId) -> None:
        try:
            _known(vm)
            await self._end(vm)
        except VmNotFound:
            return
        except CredentialsRejected as error:
            await self._there([vm], error)

    async def _end(self, vm: VmId) -> None:
        asked = Asked("TerminateInstances", changes=True)
        try:
            await self._calls.once(asked, "terminate_instances", InstanceIds=[vm])
        except ProviderError as error:
            if error.code != PROTECTED:
                raise
            await self._unprotect(vm, error)
            await self._calls.once(asked, "terminate_instances", InstanceIds=[vm])

    async def _there(self, vms: Sequence[VmId], refusal: CredentialsRejected) -> Sequence[VmId]:
        """Those of `vms`, of which a change was refused, that are not gone; `refusal` where all are there, or it is no
        lack of a right. Rights hang on tags: an instance that is gone has none to match, and EC2 refuses it rather
        than say that there is none."""
        if refusal.code != NO_RIGHT:
            raise refusal
        parts = [vms[first : first + _MOST_VALUES] for first in range(0, len(vms), _MOST_VALUES)]
        found = [vm for part in parts for vm in await self._described("instance-id", *part)]
        living = {vm.id for vm in found if vm.state is not VmState.GONE}
        if living.issuperset(vms):
            raise refusal
        return [vm for vm in vms if vm in living]

    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        if self.traits.hard_end is not HardEnd.EXTENDABLE:
            return await super().extend(vms, ends_ms)
        return await self.tag(vms, {ENDS_AT: str(ends_ms)})

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        """EC2 tags all or none, and says which it does not have, or refuses all where one is gone: it is asked again
        without those. It takes tags for instances that are ending, too, which nobody heeds."""
        translate.check_tags(tags)
        wanted = [vm for vm in bounded(vms, self.traits) if _VM.fullmatch(vm)]
        tagged = await self._tagged(wanted, translate.tag_list(tags)) if wanted else ()
        return frozenset(vms).difference(tagged)

    async def _tagged(self, wanted: Sequence[VmId], tags: Sequence[Mapping[str, str]]) -> Sequence[VmId]:
        """Those of `wanted` that there are."""
        asked = Asked("CreateTags", changes=True)
        for _ in range(_MOST_TAGGINGS):
            try:
                await self._calls.once(asked, "create_tags", Resources=list(wanted), Tags=tags)
            except VmNotFound as error:
                named = set(_VM_SAID.findall(error.message))
                left = [vm for vm in wanted if vm not in named]
                if len(wanted) == 1 or not left:
                    return ()
                if len(left) == len(wanted):
                    raise Transient(f"{error.message}: of {len(wanted)} instances", code=error.code) from error
                wanted = left
            except CredentialsRejected as error:
                wanted = await self._there(wanted, error)
                if not wanted:
                    return ()
            else:
                return wanted
        raise Transient(f"CreateTags: one more instance was gone each of {_MOST_TAGGINGS} times")

    async def console(self, vm: VmId) -> str:
        """The latest that machines of the current kinds have, else what was kept at the last boot or end."""
        asked = Asked("GetConsoleOutput")
        try:
            _known(vm)
            try:
                answer = await self._calls.once(asked, "get_console_output", InstanceId=vm, Latest=True)
            except InvalidRequest:
                answer = await self._calls.once(asked, "get_console_output", InstanceId=vm)
        except VmNotFound:
            return ""
        except CredentialsRejected as error:
            await self._there([vm], error)
            return ""
        text = str(answer.get("Output") or "")  # the SDK has decoded it
        return text.encode()[-_CONSOLE_BYTES:].decode(errors="ignore")

    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        if not deployment:
            return ()
        mine = [{"Name": f"tag:{DEPLOYMENT}", "Values": [_literal(deployment)]}]
        idle = [*mine, {"Name": "status", "Values": ["available"]}]
        volumes, interfaces, addresses = await asyncio.gather(
            self._calls.pages(Asked("DescribeVolumes"), "ec2", "describe_volumes", "Volumes", Filters=idle),
            self._calls.pages(
                Asked("DescribeNetworkInterfaces"), "ec2", "describe_network_interfaces", "NetworkInterfaces",
                Filters=idle,
            ),
            self._calls.pages(Asked("DescribeAddresses"), "ec2", "describe_addresses", "Addresses", Filters=mine),
        )  # fmt: skip
        return (
            *map(translate.volume, volumes),
            *map(translate.interface, interfaces),
            *(translate.address(one) for one in addresses if not one.get("AssociationId")),
        )

    async def delete_leftover(self, leftover: Leftover) -> None:
        call, operation, key, gone = _DELETIONS[leftover.kind]
        try:
            await self._calls.once(Asked(call, changes=True), operation, **{key: leftover.id})
        except ProviderError as error:
            if error.code not in gone and (error.code != NO_RIGHT or await self._is_left(leftover)):
                raise

    async def _is_left(self, leftover: Leftover) -> bool:
        """Whether it is still there. A right that hangs on its tag is refused once it has none."""
        call, operation, key, name = _LOOKS[leftover.kind]
        wanted = [{"Name": name, "Values": [leftover.id]}]
        return bool(await self._calls.pages(Asked(call), "ec2", operation, key, Filters=wanted))

    async def quotas(self) -> Sequence[Quota]:
        """Of the families that the profile rents. What Service Quotas does not tell (it is a right of its own) is a
        limit that is not known; what is used is counted over the whole account."""
        sold, reservations, limits = await asyncio.gather(
            self._catalogue.sold(),
            self._calls.pages(
                Asked("DescribeInstances"), "ec2", "describe_instances", "Reservations", MaxResults=_PAGE,
                Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}],
            ),
            self._limits(),
        )  # fmt: skip
        types = [one.type for one in sold]
        used = quotas.used(reservations, {one.name: one.vcpus for one in types})
        return quotas.told(limits, used, {one.family for one in types}, self._settings.region)

    async def _limits(self) -> dict[str, float]:
        try:
            found = await self._calls.pages(
                Asked("ListServiceQuotas"), "service-quotas", "list_service_quotas", "Quotas",
                ServiceCode=quotas.SERVICE, MaxResults=100,
            )  # fmt: skip
        except ProviderError:
            return {}
        return {one["QuotaCode"]: float(one["Value"]) for one in found if "Value" in one}

    async def prices(self) -> Sequence[Price]:
        return await self._catalogue.told() if self.traits.prices else ()

    async def heard(self, deployment: str) -> Heard:
        settings = self._settings
        if not settings.reaper_sign:
            return await super().heard(deployment)
        try:
            asked = Asked("GetParameter")
            answer = await self._calls.patiently(asked, "ssm", "get_parameter", Name=settings.reaper_sign)
        except InvalidRequest as error:
            if error.code != "ParameterNotFound":
                raise
            return hand.heard("", deployment, settings.region)
        return hand.heard(str(answer["Parameter"]["Value"]), deployment, settings.region)

    async def preflight(self, deployment: str) -> Sequence[Finding]:
        means = preflight.Means(self, self._calls, self._images, self._subnets, self._catalogue, self._now)
        return await preflight.examine(means, self._settings, deployment)

    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        if not self._trusted:
            return await super().identify(proof, challenge)
        said = identity.document(proof, self._trusted)
        identity.check(
            said, account=await self._account.get(), region=self._settings.region, since_ms=challenge.since_ms
        )
        return VmId(said.instance)

    async def _ask_account(self) -> str:
        """Which account this is: asked once, and only when the first proof that is one has come."""
        if self._settings.account:
            return self._settings.account
        answer = await self._calls.patiently(Asked("GetCallerIdentity"), "sts", "get_caller_identity")
        return str(answer["Account"])

    async def close(self) -> None:
        self._calls.close()

    async def _described(self, name: str, *values: str) -> Sequence[Vm]:
        reservations = await self._calls.pages(
            Asked("DescribeInstances"), "ec2", "describe_instances", "Reservations", patient=False,
            Filters=[{"Name": name, "Values": [_literal(value) for value in values]}], MaxResults=_PAGE,
        )  # fmt: skip
        return translate.vms(reservations)

    async def _made_before(self, request: LaunchRequest, error: ProviderError) -> LaunchResult:
        """EC2 knows the batch: it has been launched, in other words than these, or its VMs have ended. What was made
        then is the answer, once all of it can be seen."""
        found = await self._described("client-token", str(request.batch))
        if len(found) < request.slots:
            raise error
        return _result(request, found)

    async def _unprotect(self, vm: VmId, error: ProviderError) -> None:
        """Lift the termination protection of a VM of ours; whose it is otherwise, it stays."""
        facts = decode((await self.get(vm)).tags)
        if facts is None or facts.deployment not in self._deployments:
            raise error
        await self._calls.once(
            Asked("ModifyInstanceAttribute", changes=True), "modify_instance_attribute",
            InstanceId=vm, DisableApiTermination={"Value": False},
        )  # fmt: skip

    def _check(self, request: LaunchRequest) -> None:
        """InvalidRequest for what this profile does not rent."""
        offering, settings = request.offering, self._settings
        if not any(fnmatchcase(offering.type.name, pattern) for pattern in settings.instance_types):
            raise InvalidRequest(f"profile {self._profile} has no type {offering.type.name!r}")
        own = own_zone(offering.zone, settings.region)
        if not own or (settings.zones and offering.zone not in settings.zones):
            raise InvalidRequest(f"profile {self._profile} has no zone {offering.zone!r}")
        if offering.market is Market.SPOT and not settings.spot:
            raise InvalidRequest(f"profile {self._profile} has no spot market: spot = false")


def traits(settings: AwsSettings) -> Traits:
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
        place=place(settings),
        token_window_ms=_TOKEN_MS,
        all_or_nothing=True,
        leftovers=True,
        quotas=True,
        prices=settings.price_list,
        identity=Identity.NAMED if settings.identity_certificate else Identity.NONE,
        spot_notice_ms=_SPOT_NOTICE_MS if settings.spot else 0,
        spot_bid=True,
        max_tagged=_MAX_TAGGED,
        calls_per_s=_CALLS_PER_S,
        call_burst=_BURST,
        paces=(
            Pace("launch", settings.launches_per_s, settings.launch_burst),
            Pace("terminate", *_TERMINATES),
            Pace("tag", *_TAGS),
            Pace("extend", *_TAGS),
        ),
    )


def place(settings: AwsSettings) -> tuple[tuple[str, str], ...]:
    """Where VMs are listed, as far as it is known without asking: a role says in which account, keys don't."""
    account = settings.role_arn.split(":")[4] if settings.role_arn else settings.account
    return ("region", settings.region), *([("account", account)] if account else [])


def _result(request: LaunchRequest, vms: Sequence[Vm]) -> LaunchResult:
    """The batch's VMs, always in the same order. The answer may come before EC2 shows the tags that it was given."""
    tagged = sorted((replace(vm, tags={**request.tags, **vm.tags}) for vm in vms), key=lambda vm: vm.id)
    if len(tagged) >= request.slots:
        return LaunchResult(tuple(tagged))
    offering = request.offering
    shortfall = CapacityUnavailable(
        f"EC2 had {len(tagged)} of {request.slots} {offering.type.name} in {offering.zone}",
        code="InsufficientInstanceCapacity",
        scope=Scope(type=offering.type.name, zone=offering.zone, market=str(offering.market)),
    )
    return LaunchResult(tuple(tagged), shortfall)


def _known(vm: VmId) -> None:
    """VmNotFound for what is no id of an instance: an empty one would speak of all of them."""
    if not _VM.fullmatch(vm):
        raise VmNotFound(f"{vm!r} is no instance")


def _literal(value: str) -> str:
    """A filter's value that means itself: EC2 takes * and ? for patterns."""
    return re.sub(r"([*?\\])", r"\\\1", value)
