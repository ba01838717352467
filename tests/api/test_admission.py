"""Who stays connected where there are too many: strangers push out strangers, and the greediest themselves first."""

from __future__ import annotations

import pytest

from cloud_dispatch.api.admission import Admission, Guest, connections_for, descriptors_for, origin


class Standing:
    """A clock that the test moves."""

    ms = 5_000

    def now(self) -> int:
        return self.ms

    def monotonic(self) -> int:
        return self.ms


class Hall:
    """Connections by name; `out`: those that were shown out."""

    def __init__(self, most: int, strangers: int) -> None:
        self.clock = Standing()
        self.admission = Admission(most, strangers, self.clock)
        self.out: list[str] = []

    def enter(self, name: str, address: str, caller: str = "") -> Guest:
        guest = self.admission.enter(address, lambda: self.out.append(name))
        if caller:
            guest.speaks_for(caller)
        return guest


def test_whoever_opens_most_loses_the_oldest_of_theirs() -> None:
    """A flood from one address pushes out nobody but itself."""
    hall = Hall(64, 4)
    hall.enter("honest", "10.0.0.1")
    for number in range(10):
        hall.enter(f"flood{number}", "10.0.0.9")
    hall.enter("honest too", "10.0.0.2")
    assert hall.out == [f"flood{number}" for number in range(8)]
    assert hall.admission.counts() == {"strangers": (4, 8), "callers": (0, 0)}


def test_strangers_take_no_place_of_callers_nor_the_reverse() -> None:
    hall = Hall(64, 4)
    for number in range(60):
        hall.enter(f"vm{number}", "10.0.0.1", f"instance {number}")
    for number in range(4):
        hall.enter(f"stranger{number}", "10.0.0.1")
    assert hall.out == []
    hall.enter("fifth", "10.0.0.1")
    assert hall.out == ["stranger0"]


def test_a_vm_that_connects_without_end_pushes_out_itself_alone() -> None:
    hall = Hall(64, 4)
    for number in range(10):
        hall.enter(f"vm{number}", "10.0.0.1", f"instance {number}")
    for number in range(100):
        hall.enter(f"bad{number}", "10.0.0.1", "instance bad")
    assert set(hall.out) == {f"bad{number}" for number in range(50)}
    hall.enter("late", "10.0.0.1", "instance late")
    assert hall.out[-1] == "bad50"


def test_the_first_who_came_goes_where_all_hold_alike() -> None:
    hall = Hall(64, 3)
    for number in range(5):
        hall.enter(f"from {number}", f"10.0.0.{number}")
    assert hall.out == ["from 0", "from 1"]


def test_who_left_is_counted_no_more_and_shown_out_by_nobody() -> None:
    """However often the end is told, and whatever is said afterwards."""
    hall = Hall(64, 4)
    guests = [hall.enter(str(number), "10.0.0.1") for number in range(4)]
    guests[0].left()
    guests[0].left()
    guests[0].speaks_for("operator")
    hall.enter("next", "10.0.0.1")
    assert hall.out == []
    guests[1].speaks_for("operator")
    guests[1].speaks_for("instance x")
    assert hall.admission.counts() == {"strangers": (3, 0), "callers": (1, 0)}
    guests[1].left()
    assert hall.admission.counts() == {"strangers": (3, 0), "callers": (0, 0)}


def test_health_says_for_a_while_that_some_were_cut_off() -> None:
    hall = Hall(64, 2)
    assert hall.admission.troubles() == []
    guests = [hall.enter(str(number), "10.0.0.1") for number in range(3)]
    (trouble,) = hall.admission.troubles()
    assert "without a token" in trouble
    hall.clock.ms += 61_000
    assert hall.admission.troubles() == []
    for guest in guests:
        guest.left()
    for number in range(63):
        hall.enter(str(number), "10.0.0.1", "operator")
    (trouble,) = hall.admission.troubles()
    assert "limits.connections" in trouble


@pytest.mark.parametrize(
    ("address", "whose"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
    ],
)
def test_whoever_has_an_address_of_ipv6_has_many(address: str, whose: str) -> None:
    assert origin(address) == whose


@pytest.mark.parametrize("connections", [64, 8192, 10**6])
def test_what_is_asked_of_the_system_is_enough_for_what_is_admitted(connections: int) -> None:
    assert connections_for(descriptors_for(connections)) == connections
    assert 2 * connections_for(1024) + 256 <= 1024
    assert connections_for(0) > 0
