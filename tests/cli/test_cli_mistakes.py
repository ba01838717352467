"""What was mistyped, or is wrong elsewhere: it is named, and keeps nobody from what has nothing to do with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.migrated import migrated_store


@pytest.mark.parametrize(
    "wrong",
    ["[pools.default]\nprofiles = ['nobody']\nmin_work = 1", "[profiles.x]\ndriver = 'none'", "[nonsense]"],
)
def test_a_dispatcher_that_runs_is_reached_whatever_else_is_wrong_with_the_file(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: str
) -> None:
    """The kill switch works, with a warning; `up` would not start so, and other commands still say all."""
    monkeypatch.delenv("CLOUD_DISPATCH_URL")
    monkeypatch.delenv("CLOUD_DISPATCH_TOKEN")
    config = tmp_path / "config.toml"
    listen = dispatcher.url.removeprefix("http://")
    config.write_text(
        f'[dispatcher]\nlisten = "{listen}"\ntls = false\nstate_dir = "state"\nlog_level = "loud"\n{wrong}\n'
    )
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "operator.token").write_text("operator-secret\n")
    ran = cli("stop", "--terminate-all", "--yes", "--config", str(config))
    assert (ran.code, dispatcher.stopped["level"]) == (0, "terminate-all")
    assert ran.err.startswith(f"warning: {config}:")
    assert "`cloud-dispatch config check` tells all" in ran.err
    assert cli("config", "check", "--config", str(config)).code == 2


@pytest.mark.parametrize(
    "wrong",
    [
        '[dispatcher]\nlisten = "0.0.0.0:7717"\ntls = false\n',
        "[dispatcher\n",
        '[dispatcher]\nstate-dir = "/srv/other"\n',
    ],
)
def test_who_cant_learn_the_address_is_told_how_to_name_it(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: str
) -> None:
    """A file that says nothing, an address that the token must not go to, or a slip by which it may be another's."""
    config = tmp_path / "config.toml"
    config.write_text(wrong)
    monkeypatch.setenv("CLOUD_DISPATCH_CONFIG", str(config))
    assert cli("tasks").code == 0
    monkeypatch.delenv("CLOUD_DISPATCH_TOKEN")
    ran = cli("tasks")
    assert ran.code == 2
    assert all(key in ran.err for key in ("$CLOUD_DISPATCH_URL", "$CLOUD_DISPATCH_TOKEN", "$CLOUD_DISPATCH_CA"))


def test_adopt_says_where_nothing_of_that_statestore_was_seen(cli: Any, dispatcher: Any) -> None:
    """A typo is no error, since a listing may show them later; but it is told beside what there is."""
    assert "No VM of statestore s1 was seen yet" in cli("adopt", "--store", "s1").out
    dispatcher.foreign = {"s1": 2, "s2": 1}
    assert cli("adopt", "--store", "s1").out == (
        "VMs of statestore s1 are taken over as they are found. Nobody knows what it has spent: limits count as spent"
        " until `budget reconcile`.\n"
    )
    assert "VMs were seen of: s1 (2 VMs), s2 (1 VM)." in cli("adopt", "--store", "s3").out
    assert cli("adopt", "--store", "s1", "--json").json() == {"store": "s1", "vms": 2, "others": {"s2": 1}}


def test_what_has_no_name_is_not_asked_for(cli: Any, dispatcher: Any) -> None:
    ran = cli("explain", "")
    assert (ran.code, dispatcher.requests) == (2, [])
    assert "TASK|INSTANCE: expected the number of a task or the name of an instance" in ran.err


def test_a_folder_that_is_not_there_is_named(cli: Any, tmp_path: Path) -> None:
    """Where a backup should go, and where copies are looked for."""
    config = tmp_path / "config.toml"
    config.write_text('[dispatcher]\nstate_dir = "state"\n')
    (tmp_path / "state").mkdir()
    migrated_store(tmp_path / "state" / "store.sqlite")
    assert cli("backup", str(tmp_path / "b.sqlite"), "--config", str(config)).code == 0
    for words in (("backup", f"{tmp_path}/nope/x.sqlite"), ("backups", "--from", f"{tmp_path}/nope")):
        ran = cli(*words, "--config", str(config))
        assert (ran.code, ran.out) == (3, "")
        assert f"there is no folder {tmp_path}/nope" in ran.err
    assert cli("backups", "--config", str(config)).out == "There is no copy.\n"
