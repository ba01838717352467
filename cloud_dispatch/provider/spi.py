"""The contract of a provider driver. Owns the protocol and its values; knows the domain and nothing else.

All values are frozen and serialisable, so that a driver can live in another process. Methods are asynchronous, raise
only `cloud_dispatch.provider.errors`, and must be safe to call again: a launch is idempotent by its batch id, a
terminate of what is gone succeeds. What a driver can't do it says in its `Traits`, and only there: no method is asked
for what the traits deny, and `cloud_dispatch.provider.lacking` has the answers of those who are asked all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from cloud_dispatch.domain.ids import BatchId, InstanceId, ProfileName, VmId
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.provider.errors import ProviderError, Scope


class VmState(StrEnum):
    """What a provider says of a VM. `stopped` may still bill (disks): it is deleted. `gone` may linger in lists."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM as its provider lists it."""

    id: VmId
    state: VmState
    type: str
    zone: str
    tags: Mapping[str, str]
    created_ms: int
    #: The slot, where the provider names VMs by slot (GCE, Azure, local); -1 where only the batch is known (EC2).
    slot: int = -1
    address: str = ""
    spot: bool = False
    #: The provider took it back (or has said that it will): the market's doing, not the VM's.
    preempted: bool = False
    #: The provider's own words for why it is no longer running, "" where it has none.
    why: str = ""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """`slots` VMs of one offering in one call. `batch` is the idempotency token, `user_data` what cloud-init gets.

    A spot VM may cost up to `offering.max_rate`, where that is known. `min_slots`: with room for fewer, none is made
    and the error raised (all or nothing: `min_slots == slots`); more than 1 only where the traits say `all_or_nothing`.
    `ends_ms` 0: no hard end; later than a provider lets VMs live: the end that it keeps is the latest that it takes,
    and the tags stay as given.
    """

    batch: BatchId
    slots: int
    offering: Offering
    tags: Mapping[str, str]
    user_data: str = field(repr=False)  # it holds the join token
    ends_ms: int
    #: Which slots are wanted, for providers that name VMs by slot: a repeated call makes only what is missing.
    instances: tuple[InstanceId, ...] = ()
    min_slots: int = 1


@dataclass(frozen=True, slots=True)
class Operation:
    """A launch that the provider has accepted and not finished, to be asked for by `Provider.resume`.

    `token` is the driver's own (an operation's name or link): opaque, printable, no secret, and good in another process
    after a restart. `instances` are the slots that it will fill.
    """

    token: str
    batch: BatchId
    instances: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The VMs that exist now for the batch, and why there are fewer than asked where there are.

    A slot of the request is in `vms`, or in one of `pending`, or refused: `shortfall` says why.
    """

    vms: tuple[Vm, ...]
    shortfall: ProviderError | None = None
    pending: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """All VMs of the deployment that the provider admits to. Only a complete listing can prove an absence."""

    vms: tuple[Vm, ...]
    complete: bool = True


class LeftoverKind(StrEnum):
    """What of a VM can outlive it and bill on."""

    DISK = "disk"
    NIC = "nic"
    ADDRESS = "address"


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that carries our tags and belongs to no VM. `created_ms` 0 where the provider does not say."""

    id: str
    kind: LeftoverKind
    zone: str
    tags: Mapping[str, str]
    created_ms: int = 0


class QuotaUnit(StrEnum):
    INSTANCES = "instances"
    VCPUS = "vcpus"
    GPUS = "gpus"


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of the account on what launches may hold in `scope`, by the provider's own `name`. None: not told. One in
    GPUs bounds only what has any."""

    name: str
    scope: Scope
    unit: QuotaUnit
    limit: int | None
    used: int | None


@dataclass(frozen=True, slots=True)
class Price:
    """What a type costs an hour, by the provider's own price service. `place`: a zone, or what all zones that it holds
    for begin with (a region)."""

    type: str
    place: str
    market: Market
    rate: Rate


class Level(StrEnum):
    """How a `Finding` is to be taken."""

    OK = "ok"
    WARNING = "warning"  # it works, not as well as it could, or nobody can tell yet
    ERROR = "error"  # launches fail by it, all or some of them; or what they cost has no end that was promised


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `Provider.preflight` has looked at. `about` is a key of the profile, or what was asked."""

    level: Level
    about: str
    text: str


