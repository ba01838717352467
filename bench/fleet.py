"""A fleet that was there before: ``python -m bench.fleet CONFIG INSTANCES`` fills a fake EC2 and a statestore with it.

VMs are launched with the tags that the product gives, a batch a launch, and tagged with their slots, as after the first
listing; the statestore has their rows, which serve and do nothing. Owns the making; both are as a dispatcher leaves
them when it stops.
"""

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.bare_ec2 import client
from bench.fake_ec2 import IMAGE, POOL, PROFILE, ROOT_DEVICE, TYPE, ZONE
from cloud_dispatch import meaning, statestore
from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.config import Config, TomlFile, load
from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import BatchId, ProfileName, VmId
from cloud_dispatch.domain.instance import Instance, InstanceEvent, LaunchIntent
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.ports.store import InstanceChange, Store
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.spi import LaunchRequest
from cloud_dispatch.reconcile.launch import slots_of
from cloud_dispatch.reconcile.spend import GUEST_MS
from cloud_dispatch_aws import translate
from cloud_dispatch_aws.images import Image

BATCH = 100
THREADS = 8
#: Half way through their first day.
AGE_MS, LIFETIME_MS = 43_200_000, 86_400_000


def batches(config: Config, count: int, now: int) -> list[tuple[Instance, ...]]:
    """So many slots, in launches of BATCH, as the dispatcher makes them."""
    (pool,) = (one for one in config.pools() if one.name == POOL)
    kind = InstanceType(TYPE, Resources(2_000, 8 * GIB, 30 * GIB))
    rate = config.profiles[PROFILE].settings.prices[TYPE]
    offering = Offering(ProfileName(PROFILE), kind, ZONE, Market.ON_DEMAND, rate, max_rate=rate, image=IMAGE)
    begun = now - AGE_MS
    return [
        slots_of(
            BatchId(f"b{start:011d}"), pool, offering, min(BATCH, count - start), begun, begun + LIFETIME_MS, GUEST_MS
        )
        for start in range(0, count, BATCH)
    ]  # fmt: skip


def launch(ec2: Any, config: Config, store: str, slots: Sequence[Instance]) -> list[VmId]:
    """The VMs of one batch, as the driver launches them."""
    first = slots[0]
    worn: VmTags = tags.of_instance(first, config.dispatcher.deployment, store)
    kind = InstanceType(TYPE, Resources(2_000, 8 * GIB, 30 * GIB))
    offering = Offering(first.profile, kind, ZONE, Market.ON_DEMAND, first.rate, image=IMAGE)
    request = LaunchRequest(first.batch, len(slots), offering, worn.encode(), "#cloud-config\n", first.ends_ms)
    settings = config.profiles[PROFILE].settings
    answer = ec2.run_instances(
        **translate.launch(request, settings, b"#cloud-config\n", Image(IMAGE, ROOT_DEVICE, "x86_64"), burstable=False)
    )
    return [VmId(one["InstanceId"]) for one in answer["Instances"]]


async def fill(store: Store, slots: Sequence[Instance], vms: Sequence[VmId]) -> None:
    """The rows of one batch, through all that a row goes through until it serves."""
    first = slots[0]
    key = f"{PROFILE}/{TYPE}/{ZONE}/{Market.ON_DEMAND}"
    await store.intend(LaunchIntent(first.batch, first.pool, key, len(slots), first.intended_ms, "benchmark"), slots)
    await store.change([InstanceChange(one.id, InstanceEvent.LAUNCH) for one in slots])
    launched = [
        InstanceChange(one.id, InstanceEvent.BOUND, {"vm": vm, "launched_ms": first.intended_ms})
        for one, vm in zip(slots, vms, strict=True)
    ]
    await store.change(launched)
    served = {"registered_ms": first.intended_ms + 60_000}
    await store.change([InstanceChange(one.id, InstanceEvent.REGISTERED, served) for one in slots])


async def main(path: Path, count: int) -> None:
    """Fill both."""
    config = load(TomlFile(path), registry.plugin)
    clock = SystemClock()
    config.state_dir.mkdir(mode=0o700, parents=True)
    store = await statestore.open_store(config.store_url, clock=clock, entropy=SystemEntropy(), executor=Inline())
    await store.set_limits(config.budgets(), meaning.drivers(config))
    ec2 = client(config.profiles[PROFILE].settings.endpoint_url)
    made = batches(config, count, clock.now())
    with ThreadPoolExecutor(THREADS) as pool:
        vms = list(pool.map(lambda slots: launch(ec2, config, store.id, slots), made))
        by_slot = [[batch[slot] for batch in vms if slot < len(batch)] for slot in range(min(BATCH, count))]
        slot_tags = [[{"Key": tags.SLOT, "Value": str(slot)}] for slot in range(len(by_slot))]
        list(pool.map(lambda ids, worn: ec2.create_tags(Resources=ids, Tags=worn), by_slot, slot_tags))
    for slots, ids in zip(made, vms, strict=True):
        await fill(store, slots, ids)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
