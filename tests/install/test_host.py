"""What `install` does to a machine; stood in for are systemctl and useradd, which write down what they were told."""

from __future__ import annotations

import getpass
import os
import pwd
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Conflict, InvalidInput, Unavailable
from cloud_dispatch.install import host
from cloud_dispatch.install.units import BACKUP, JOURNAL_FILE, SERVICE, TIMER, Place, journal, units


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    (tmp_path / "units").mkdir()
    monkeypatch.setattr(host, "UNITS", tmp_path / "units")
    return Place(
        Path("/opt/bin/cloud-dispatch"), tmp_path / "config.toml", tmp_path / "state", getpass.getuser(),
        tmp_path / "credentials",
    )  # fmt: skip


def reads(place: Place) -> None:
    """The service's user, who can start with the configuration (test_trial.py)."""


def test_a_second_time_changes_nothing(place: Place) -> None:
    """Folders are closed to others; the service is started again only where its unit has changed."""
    told: list[Sequence[str]] = []
    files = units(place) | journal()
    assert host.install(place, files, start=True, execute=told.append, attempt=reads) == [
        SERVICE,
        BACKUP,
        TIMER,
        JOURNAL_FILE,
    ]
    assert [words[1:] for words in told] == [
        ["daemon-reload"], ["try-restart", "systemd-journald@cloud-dispatch.service"],
        ["enable", SERVICE], ["restart", SERVICE], ["enable", TIMER], ["restart", TIMER],
    ]  # fmt: skip
    for folder in (place.state, place.credentials):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    del told[:]
    assert sorted(one.name for one in host.UNITS.iterdir()) == sorted([SERVICE, BACKUP, TIMER])
    assert (host.UNITS.parent / JOURNAL_FILE).read_text() == files[JOURNAL_FILE]
    assert host.install(place, files, start=True, execute=told.append, attempt=reads) == []
    assert [words[1:] for words in told] == [
        ["daemon-reload"], ["enable", SERVICE], ["start", SERVICE], ["enable", TIMER], ["start", TIMER],
    ]  # fmt: skip
    assert host.install(place, {**files, BACKUP: "[Unit]\n"}, start=False, execute=told.append, attempt=reads) == [
        BACKUP
    ]
    assert told[-1] == ["systemctl", "enable", TIMER]


def test_a_user_that_is_not_there_is_made_first(place: Place) -> None:
    told: list[Sequence[str]] = []

    def made(words: Sequence[str]) -> None:
        told.append(words)
        raise Unavailable("no right")

    stranger = Place(place.program, place.config, place.state, "nobody-of-that-name")
    with pytest.raises(Unavailable):
        host.install(stranger, units(stranger), start=True, execute=made, attempt=reads)
    assert told[0][0] == "useradd"
    assert told[0][-1] == "nobody-of-that-name"
    assert not list(host.UNITS.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives folders away")
def test_a_folder_of_roots_is_given_while_it_is_empty_and_else_told_of(place: Place) -> None:
    """As an `install` leaves it that was cut off, or a fresh disk that is mounted there; the service could not write
    there. What root's trial has left is not ours to give: nothing is installed beside it."""
    user = pwd.getpwnam("nobody")
    of_nobody = replace(place, user="nobody", copies=place.state.parent / "copies")
    for mine in (place.state, of_nobody.copies):
        assert mine is not None
        mine.mkdir(mode=0o755)
    (place.state / "keys").mkdir()
    with pytest.raises(Conflict, match=f"{place.state} is not nobody's") as refused:
        host.install(of_nobody, units(of_nobody), start=True, execute=[].append, attempt=reads)
    assert f"chown -R nobody: {place.state}" in refused.value.hint
    assert not list(host.UNITS.iterdir())
    (place.state / "keys").rename(place.state / "lost+found")
    assert host.install(of_nobody, units(of_nobody), start=True, execute=[].append, attempt=reads)
    assert (place.state / "lost+found").stat().st_uid == 0
    for given in (place.state, of_nobody.copies):
        assert given is not None
        found = given.stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (user.pw_uid, user.pw_gid, 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives folders away")
@pytest.mark.parametrize(("group", "mode"), [(True, 0o770), (False, 0o777)])
def test_a_folder_that_the_user_may_write_to_stays_as_it_is(place: Place, group: bool, mode: int) -> None:
    """Copies may go to a share that others use too."""
    shared = place.state.parent / "shared"
    shared.mkdir()
    os.chown(shared, 0, pwd.getpwnam("nobody").pw_gid if group else 0)
    shared.chmod(mode)
    (shared / "somebody's").touch()
    before = shared.stat()
    host.folder(shared, 0o700, "nobody")
    assert (shared.stat().st_uid, shared.stat().st_mode) == (before.st_uid, before.st_mode)


def test_nothing_is_installed_for_a_user_who_could_not_start(place: Place) -> None:
    def refuses(place: Place) -> None:
        raise InvalidInput(f"{place.user} can't start")

    told: list[Sequence[str]] = []
    with pytest.raises(InvalidInput):
        host.install(place, units(place), start=True, execute=told.append, attempt=refuses)
    assert not told
    assert not list(host.UNITS.iterdir())
    assert not place.state.exists()


def test_a_service_that_does_not_start_is_told_with_where_its_words_are(place: Place) -> None:
    def fails(words: Sequence[str]) -> None:
        if words[:2] == ["systemctl", "restart"]:
            raise Unavailable("systemctl restart failed", hint="the command needs root and systemd")

    with pytest.raises(Unavailable) as refused:
        host.install(place, units(place), start=True, execute=fails, attempt=reads)
    assert "journalctl --namespace cloud-dispatch" in refused.value.hint


def test_a_program_that_fails_is_told_with_its_words() -> None:
    with pytest.raises(Unavailable, match="it is broken"):
        host.run(["sh", "-c", "echo it is broken >&2; exit 3"])
    with pytest.raises(Unavailable, match="can't be run"):
        host.run(["/nowhere/systemctl", "daemon-reload"])
