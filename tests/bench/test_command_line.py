"""The command line of the benchmarks."""

import pytest

from bench.__main__ import BENCHMARKS, parse


def test_benchmarks_of_the_issue_are_there() -> None:
    """The names are an interface: scripts call them."""
    clouds = {"launch-aws", "launch-multi", "list", "restore"}
    assert set(BENCHMARKS) == clouds | {"boot", "claims", "e2e", "latency", "market", "plan", "simulation", "spend"}
    assert parse(["claims", "--json"]).repeat == 3


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["claims", "--repeat", "0"]])
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    """No benchmark starts on a command line that was not understood."""
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    assert caught.value.code == 2
