"""Tags on VMs. Owns the schema: which facts every VM of ours carries, complete enough to adopt it by.

Keys and values here are the canonical ones; a driver whose cloud allows fewer characters translates in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from cloud_dispatch.domain.ids import BatchId, PoolName
from cloud_dispatch.domain.instance import Behaviour, Instance
from cloud_dispatch.domain.money import MOST_RATE

SCHEMA = "1"
PREFIX = "cloud-dispatch-"
DEPLOYMENT = PREFIX + "deployment"
STORE = PREFIX + "store"
POOL = PREFIX + "pool"
BATCH = PREFIX + "batch"
RATE = PREFIX + "rate"
ENDS_AT = PREFIX + "ends-at"
BEHAVIOUR = PREFIX + "behaviour"
SLOT = PREFIX + "slot"
SCHEMA_KEY = PREFIX + "schema"
#: What a VM of ours always carries, in the order in which `_facts` takes it.
_ALWAYS = itemgetter(SCHEMA_KEY, DEPLOYMENT, STORE, POOL, BATCH, RATE, ENDS_AT)
_ROOM = 2**63
#: So many VMs' tags are remembered: those of a large fleet, which every listing brings again.
_REMEMBERED = 8192


@dataclass(frozen=True, slots=True)
class VmTags:
    """The facts that a VM's tags hold. `rate` in nano-dollars an hour (-1 unknown), `ends_ms` the hard end. `slot` is
    set once it is known of a VM that has no name of its own; -1 before, and where the name says it."""

    deployment: str
    store: str
    pool: PoolName
    batch: BatchId
    rate: int
    ends_ms: int
    behaviour: Behaviour = Behaviour.RUN
    slot: int = -1

    def encode(self) -> dict[str, str]:
        slot = {SLOT: str(self.slot)} if self.slot >= 0 else {}
        return {
            DEPLOYMENT: self.deployment,
            STORE: self.store,
            POOL: self.pool,
            BATCH: self.batch,
            RATE: str(self.rate),
            ENDS_AT: str(self.ends_ms),
            BEHAVIOUR: str(self.behaviour),
            SCHEMA_KEY: SCHEMA,
            **slot,
        }


def decode(tags: Mapping[str, str]) -> VmTags | None:
    """The facts in `tags`, or None where they are not ours or not whole (a VM that must be left alone)."""
    try:
        always: tuple[str, ...] = _ALWAYS(tags)
    except KeyError:
        return None
    return _facts(*always, tags.get(BEHAVIOUR, Behaviour.RUN), tags.get(SLOT, "-1"))


@lru_cache(maxsize=_REMEMBERED)
def _facts(
    schema: str, deployment: str, store: str, pool: str, batch: str, rate: str, ends: str, behaviour: str, slot: str
) -> VmTags | None:
    """`decode` of the tags that matter; the same VMs are listed again and again, and their tags hardly ever change."""
    if schema != SCHEMA:
        return None
    try:
        return VmTags(
            deployment=deployment,
            store=store,
            pool=PoolName(pool),
            batch=BatchId(batch),
            rate=_rate(int(rate)),
            ends_ms=_kept(int(ends)),
            behaviour=Behaviour(behaviour),
            slot=_kept(int(slot)),
        )
    except ValueError:
        return None


def _rate(told: int) -> int:
    """Tags can be written by others of the account: what nothing costs is no price."""
    return told if 0 <= told <= MOST_RATE else -1


def _kept(told: int) -> int:
    """ValueError for what a database has no room for."""
    if not -_ROOM <= told < _ROOM:
        raise ValueError(f"{told} has more than 64 bits")
    return told


def of_instance(instance: Instance, deployment: str, store: str, slot: int = -1) -> VmTags:
    """The tags that `instance` carries or shall carry; its `slot` where it is known and its name won't tell."""
    return VmTags(
        deployment=deployment,
        store=store,
        pool=instance.pool,
        batch=instance.batch,
        rate=-1 if instance.rate is None else instance.rate,
        ends_ms=instance.ends_ms,
        behaviour=instance.behaviour,
        slot=slot,
    )
