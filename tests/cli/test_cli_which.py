"""`cancel` and `rerun`, and the client's calls for them: which tasks are meant."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_dispatch.client import Client
from cloud_dispatch.domain import errors
from tests.cli.conftest import TOKEN


def test_cancel_needs_to_know_what(cli: Any, dispatcher: Any) -> None:
    """An empty cancel would be everything: refused before any request."""
    dispatcher.plays = lambda task: None
    dispatcher.add(project="p")
    dispatcher.add()
    ran = cli("cancel")
    assert (ran.code, dispatcher.requests) == (2, [])
    assert cli("cancel", "--project", "p", "--json").json() == {"cancelled": [1]}
    assert cli("cancel", "2").out == "1 cancelled.\n"
    assert cli("cancel", "2").out == "Nothing to cancel.\n"


@pytest.mark.parametrize("verb", ["cancel", "rerun"])
@pytest.mark.parametrize("option", ["--project", "--user", "--array"])
def test_an_option_that_a_shell_left_empty_widens_nothing(cli: Any, dispatcher: Any, verb: str, option: str) -> None:
    """`--project "$NIGHT"` where that is not set: refused before any request, also beside others."""
    dispatcher.plays = lambda task: None
    dispatcher.add(project="p")
    for rest in ([], ["--state", "queued"], ["1"]):
        ran = cli(verb, option, "", *rest)
        assert (ran.code, dispatcher.requests, option in ran.err) == (2, [], True), ran.err
    assert cli(verb, "", "--state", "queued").code == 2


def test_an_empty_list_of_a_program_means_no_task(dispatcher: Any) -> None:
    """What a caller of the client gives goes to the dispatcher as it is, which refuses it; what he leaves out does
    not."""
    dispatcher.plays = lambda task: None
    dispatcher.add(project="p")
    with Client(dispatcher.url, TOKEN) as client:
        for change in (client.cancel, client.rerun):
            with pytest.raises(errors.InvalidInput):
                change([], project="p")
            with pytest.raises(errors.InvalidInput):
                change(project="", states=["queued"])
        assert client.cancel(project="p") == [1]


def test_rerun_tells_which_task_runs_in_whose_place(cli: Any, dispatcher: Any) -> None:
    """And needs to know what, as `cancel` does."""
    dispatcher.plays = lambda task: task.update(state="failed", cause="exit-code")
    dispatcher.add(project="p")
    dispatcher.add()
    ran = cli("rerun")
    assert (ran.code, dispatcher.requests) == (2, [])
    assert cli("rerun", "2", "--json").json() == {"tasks": [{"task": 2, "again": 3, "state": "queued"}]}
    assert ["1", "4", "queued"] in [line.split() for line in cli("rerun", "--project", "p").out.splitlines()]
    assert cli("rerun", "9").out == "Nothing to run again.\n"
