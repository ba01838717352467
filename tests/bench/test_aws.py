"""The benchmarks of the AWS driver on the fake EC2, on fleets too small to measure anything."""

import threading
from pathlib import Path

import pytest

from bench import launch_aws, restore, wakeups
from bench.fake_ec2 import configure, fake_ec2
from bench.processes import BenchmarkFailed, free_port
from bench.wakeups import TICK_S, lateness, of_an_idle_loop, percentile


@pytest.mark.process
@pytest.mark.timeout(180)
def test_a_launch_and_the_same_calls_of_boto3_make_the_same(tmp_path: Path) -> None:
    """150 tasks are two launches; boto3 makes them again on a new fake, with what the driver has sent."""
    ours = launch_aws.run(tmp_path, 150)
    assert ours.calls == 2
    assert ours.seconds > launch_aws.LATENCY_MS / 1e3
    assert 0 <= ours.late_ms(50) <= ours.late_ms(99) <= ours.late_ms(100)
    peer = launch_aws.bare(tmp_path, 150, ours.calls)
    assert peer.seconds > launch_aws.LATENCY_MS / 1e3


@pytest.mark.process
@pytest.mark.timeout(180)
def test_a_fleet_is_restored_on_top_of_its_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every VM has its row and every row its VM: nothing is in doubt, nobody is tagged or ended."""
    monkeypatch.setattr(restore, "INSTANCES", 1_200)
    (metric,) = restore.measure(tmp_path, 1, quick=True)
    (one,) = metric.repetitions
    assert metric.metric == "on_top_1200"
    assert one.ours > 0
    assert one.peers[restore.BARE] > restore.LATENCY_MS


@pytest.mark.process
def test_vms_without_rows_are_no_restoration(tmp_path: Path) -> None:
    """A figure for a fleet that was not there must never be printed."""
    with fake_ec2(tmp_path, 0) as fake:
        config = configure(tmp_path, fake.url, free_port())
        with pytest.raises(BenchmarkFailed, match="not all 5 instances were matched"):
            restore.restored(config, tmp_path, 5)


def test_lateness_is_what_is_beyond_the_tick() -> None:
    """Ascending, whatever the order in which it was seen."""
    assert lateness([0, TICK_S + 0.5, 2 * TICK_S + 0.5, 3 * TICK_S + 0.75]) == pytest.approx([0, 0.25, 0.5])


@pytest.mark.parametrize(("percent", "found"), [(1, 1), (50, 50), (99, 99), (100, 100)])
def test_a_percentile_is_one_of_the_values(percent: int, found: int) -> None:
    """So many percent are at most that."""
    assert percentile(range(1, 101), percent) == found


def test_an_idle_loop_ticks_while_something_else_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the answer comes through."""
    enough, ticks = threading.Event(), iter(range(10**9))

    def ticked() -> float:
        if (tick := next(ticks)) == 8:
            enough.set()
        return tick

    monkeypatch.setattr(wakeups.time, "perf_counter", ticked)
    answer, late = of_an_idle_loop(lambda: 7 if enough.wait(20) else 0)
    assert answer == 7
    assert len(late) > 5
