"""What VMs get to boot with: a pool's template, filled with what the dispatcher and the driver say.

Owns which variable comes from where. The one secret among them is the batch's join token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cloud_dispatch.adapters import certificates
from cloud_dispatch.adapters.certificates import Certificate
from cloud_dispatch.api.auth import Tokens, join_ends_ms
from cloud_dispatch.api.operator_token import OperatorToken
from cloud_dispatch.api.services import Script
from cloud_dispatch.api.timer import Words
from cloud_dispatch.cloudinit import multipart, render
from cloud_dispatch.config import Config
from cloud_dispatch.config.boot import CLOUD_CONFIG, SCRIPT, BootSection, read_text
from cloud_dispatch.domain.errors import DispatchError, InvalidInput
from cloud_dispatch.domain.ids import BatchId, PoolName, ProfileName
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.provider import registry, sending
from cloud_dispatch.provider.spi import Challenge, Traits
from cloud_dispatch.reconcile.settings import UserData
from cloud_dispatch.spend.ends import Pace
from cloud_dispatch.spend.grant import timer_lease_ms

#: How far ahead the ends of VMs are set.
PACE = Pace()
#: What a file on the VM is not called by.
_ODD = re.compile(r"[^A-Za-z0-9._-]")
_NOBODY = BatchId("b00000000000")
#: What stands for the join token in a document that is only looked at; as long as a real one.
PLACEHOLDER = "JOIN-TOKEN"


@dataclass(frozen=True, slots=True)
class Trusted:
    """What a VM knows the agent and the dispatcher by: sha256 in hex, of the agent and of the certificate that it pins
    ("": it trusts what the CAs of its image sign). `ca`: the same for its tasks, whose tools know no such pin: our CA,
    or the given certificate with its chain, in PEM."""

    agent_sha256: str
    fingerprint: str = ""
    ca: str = ""


def trusted(config: Config, agent_sha256: str, certificate: Certificate | None) -> Trusted:
    """What VMs shall trust. Without `certificate` the file's, or nothing's yet: for documents that are looked at."""
    if not (config.dispatcher.tls and config.dispatcher.pin):
        return Trusted(agent_sha256)
    if certificate is not None:
        return Trusted(agent_sha256, certificate.fingerprint, certificates.public_part(certificate))
    file = config.certificate_file
    made = file is not None and file.exists()
    return Trusted(agent_sha256, certificates.fingerprint(file) if file is not None and made else "0" * 64)


def maker(
    config: Config, traits: Mapping[ProfileName, Traits], tokens: Tokens, trusted: Trusted, clock: Clock
) -> UserData:
    """Makes the user data of launches: the pool's template with the batch's join token, its timer and what to trust.
    Where the profile's driver has no room for the pool's scripts, VMs fetch those (`scripts`)."""
    timers, lease_ms = Words(tokens), timer_lease_ms(PACE, config.timing.silence_ms)
    extras = {name: _Extras.of(name, section.boot) for name, section in config.pool_sections.items()}
    # Both now: at a launch they would keep the loop waiting, 80 ms at the first and 9 ms at each.
    render.prepare()
    told = {name: registry.plugin(config.profiles[name].driver).template_variables() for name in traits}

    def user_data(pool: Pool, batch: BatchId, slots: int, profile: ProfileName, ends_ms: int, spot: bool) -> str:
        own, extra = told[profile], extras[pool.name]
        if not own.get("whole_machine", True):
            extra.refuse(profile)
        variables = {
            **extra.variables,
            **own,
            "proof": _made_out(own.get("proof", ()), Challenge(batch, since_ms=0)),
            "url": config.advertise_url,
            "join_token": tokens.join(batch, slots, join_ends_ms(clock.now(), pool.boot_deadline_ms)),
            "timer": asdict(timers.plan(pool, batch, ends_ms, clock.now(), lease_ms)),
            "agent_sha256": trusted.agent_sha256,
            "fingerprint": trusted.fingerprint,
            "pool": pool.name,
            "labels": dict(pool.labels),
            "spot": spot,
        }
        whole = multipart.combine(render.render(pool.template, variables), extra.cloud_configs)
        if extra.variables["scripts"] and not sending.fits(whole, traits[profile]):
            document = render.render(pool.template, {**variables, "scripts_apart": True})
            whole = multipart.combine(document, extra.cloud_configs)
        if not sending.fits(whole, traits[profile]):
            has, most = size(whole, traits[profile]), traits[profile].max_user_data
            raise InvalidInput(f"the document has {has} bytes, the provider takes {most}", place=pool.template)
        return whole

    return user_data


def size(user_data: str, traits: Traits) -> int:
    """How many bytes of it the driver sends."""
    return len(sending.sent(user_data, traits))


def scripts(config: Config) -> Mapping[PoolName, Sequence[Script]]:
    """What VMs of each pool run before they start their agent."""
    sections = config.pool_sections.items()
    return {PoolName(name): [Script(**one) for one in _scripts(section.boot)] for name, section in sections}


def _made_out(value: Any, challenge: Challenge) -> Any:
    """The driver's steps to a proof of identity, with what the proof is to be made out to in all their texts."""
    if isinstance(value, str):
        return value.replace("{audience}", challenge.audience).replace("{nonce}", challenge.nonce)
    if isinstance(value, Mapping):
        return {name: _made_out(item, challenge) for name, item in value.items()}
    return [_made_out(item, challenge) for item in value]


