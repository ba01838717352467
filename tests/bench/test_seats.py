"""The driver of the claims benchmark: it must behave as the SPI says, or the benchmark measures something else."""

import asyncio
import json
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from bench.claims import JOIN_TOKEN, _seat
from bench.processes import BenchmarkFailed
from bench.seats import Seats, SeatSettings, plugin, write_entry_point
from cloud_dispatch.domain.ids import BatchId, InstanceId, ProfileName
from cloud_dispatch.provider.errors import VmNotFound
from cloud_dispatch.provider.spi import LaunchRequest, ProfileContext


def driver(folder: Path) -> Seats:
    """A driver with its seats in `folder`."""
    return plugin.create(ProfileContext(ProfileName("seats"), SeatSettings(folder=folder, cpus=100), folder))


async def request(seats: Seats, *instances: str) -> LaunchRequest:
    """A launch of these slots of one batch."""
    (offering,) = await seats.offerings()
    names = tuple(InstanceId(name) for name in instances)
    return LaunchRequest(BatchId("b"), len(names), offering, {"deployment": "d"}, "user data", 0, names)


def test_launch_repeated_makes_no_second_vm(tmp_path: Path) -> None:
    """Slots are named, so the same call makes only what is missing; each seat's user data is in a file."""

    async def main() -> None:
        seats = driver(tmp_path)
        first = await seats.launch(await request(seats, "b-0", "b-1"))
        again = await seats.launch(await request(seats, "b-0", "b-1", "b-2"))
        assert [vm.id for vm in again.vms[:2]] == [vm.id for vm in first.vms]
        assert [vm.slot for vm in again.vms] == [0, 1, 2]
        assert len((await seats.list("d")).vms) == 3
        assert (await seats.list("")).vms == ()
        assert sorted(path.name for path in tmp_path.iterdir()) == [f"seat-b-{slot}.json" for slot in range(3)]
        assert json.loads((tmp_path / "seat-b-2.json").read_text())["user_data"] == "user data"

    asyncio.run(main())


def test_terminated_seat_is_gone_and_terminating_it_again_succeeds(tmp_path: Path) -> None:
    """As of any driver."""

    async def main() -> None:
        seats = driver(tmp_path)
        result = await seats.launch(await request(seats, "b-0"))
        await seats.terminate(result.vms[0].id)
        await seats.terminate(result.vms[0].id)
        with pytest.raises(VmNotFound):
            await seats.get(result.vms[0].id)

    asyncio.run(main())


def test_entry_point_is_found_through_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What PYTHONPATH does for the dispatcher that the benchmark starts."""
    monkeypatch.setattr(sys, "path", [str(write_entry_point(tmp_path / "plugins")), *sys.path])
    (found,) = (point for point in entry_points(group="cloud_dispatch.providers") if point.name == "seats")
    assert found.load() is plugin


def test_join_token_is_found_in_user_data(tmp_path: Path) -> None:
    """And a seat without one fails the benchmark with the seat's name."""
    token = "cdj1.abcdefghijkl.128.1700000000000.s_-Xyz0123456789"
    path = tmp_path / "seat-b-0.json"
    path.write_text(json.dumps({"vm": "seat-b-0", "user_data": f'exec agent --join "{token}" --url http://x'}))
    assert _seat(path).join_token == token
    assert JOIN_TOKEN.search("no token here") is None
    path.write_text(json.dumps({"vm": "seat-b-0", "user_data": "nothing"}))
    with pytest.raises(BenchmarkFailed, match="seat-b-0"):
        _seat(path)
