"""Each of the 25 complaints does not happen here; and each would be seen if it did."""

from __future__ import annotations

import pytest

from tests.simulation.complaints import STORIES
from tests.simulation.complaints.story import Story

EACH = pytest.mark.parametrize("story", [pytest.param(story, id=story.name) for story in STORIES])


@EACH
def test_it_does_not_happen_here(story: Story) -> None:
    """The situation comes about, every promise holds, and nothing of what the peer got wrong goes wrong."""
    found = story.play()
    assert found.result.ok, found.result.findings
    assert list(story.missing(found)) == []
    assert list(story.wrong(found)) == []


@EACH
def test_it_would_be_seen(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the peer's behaviour planted, the same reading of the same scenario says what went wrong."""
    said = list(story.wrong(story.play(monkeypatch)))
    assert any(story.fires in sentence for sentence in said), said


def test_every_complaint_has_its_scenario() -> None:
    """All 25, each under a name of its own."""
    assert sorted({story.number for story in STORIES}) == list(range(1, 26))
    assert len({story.name for story in STORIES}) == len(STORIES)
