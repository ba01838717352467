"""Notices in whole runs: work is back in the queue while its machine still lives, and writes down how far it is."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import msgspec
import pytest

from cloud_dispatch.domain.task import Cause, TaskState
from cloud_dispatch.simulation.clouds.records import Record
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.scenario import Work
from tests.simulation.complaints.preemption import _STRUCK_MS, NOTICES
from tests.simulation.complaints.staging import ALONE
from tests.simulation.complaints.story import Evidence, Story

_SAVES_MS = 4_000


def struck(story: Story, **fields: object) -> Evidence:
    """Two machines with 200 s of work each, of which one is taken back; the work is as `fields` say."""
    conduct = Conduct(run_ms=200_000, checkpoint_ms=_SAVES_MS)
    work = Work(**{"count": 2, "conduct": conduct, "shape": ALONE, "expected_ms": 200_000, **fields})  # type: ignore[arg-type]
    found = replace(story, scenario=msgspec.structs.replace(story.scenario, work=(work,))).play()
    assert found.result.ok, found.result.findings
    assert found.result.tasks[TaskState.SUCCEEDED] == 2
    return found


@pytest.mark.parametrize("story", NOTICES, ids=lambda story: story.name)
def test_work_is_back_in_the_queue_long_before_its_machine_is_taken(story: Story) -> None:
    """A task that writes down how far it is: it is told at once, has its time, and costs its machine's end nothing."""
    found = struck(story, checkpoint_signal="SIGUSR1")
    (taken,) = (cast(Record, vm) for vm in found.vms if cast(Record, vm).preempted)
    (first,) = (start for start in found.starts if start.vm == taken.id)
    (ended,) = ((at, a) for at, commit in found.commits for a in commit.attempts if a.cause == Cause.PREEMPTED)
    queued = [at for at, commit in found.commits for live in commit.live if live.task == first.task and at > _STRUCK_MS]
    at_ms, attempt = ended
    assert attempt.task == first.task
    assert _SAVES_MS <= at_ms - _STRUCK_MS < _SAVES_MS + 3_000
    assert min(queued) == at_ms
    gone_ms = found.ended_ms(taken)
    assert gone_ms is not None
    assert at_ms < gone_ms
    assert at_ms < _STRUCK_MS + story.scenario.accounts[0].faults[0].amount
