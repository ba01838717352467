"""Following tasks that the dispatcher does not have any more."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_dispatch.cli import follow
from tests.cli.test_cli_submit import fails, succeeds


def test_run_does_not_wait_for_what_is_not_kept_any_more(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as on a laptop that slept for longer than that: on a page with others, and on pages that are empty now."""
    pauses = iter(range(20))
    monkeypatch.setattr(follow.Watch, "pause", lambda watch: next(pauses))
    dispatcher.plays = lambda task: None

    def sleeps() -> None:
        for number, task in list(dispatcher.tasks.items()):
            if number in (1, 2, 700) or 1_100 < number < 2_500:
                del dispatcher.tasks[number]
            else:
                succeeds(task)

    dispatcher.on_poll = sleeps
    ran = cli("run", "--array", "2500", "--", "true")
    assert (ran.code, ran.err.splitlines()[-2]) == (3, "1098 succeeded")
    assert "How 1402 tasks, 1 to 2499, ended is not known: the dispatcher does not have them any more" in ran.err
    dispatcher.tasks.clear()
    dispatcher.on_poll = lambda: dispatcher.tasks.pop(1, None)
    dispatcher.plays = lambda task: fails(task) if task["id"] == 2 else None
    assert cli("run", "--", "echo", ":::", "a", "b").code == 1, "one is known to have failed"
