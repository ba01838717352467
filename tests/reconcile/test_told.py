"""What operators and those who wait are told of providers that don't answer and of prices that don't count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from structlog.testing import capture_logs

from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.provider.errors import CredentialsRejected
from cloud_dispatch.reconcile.asking import OFFERINGS_TTL_MS
from cloud_dispatch.reconcile.spend import PRICE_GOOD_MS
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.windows import Window
from tests.reconcile.examples import offering
from tests.reconcile.fake import POOL, world


async def test_whoever_waits_for_a_silent_provider_is_told_what_went_wrong(tmp_path: Path) -> None:
    """Its own words and code, in `explain` and as a warning; once, until it answers."""

    async def refused() -> tuple[Offering, ...]:
        raise CredentialsRejected("DescribeInstanceTypes: you may not", code="UnauthorizedOperation")

    async with world(tmp_path) as w:
        answers, w.cloud.offerings = w.cloud.offerings, refused  # type: ignore[method-assign]
        (task,) = await w.submit(1)
        with capture_logs() as lines:
            await w.passes(3)
        said = str((await w.fleet.explain_task(task))["reasons"])
        assert "no offerings are known yet" in said
        for text in ("CredentialsRejected: DescribeInstanceTypes: you may not (UnauthorizedOperation)", "config check"):
            assert text in said
        (line,) = [line for line in lines if line["event"] == "provider.no-offerings"]
        assert (line["log_level"], "UnauthorizedOperation" in line["detail"]) == ("warning", True)
        w.cloud.offerings = answers  # type: ignore[method-assign]
        await w.passes(3)
        assert len(w.rows) == 1


async def test_prices_too_old_to_launch_by_are_a_warning_once(tmp_path: Path) -> None:
    """Only where there is a limit; an estimate says what to do about it, to the operator and to whoever waits."""
    async with world(tmp_path) as w:
        old = replace(offering(), priced_ms=w.clock.ms - PRICE_GOOD_MS - 1, estimated=True)
        w.cloud.offers = (old,)
        with capture_logs() as lines:
            await w.passes(1)
            await w.fleet.set_limit(Key(Scope.POOL, POOL), Window.DAY, Amount(10**9), "")
            (task,) = await w.submit(1)
            for _ in range(3):
                w.clock.ms += OFFERINGS_TTL_MS + 1
                await w.passes(2)
        (line,) = [line for line in lines if line["event"] == "provider.prices-old"]
        assert line["log_level"] == "warning"
        assert "1 of 1 offerings" in line["detail"]
        assert "let the profile's credentials read prices" in line["detail"]
        assert "let the profile's credentials read prices" in str((await w.fleet.explain_task(task))["reasons"])
        w.cloud.offers = (replace(old, priced_ms=w.clock.ms),)
        with capture_logs() as lines:
            for _ in range(2):
                w.clock.ms += OFFERINGS_TTL_MS + 1
                await w.passes(2)
        assert [line for line in lines if line["event"] == "provider.prices-old"] == []
