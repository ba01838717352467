"""The benchmark `market` ranks a whole market, and notices when something of it is missing."""

from __future__ import annotations

import pytest

from bench.market import WANTED, _check, market
from bench.processes import BenchmarkFailed
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.planner.offers import Ranking


def test_all_providers_zones_and_markets_are_in_it() -> None:
    """With something that failed, and something that a quota forbids."""
    scene = market(500)
    assert len(scene.offerings) == len({one.key for one in scene.offerings}) == 9_000
    assert {one.market for one in scene.offerings} == set(Market)
    ranking = Ranking(scene, WANTED)
    _check(scene, ranking)
    reasons = " ".join({one.why for one in ranking.excluded()})
    assert all(word in reasons for word in ("asks for 16 cpu", "quota L-1", "blocked for another"))


def test_a_ranking_that_lacks_something_is_no_measurement() -> None:
    """Less work would be quicker."""
    scene = market(50)
    ranking = Ranking(scene, WANTED)
    del ranking.offers[3]
    found = ranking.excluded()
    ranking.excluded = lambda: found[1:]  # type: ignore[method-assign]
    with pytest.raises(BenchmarkFailed):
        _check(scene, ranking)
