"""The arithmetic and the output of benchmark results."""

import json

from bench.report import Metric, Repetition, Target, json_line
from bench.yardsticks import Yardsticks

YARDSTICKS = Yardsticks(loop=0.04, fsync=0.001, spawn=0.001, echo=0.0005)


def repetition(ours: float, **peers: float) -> Repetition:
    """A repetition on a machine whose yardsticks don't matter."""
    return Repetition(ours, peers, YARDSTICKS)


def metric(*repetitions: Repetition, higher_is_better: bool = True, target: float = 10.0) -> Metric:
    """A metric with one target, against `peer`."""
    return Metric("claims", "single", "tasks/s", higher_is_better, repetitions, (Target("peer", target),))


def test_worst_ratio_of_a_speed_is_the_smallest_within_one_repetition() -> None:
    """Ours of one repetition is never held against the peer of another."""
    measured = metric(repetition(100.0, peer=10.0), repetition(40.0, peer=5.0), repetition(60.0, peer=4.0))
    assert measured.ratios() == {"peer": 8.0}
    assert measured.missed() == ["peer"]


def test_worst_ratio_of_a_duration_is_the_largest() -> None:
    """For durations a larger ratio is worse, and the target is an upper bound."""
    measured = metric(repetition(3.0, peer=1.0), repetition(5.0, peer=1.0), higher_is_better=False, target=4.0)
    assert measured.ratios() == {"peer": 5.0}
    assert measured.missed() == ["peer"]


def test_target_that_is_just_reached_is_met() -> None:
    """At least and at most include the bound itself."""
    assert metric(repetition(100.0, peer=10.0)).missed() == []
    assert metric(repetition(4.0, peer=1.0), higher_is_better=False, target=4.0).missed() == []


def test_json_line_holds_the_median_and_the_worst_ratio() -> None:
    """The line has the five keys that its readers rely on, and is one line."""
    measured = metric(repetition(100.0, peer=10.0), repetition(40.0, peer=5.0), repetition(60.0, peer=4.0))
    line = json_line(measured)
    assert "\n" not in line
    expected = {"name": "claims", "metric": "single", "value": 60.0, "unit": "tasks/s", "ratios": {"peer": 8.0}}
    assert json.loads(line) == expected
