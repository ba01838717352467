"""Work of many kinds on pools with all of their rules."""

from __future__ import annotations

import pytest

from cloud_dispatch.simulation.conduct import FAILING, FLAKY
from cloud_dispatch.simulation.generate import DEMANDING, of_theme
from tests.simulation.scenes import broken

SEEDS = 6


@pytest.mark.parametrize("theme", DEMANDING)
def test_every_promise_holds(theme: str) -> None:
    assert broken(theme, SEEDS // 3 if theme.endswith("spot") else SEEDS) == ""  # which takes minutes for a day's work


def test_the_theme_has_what_it_is_for() -> None:
    """In the seeds of a campaign: each rule of pools, each kind of shape, and health checks that fail now and then."""
    scenarios = [of_theme(DEMANDING[0], seed) for seed in range(60)]
    pools = [pool for one in scenarios for pool in one.pools]
    assert {pool.minimum for pool in pools} == {0, 1, 2}
    assert any(pool.reserve.cpus_milli for pool in pools)
    assert any(pool.types.deny for pool in pools)
    assert {check.argv[0] for pool in pools for check in pool.health_checks} == {FLAKY}
    assert FAILING != FLAKY
    work = [item for one in scenarios for item in one.work]
    assert {item.shape.gpu_type for item in work} == {"", "l4"}
    assert {item.shape.resources.gpus for item in work} == {0, 1, 2}
    assert any(("arch", "arm64") in item.shape.labels for item in work)
    assert any(item.shape.pool == "other" for item in work)
    assert any(item.exit_codes for item in work)
