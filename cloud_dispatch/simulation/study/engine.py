"""The answer to a study. Owns how a run of the simulator becomes a record, with the clouds' own bills in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cloud_dispatch.domain.money import Amount
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.record import Record
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Scenario
from cloud_dispatch.simulation.workload.history import record_of
from cloud_dispatch.simulation.world import World

#: Lines of the event log that are kept: a study asks for figures, not for the story.
_KEPT = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it. `billed` is the sum of the clouds' own meters; `findings` what went wrong on the way, such as
    work that had not ended when the run did."""

    record: Record
    billed: Amount
    findings: tuple[str, ...]
    digest: str


def answer(scenario: Scenario) -> Answer:
    """Run `scenario` to its end, without the checkers of promises. Must not be called while an event loop runs.

    The same scenario gets the same answer in every process.
    """
    found: list[Record] = []

    async def look(world: World) -> None:
        async def read(living: Incarnation) -> Record:
            assert living.store is not None
            return await record_of(living.store, world.clock.now())

        record = await world.inside(read)
        if record is None:  # nothing fails in a study, so nothing but a bug keeps the store from answering
            raise RuntimeError("the simulated dispatcher does not answer at the end of its run")
        found.append(record)

    outcome = run(scenario, checkers=(), keep=_KEPT, finish=look)
    (record,) = found
    bill = _bill(outcome)
    return Answer(
        record=_billed(record, bill),
        billed=Amount(sum(bill.values())),
        findings=tuple(finding.text for finding in outcome.findings),
        digest=outcome.digest,
    )


def _bill(outcome: Outcome) -> Mapping[str, Amount]:
    """By VM, or whatever else has a line."""
    bill: dict[str, Amount] = {}
    for line in outcome.bill:
        bill[line.vm] = Amount(bill.get(line.vm, 0) + line.amount)
    return bill


def _billed(record: Record, bill: Mapping[str, Amount]) -> Record:
    rentals = tuple(replace(rental, billed=bill.get(rental.vm)) for rental in record.rentals)
    return replace(record, rentals=rentals)
