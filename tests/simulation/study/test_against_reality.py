"""The simulator against reality: work done by a real dispatcher and real processes, and the same work simulated.

Both are made into the same record by the same function, so that whatever differs is the simulation's.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.config import TomlFile, load
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch.simulation.record import Record
from cloud_dispatch.simulation.report import Report, report
from cloud_dispatch.simulation.study.engine import answer
from cloud_dispatch.simulation.study.offers import offers
from cloud_dispatch.simulation.study.past import read_past
from cloud_dispatch.simulation.study.question import study
from cloud_dispatch.simulation.workload.read import from_record
from tests.system.house import House

pytestmark = pytest.mark.process


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path, cap=2, idle="3s")
    made.up()
    yield made
    made.clean_up()


def at_its_rates(record: Record) -> Report:
    """Figures with the cost as the dispatcher reckons it, which is all that a real local provider has."""
    return report(replace(record, rentals=tuple(replace(rental, billed=None) for rental in record.rentals)))


def test_the_ledgers_of_a_real_run_and_of_its_simulation_match(house: House) -> None:
    """26 tasks on two local VMs, then the recorded boot and run times simulated: the same tasks end the same way on as
    many instances, and time and money go to the same parts, within what a busy host's timing moves."""
    house.submit(
        {"command": "sleep 2", "array": 14, "expected_runtime": "2s"},
        {"command": "sleep 1; exit 3", "array": 6, "expected_runtime": "1s"},
        {"command": "sleep 4", "array": 2, "expected_runtime": "4s"},
    )
    time.sleep(4)
    house.submit({"command": "sleep 1", "array": 4, "expected_runtime": "1s"})
    house.until_all_ended(26)
    house.until_no_instance()
    house.kill(signal.SIGTERM)
    config = load(TomlFile(house.config), plugin)
    past = read_past(config)

    asked = study(config, asyncio.run(offers(config, past.end_ms)), from_record(past, "history"))
    found = answer(asked.scenario)
    real, simulated = at_its_rates(past), at_its_rates(found.record)

    assert found.findings == ()
    assert simulated.tasks == real.tasks
    assert simulated.runs == real.runs
    assert len(found.record.rentals) == len(past.rentals) == 2
    # Recorded boots and run times come back almost as they were; the host's load moves them a little.
    assert simulated.time.boot == pytest.approx(real.time.boot, rel=0.2, abs=300)
    assert simulated.time.work == pytest.approx(real.time.work, rel=0.06)
    # An end is seen by a listing, once a second here, and idle time is counted from one sync to another.
    assert simulated.time.idle == pytest.approx(real.time.idle, abs=2 * 1_500)
    assert simulated.makespan_ms == pytest.approx(real.makespan_ms, rel=0.1)
    # Billed are whole seconds, of 11.1 micro-dollars: two of them an instance are what the above may come to.
    assert simulated.cost.total == pytest.approx(real.cost.total, abs=2 * 2 * 12)
    assert found.billed == pytest.approx(real.cost.total, abs=2 * 2 * 12)
