"""Calls on their way: throttling with and without a Retry-After, answers that are slow, lost, or never come."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cloud_dispatch.provider.errors import InDoubt, ProviderError, RateLimited, Transient
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.gate import TokenBucket
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.settings import Bucket, Cloud, Spread
from tests.simulation.clouds.scene import DEPLOYMENT, Scene, steady


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    """Three at once, then one each half second; what is not used is saved up to the burst and no further."""
    bucket = TokenBucket(Bucket("x", 3, 2), now=0)
    assert [bucket.take(0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(at_ms) for at_ms in (499, 500, 999, 1_000)] == [False, True, False, True]
    assert [bucket.take(1_000_000) for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(("cloud", "told"), [(Cloud.EC2, False), (Cloud.GCE, False), (Cloud.ARM, True)])
async def test_throttling_says_when_to_come_again_only_where_the_cloud_does(cloud: Cloud, told: bool) -> None:
    """A burst of gets beyond the bucket is RateLimited; ARM alone gives a Retry-After, and other calls pass."""
    settings = steady(cloud, buckets=(Bucket("get", 5, 1),), retry_after_ms=defaults(cloud).retry_after_ms)
    scene = Scene(settings)
    (record,) = await scene.up()
    answers = await asyncio.gather(*(scene.driver.get(record.id) for _ in range(8)), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, RateLimited)]
    assert len(refused) == 3
    assert {error.retry_after_ms > 0 for error in refused} == {told}
    assert len(await scene.vms()) == 1
    await asyncio.sleep(1)
    await scene.driver.get(record.id)


async def test_all_drivers_of_an_account_share_its_buckets() -> None:
    """A second incarnation of the dispatcher is throttled by what the first one has used up."""
    scene = Scene(steady(Cloud.EC2, buckets=(Bucket("list", 2, 0.001),)))
    await scene.vms()
    await scene.vms()
    heir = scene.account.driver(scene.driver._profile)  # type: ignore[attr-defined]
    with pytest.raises(RateLimited):
        await heir.list(DEPLOYMENT)


async def test_a_slow_answer_comes_late_and_the_call_was_carried_out_at_once() -> None:
    """The VM is there long before its launch is answered."""
    scene = Scene(steady(Cloud.EC2), [Fault(FaultKind.SLOW, "launch", amount=300_000)])
    launch = asyncio.ensure_future(scene.driver.launch(await scene.request()))
    await asyncio.sleep(20)
    assert len(await scene.vms()) == 1
    assert not launch.done()
    began_ms = scene.clock.monotonic()
    assert len((await launch).vms) == 1
    assert scene.clock.monotonic() - began_ms > 250_000


async def test_an_answer_may_never_come() -> None:
    """The call was carried out, and its caller waits until its own deadline."""
    scene = Scene(steady(Cloud.GCE), [Fault(FaultKind.NO_ANSWER, "launch", times=1)])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(600):
            await scene.driver.launch(await scene.request())
    assert len(scene.account.inventory()) == 1


async def test_a_lost_answer_of_a_read_is_no_doubt() -> None:
    """A listing whose connection breaks has done nothing: Transient; a deletion may have been made: InDoubt."""
    scene = Scene(
        steady(Cloud.ARM), [Fault(FaultKind.LOST_ANSWER, times=1, operation=name) for name in ("list", "terminate")]
    )
    (record,) = await scene.up()
    with pytest.raises(Transient):
        await scene.vms()
    with pytest.raises(InDoubt):
        await scene.driver.terminate(record.id)
    assert record.state == "stopping"


async def test_an_error_is_answered_by_class_code_and_scope_and_does_nothing() -> None:
    """The fault says what the cloud answers, of which type and zone; other types are served."""
    usual = steady(Cloud.EC2)
    name = usual.sells[0].type.name
    fault = Fault(FaultKind.ERROR, "launch", type=name, error="CapacityUnavailable", code="Unsupported", times=1)
    scene = Scene(usual, [fault])
    other = await scene.offering(usual.sells[1].type.name)
    assert len((await scene.driver.launch(await scene.request(offering=other))).vms) == 1
    with pytest.raises(ProviderError) as caught:
        await scene.driver.launch(await scene.request())
    assert (caught.type.__name__, caught.value.code, caught.value.scope.type) == (
        "CapacityUnavailable",
        "Unsupported",
        name,
    )
    assert len(scene.account.inventory()) == 1
    assert len((await scene.driver.launch(await scene.request())).vms) == 1


async def test_a_closed_driver_answers_nothing() -> None:
    """After close every call is Transient; the VMs live on, and a new driver sees them."""
    scene = Scene(steady(Cloud.GCE))
    await scene.up()
    await scene.driver.close()
    for call in (scene.driver.list(DEPLOYMENT), scene.driver.launch(await _request(scene))):
        with pytest.raises(Transient):
            await call
    heir = scene.account.driver(scene.driver._profile)  # type: ignore[attr-defined]
    assert len((await heir.list(DEPLOYMENT)).vms) == 1


async def _request(scene: Scene):  # type: ignore[no-untyped-def]
    heir = scene.account.driver(scene.driver._profile)  # type: ignore[attr-defined]
    offering = (await heir.offerings())[0]
    return await scene.request(offering=offering)


async def test_latency_is_drawn_by_operation() -> None:
    """More gets change nothing about how long a deletion takes: each operation has a stream of its own."""
    took = []
    for gets in (0, 5):
        scene = Scene(steady(Cloud.EC2, latency=Spread(200, 0.5, 5_000)))
        (record,) = await scene.up()
        for _ in range(gets):
            await scene.driver.get(record.id)
        began_ms = scene.clock.monotonic()
        await scene.driver.terminate(record.id)
        took.append(scene.clock.monotonic() - began_ms)
    assert took[0] == took[1]


async def test_a_bug_in_the_cloud_reaches_the_caller() -> None:
    """What is no provider's error is raised as it is, not swallowed by a timer."""
    scene = Scene(steady(Cloud.EC2))

    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await scene.account.gate.send("get", broken)


async def test_calls_are_cheap() -> None:
    """A thousand VMs for ten hours, listed each 30 s: the loop has a few steps a listing, and none a VM or a second."""
    settings = replace(defaults(Cloud.EC2), quotas=())
    scene = Scene(settings)
    for _ in range(10):
        await scene.driver.launch(await scene.request(100))
        await asyncio.sleep(60)
    loop = asyncio.get_running_loop()
    steps = loop.steps  # type: ignore[attr-defined]
    for _ in range(1_200):
        assert len((await scene.driver.list(DEPLOYMENT)).vms) == 1_000
        await asyncio.sleep(30)
    assert scene.account.gate.arrived["list"] == 1_200
    assert loop.steps - steps < 12 * 1_200  # type: ignore[attr-defined]