class HardEnd(StrEnum):
    """Whether a hand that is independent of the guest ends VMs at their `ends_ms`, and whether that can be moved. It
    keeps ends to the second, and looks for what is due as often as its period says."""

    NONE = "none"
    FIXED = "fixed"  # at creation, for ever (GCE maxRunDuration)
    EXTENDABLE = "extendable"  # `extend` moves it (a reaper that reads tags)


@dataclass(frozen=True, slots=True)
class Heard:
    """The last sign of life of the hand beside the cloud. `last_ms`: when its last round began that saw all and ended
    all that was due, where this profile's VMs are, by its own clock (ms since the epoch); 0: there is none, for `why`.
    """

    last_ms: int
    why: str = ""


class Identity(StrEnum):
    """Whether a VM can show which one it is, by a proof that nobody makes who is not on it."""

    NONE = "none"  # then whoever brings the join token first is believed, and a launch makes one VM
    NAMED = "named"  # the proof says which VM it is, to everybody in the same words (EC2's signed document)
    MADE_OUT = "made-out"  # ... and is made out to a batch (GCE's token by its audience, Azure's document by its nonce)


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a proof of identity has to answer to. The same for all VMs of a batch, and told to them by their user data:
    who asks for it on a VM is that VM, and a VM registers once, so that a number used once would prove no more."""

    batch: BatchId
    #: A proof that was made before is not one of this batch's VMs. The clocks' difference is allowed for already.
    since_ms: int

    @property
    def audience(self) -> str:
        """Whom proofs are made out to, where a provider takes a text: letters, digits and dashes."""
        return f"cloud-dispatch-{self.batch}"

    @property
    def nonce(self) -> str:
        """The same for a provider that takes ten digits."""
        return str(int.from_bytes(hashlib.sha256(self.audience.encode()).digest(), "big"))[-10:]


class Host(StrEnum):
    """Where a driver wants to run. `process` for what parses much (SDKs), `thread` for what blocks for moments only."""

    INLINE = "inline"
    THREAD = "thread"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Pace:
    """How many calls of one kind a provider allows a second, and how many at once after a rest. `call`: the method."""

    call: str
    per_s: int
    burst: int


@dataclass(frozen=True, slots=True)
class Traits:
    """What a driver can do and how its cloud behaves. Times in milliseconds."""

    #: How long after a change (a create, a tag, an end) a listing or get may still miss it.
    consistency_ms: int = 0
    #: Largest number of VMs in one launch.
    max_batch: int = 1
    #: Largest user data in bytes, as it is sent (`provider.sending`).
    max_user_data: int = 16_384
    #: Whether the driver sends it gzipped.
    gzips_user_data: bool = False
    #: Whether a hand independent of the guest ends VMs at `ends_ms`.
    hard_end: HardEnd = HardEnd.NONE
    #: That hand's period: how long after `ends_ms` it may look first.
    hard_end_period_ms: int = 0
    #: How often a hand beside the cloud looks of which `heard` tells the signs of life; 0: there is none to hear.
    hand_period_ms: int = 0
    #: How long a VM may go on billing after its end was asked for (by that hand or by `terminate`).
    stop_lag_ms: int = 0
    #: Where `list` looks, as its settings say it (account, region, folder), each with its name: it shows no VMs of
    #: another place. Known without asking anybody, and the same in every version; what is not known is left out.
    place: tuple[tuple[str, str], ...] = ()
    #: What the zones begin with in which `list` looks; (): in all of the place.
    zones: tuple[str, ...] = ()
    #: Whether each slot is named by us, so that a launch may be repeated for ever.
    named_slots: bool = False
    #: The id of a slot's VM, where named: `{instance}` and `{zone}` are put in.
    vm_name: str = "{instance}"
    #: How long after a launch it may be repeated without making VMs twice; 0: for ever.
    token_window_ms: int = 0
    #: Whether `min_slots` may be more than 1.
    all_or_nothing: bool = False
    #: How often to `resume` pending operations; 0: launches end with their answer, `resume` is never asked.
    operation_poll_ms: int = 0
    #: How long before a spot VM is taken back its guest is told; 0: not at all, or no spot market.
    spot_notice_ms: int = 0
    #: Whether `offering.max_rate` is a bid: a spot VM is taken back rather than cost more.
    spot_bid: bool = False
    #: Whether `leftovers` looks for disks, NICs and addresses; False: nothing of a VM can outlive it.
    leftovers: bool = False
    #: Whether `quotas` tells anything.
    quotas: bool = False
    #: Whether `prices` tells anything.
    prices: bool = False
    #: Whether there is a console to read; to be denied by a driver that leaves the answer to `Lacking`.
    console: bool = True
    #: Whether VMs can prove which one they are, and `identify` can tell.
    identity: Identity = Identity.NONE
    #: The most VMs that one `tag` or `extend` may name.
    max_tagged: int = 1
    #: How many calls of one kind a second the provider allows, as far as known, and how many at once after a rest.
    calls_per_s: int = 20
    call_burst: int = 100
    #: Where a kind of call has another pace than that.
    paces: tuple[Pace, ...] = ()

    def pace(self, call: str) -> Pace:
        """The pace of the method `call`."""
        return next((one for one in self.paces if one.call == call), Pace(call, self.calls_per_s, self.call_burst))

    @property
    def most_slots(self) -> int:
        """The most VMs that share a launch, and so a join token: one, where VMs can't be told apart."""
        return 1 if self.identity is Identity.NONE else self.max_batch

    def vm_id(self, instance: InstanceId, zone: str) -> VmId | None:
        """The id of the slot's VM in `zone`, known before it exists; None where slots are not named."""
        return VmId(self.vm_name.format(instance=instance, zone=zone)) if self.named_slots else None