@dataclass(frozen=True)
class _Extras:
    """What a pool's own configuration adds, its files read once."""

    pool: str
    variables: Mapping[str, Any]
    cloud_configs: Sequence[tuple[str, str]]
    of_machine: Sequence[str]

    @classmethod
    def of(cls, pool: str, boot: BootSection) -> _Extras:
        set_ones = {"nvidia": boot.nvidia, "mounts": boot.mounts}
        return cls(
            pool,
            {
                "proxies": {name: value for name, value in boot.proxy.model_dump().items() if value},
                "nvidia": boot.nvidia,
                "nvidia_packages": boot.nvidia_packages,
                "mounts": [{**mount.model_dump()} for mount in boot.mounts],
                "scripts": _scripts(boot),
                "metadata": boot.metadata,
                "early": boot.early and not boot.cloud_config,
            },
            [(_plain(path), _cloud_config(path)) for path in boot.cloud_config],
            [name for name, value in set_ones.items() if value],
        )

    def refuse(self, profile: str) -> None:
        """InvalidInput where the pool wants what the VMs of `profile`, parts of their host, can't have."""
        if self.of_machine:
            hint = "leave it out, or give the pool profiles with machines of their own"
            message = f"VMs of profile {profile} are a part of their host, which is not theirs to set up"
            raise InvalidInput(message, place=f"pools.{self.pool}.boot.{self.of_machine[0]}", hint=hint)


def _scripts(boot: BootSection) -> list[dict[str, str]]:
    return [{"name": _plain(path), "content": _read(path, SCRIPT)} for path in boot.scripts]


def _plain(path: Path) -> str:
    return _ODD.sub("_", path.name)


def _read(path: Path, begins: str) -> str:
    try:
        return read_text(path, begins)
    except ValueError as error:
        raise InvalidInput(str(error), place=str(path)) from None


def _cloud_config(path: Path) -> str:
    text = _read(path, CLOUD_CONFIG)
    if {"merge_how", "merge_type"} & set(render.parsed(text, str(path))):
        raise InvalidInput("merge_how is ours to say: another could undo the bootstrap", place=str(path))
    return text


@dataclass(frozen=True, slots=True)
class Specimen:
    """What a VM of `pool` would get from `profile`, whose driver takes `limit` bytes and would send `bytes`; or why
    nothing."""

    pool: str
    profile: str
    limit: int
    text: str = ""
    bytes: int = 0
    error: DispatchError | None = None


class _Nobody(Tokens):
    """Tokens that are none: made with no key, and shown as what they stand for."""

    def __init__(self) -> None:
        super().__init__(b"", b"", OperatorToken(""))

    def join(self, batch: BatchId, slots: int, expires_ms: int) -> str:
        return PLACEHOLDER.ljust(len(super().join(batch, slots, expires_ms)), "-")


def specimen(
    config: Config, pool: Pool, profile: ProfileName, traits: Traits, trusted: Trusted, clock: Clock
) -> Specimen:
    """The document of a launch that is not made, with a placeholder for the join token."""
    make = maker(config, {profile: traits}, _Nobody(), trusted, clock)
    try:
        spot = Market.SPOT in pool.markets  # whose document has more in it
        text = make(pool, _NOBODY, 1, profile, clock.now() + pool.end.lifetime_ms, spot)
    except DispatchError as error:
        return Specimen(pool.name, profile, traits.max_user_data, error=error)
    return Specimen(pool.name, profile, traits.max_user_data, text, size(text, traits))
