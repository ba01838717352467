"""Chance from a seed: streams stand alone, draws have the shape that they claim."""

from __future__ import annotations

import statistics
import subprocess
import sys

import pytest

from cloud_dispatch.simulation.entropy import SeededEntropy, SeededStreams
from cloud_dispatch.simulation.journal import Journal


def test_a_stream_depends_on_seed_and_purpose_alone() -> None:
    """Draws of one purpose never move another's, and the order of first use does not matter."""
    alone = [SeededStreams(7).stream("boot", "vm-1").bits() for _ in range(1)]
    among = SeededStreams(7)
    for _ in range(100):
        among.stream("boot", "vm-2").bits()
    assert among.stream("boot", "vm-1").bits() == alone[0]
    assert SeededStreams(8).stream("boot", "vm-1").bits() != alone[0]


def test_the_same_object_every_time() -> None:
    """A stream goes on where it was."""
    streams = SeededStreams(1)
    first = streams.stream("a").bits()
    assert streams.stream("a").bits() != first


def test_draws_are_as_they_say() -> None:
    """Bounds, means and medians of the distributions."""
    stream = SeededStreams(3).stream("shape")
    assert {stream.below(3) for _ in range(200)} == {0, 1, 2}
    assert {stream.between(5, 7) for _ in range(200)} == {5, 6, 7}
    assert 0.45 < statistics.fmean(stream.fraction() for _ in range(5_000)) < 0.55
    assert 9 < statistics.fmean(stream.exponential(10) for _ in range(20_000)) < 11
    assert 90 < statistics.median(stream.lognormal(100, 0.5) for _ in range(5_000)) < 110
    assert stream.lognormal(100, 0) == 100
    assert 800 < sum(stream.chance(0.2) for _ in range(5_000)) < 1200
    with pytest.raises(ValueError, match="below 0"):
        stream.below(0)


def test_names_never_come_twice() -> None:
    """Ids of one purpose differ although they come from a seed."""
    entropy = SeededEntropy(SeededStreams(1))
    names = [entropy.name("batch") for _ in range(2_000)]
    assert len(set(names)) == 2_000
    assert all(name[0].isalpha() and len(name) == 12 for name in names)


def test_draws_do_not_depend_on_the_hash_seed() -> None:
    """Another PYTHONHASHSEED, the same draws."""
    code = "from cloud_dispatch.simulation.entropy import SeededStreams as S; print(S(5).stream('x', 1).bits())"
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=60
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


class _At:
    now_ms = 12


def test_a_bounded_journal_digests_all_of_its_lines() -> None:
    """What is no longer kept still counts, and a line is a line."""
    bounded, whole, other = Journal(_At(), keep=2), Journal(_At()), Journal(_At(), keep=2)
    for what in ("one", "two", "three\nfour"):
        bounded.write("me", what)
        whole.write("me", what)
    for what in ("uno", "two", "three\nfour"):
        other.write("me", what)
    assert bounded.digest == whole.digest != other.digest
    assert bounded.text() == "".join(f"       12 me {what}\n" for what in ("two", "three\\nfour")) == other.text()
    assert (len(bounded), bounded.count) == (2, 3)