class Provider(Protocol):
    """A driver, made for one profile."""

    traits: Traits

    async def offerings(self) -> Sequence[Offering]:
        """Everything that the profile could rent now, with prices."""

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        """Make the batch's VMs; called again with the same batch, answer with the same VMs and make only what is
        missing. CapacityUnavailable or QuotaExceeded when it makes none; InDoubt when it can't be known. What the
        provider only accepted is `pending`."""

    async def resume(self, operation: Operation) -> LaunchResult:
        """What has become of a pending operation's slots, in one look: VMs, a shortfall, or still pending. Answers in
        any process, any number of times; of an operation that the provider has forgotten, with what exists, and with
        Transient as the shortfall of slots of which nothing does. Raises only when the question failed (Transient,
        RateLimited, CredentialsRejected), and InvalidRequest for what is no operation of this driver's."""

    async def list(self, deployment: str) -> Listing:
        """All VMs that carry this deployment tag, whatever their state."""

    async def get(self, vm: VmId) -> Vm:
        """One VM, read as consistently as the provider can; VmNotFound when there is none."""

    async def terminate(self, vm: VmId) -> None:
        """Ask for the VM and all that belongs to it to be deleted. Returns once asked; success when already gone. A
        deletion that fails later is seen by `get`, and asked for again."""

    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        """Move the hard ends of all `vms` to `ends_ms`, later or earlier, and the tags that say it. Answers and raises
        as `tag` does, once the hand will heed it; where a driver knows that an end has begun, there is no VM any more.
        Only where the traits say EXTENDABLE."""

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        """Set these tags on all `vms`, keep the others. Those of which there is none are the answer, and keep nobody
        from theirs; what is ending or gone may be either, tagged or not found.

        `traits.max_tagged` at most: InvalidRequest for more, and nothing is set. After any other error some of them may
        have the tags: the same call again sets them all."""

    async def console(self, vm: VmId) -> str:
        """The VM's console output, the last 64 KiB at most, "" where there is none (yet), or no such VM."""

    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        """What carries this deployment tag and is attached to no VM. What a launch is just making may be among it: the
        caller waits until nothing of its batch is under way."""

    async def delete_leftover(self, leftover: Leftover) -> None:
        """Delete it; success when already gone. InvalidRequest when a VM has it now."""

    async def quotas(self) -> Sequence[Quota]:
        """The account's limits and what is used of them, as far as the provider tells."""

    async def prices(self) -> Sequence[Price]:
        """What the provider's price service says now of what the profile could rent, before any discount of its
        account. May read many pages: asked for once a day or by hand, and never by a launch."""

    async def heard(self, deployment: str) -> Heard:
        """The last sign of life of the hand that ends VMs of `deployment` at their hard ends, beside the cloud and
        whoever else is dead. One look at what it has left: its cloud's word that a function is there proves nothing.
        That there is no sign is an answer; raises where the question could not be asked. Only where the traits give
        its period."""

    async def preflight(self, deployment: str) -> Sequence[Finding]:
        """What would keep VMs of `deployment` from being launched, found, listed or ended, as far as it can be known
        without making any: credentials, permissions, images, networks, quotas. What was good is told too, and what
        could not be asked: that is found, and not raised."""

    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        """Which VM of this profile's account `proof` shows its bearer to be, as `list` would name it. NotProven for
        what is no proof: not signed by the provider, of another account, made before `since_ms`, or, where the traits
        say MADE_OUT, not made out to the challenge. `proof` is a stranger's: anything may stand in it.

        Answers at once: signatures are checked against keys that the driver has or keeps for a while. Where it has to
        ask its cloud (for a key that is new, or a name: Azure signs an id of its own) it bounds how often; Transient
        when it can't be known now. That the VM is one of the batch is the caller's to find out."""

    async def close(self) -> None:
        """Release connections; the VMs live on."""


@dataclass(frozen=True, slots=True)
class ProfileContext:
    """What a driver gets to make itself for a profile: its settings (validated) and a folder of its own."""

    profile: ProfileName
    settings: Any
    state_dir: Path
    #: Milliseconds since the epoch; a driver takes the time from nowhere else.
    now: Any = field(repr=False, default=None)


class Plugin(Protocol):
    """What the entry point `cloud_dispatch.providers` names. Importing it must not import the SDK.

    It may have an attribute `host: Host`, where its drivers want to run; without, in a thread. And one `bills: bool`;
    only with False may a profile do without a cap and a spending limit. And one `hard_end: HardEnd`, the best that any
    of its drivers can do (what one does is in its traits); without, a hand that keeps ends and can move them. Where it
    says NONE and VMs cost money, a profile needs `guest_enforced = true`. And a method `policy(settings, deployment,
    profile)`: the least that the dispatcher's credentials must be allowed, a JSON document in the provider's own form.
    And one `notes(settings)`: what may be wrong with them, told by `config check` without asking anybody.

    Where the cloud keeps secrets, it may have `check_secret(name)`, which raises ValueError for what can't be the name
    of one, without SDK, and `secret(name)`: the secret as it is now, by the identity of this machine. That is called in
    a process of its own, and raises InvalidRequest where there is no such secret, another ProviderError otherwise.
    """

    name: str

    @property
    def settings(self) -> type[Any]:
        """A pydantic model class: the driver's own keys of a profile. Its JSON must give the same settings again, and
        hold no secret: drivers find credentials where their SDK looks for them."""

    def create(self, context: ProfileContext) -> Provider:
        """A driver for one profile."""

    def template_variables(self) -> Mapping[str, Any]:
        """What the driver adds to the variables of the cloud-init templates (folders, how a VM ends itself, where it
        gets its proof of identity)."""
