"""What `install` tries as the service's user; the program is a script that reads what it is told. The real one is tried
so in a VM that has booted (tests/boot).
"""

from __future__ import annotations

import getpass
import os
import re
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.install import trial
from cloud_dispatch.install.trial import tried, visible
from cloud_dispatch.install.units import HIDDEN, Place, units

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root alone becomes another user")
READS = """\
#!/bin/sh
[ "$*" = "config check" ] && cat "$CLOUD_DISPATCH_CONFIG" && id -u && pwd && env
"""


def made(folder: Path, user: str, program: str = READS, mode: int = 0o755) -> Place:
    place = Place(folder / "program", folder / "config.toml", folder / "state", user)
    place.program.write_text(program)
    place.program.chmod(mode)
    place.config.write_text("[profiles.here]")
    return place


def judged(place: Place) -> None:
    """By the service's user."""
    tried(place.program, place.config, place.user)


@AS_ROOT
def test_what_the_user_may_not_read_is_told_with_what_to_do(open_folder: Path) -> None:
    place = made(open_folder, "nobody")
    place.config.chmod(0o644)
    judged(place)
    place.config.chmod(0o600)
    with pytest.raises(InvalidInput, match=r"nobody can't start with .*config\.toml: .*Permission denied") as refused:
        judged(place)
    assert "chown root:nobody" in refused.value.hint
    place.config.chmod(0o644)
    (open_folder / "closed").mkdir(mode=0o700)
    place.config.rename(open_folder / "closed" / "config.toml")
    hidden = Place(place.program, open_folder / "closed" / "config.toml", place.state, "nobody")
    with pytest.raises(InvalidInput, match="Permission denied"):
        judged(hidden)


@AS_ROOT
def test_a_program_that_the_user_may_not_run_is_told(open_folder: Path) -> None:
    """An environment that root made with a closed umask, for instance."""
    place = made(open_folder, "nobody", mode=0o700)
    place.config.chmod(0o644)
    with pytest.raises(InvalidInput, match="can't be run by nobody"):
        judged(place)


def test_a_user_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no user nobody-of-that-name"):
        judged(made(tmp_path, "nobody-of-that-name"))


@pytest.mark.parametrize("ends", ["exit 2", "kill -9 $$"])
def test_the_programs_words_are_told(tmp_path: Path, ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for says nothing of the caller's environment: the service has none of it."""
    monkeypatch.setenv("OF_THE_CALLER", "1")
    place = made(tmp_path, getpass.getuser(), f'{READS}[ "$OF_THE_CALLER" ] || echo a key is wrong >&2\n{ends}\n')
    with pytest.raises(InvalidInput, match="a key is wrong"):
        judged(place)


@pytest.mark.parametrize("folder", HIDDEN)
def test_what_the_units_hide_is_refused(folder: str) -> None:
    visible([Path("/etc/cloud-dispatch/config.toml"), Path("/opt/cloud-dispatch"), Path(f"{folder}work")])
    with pytest.raises(InvalidInput, match=re.escape(f"{folder}/lab/config.toml is hidden from the service")):
        visible([Path("/opt"), Path(folder) / "lab" / "config.toml"])


def test_what_leads_to_where_it_is_hidden_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "HIDDEN", (str(tmp_path / "home"),))
    (tmp_path / "link").symlink_to(tmp_path / "home" / "lab")
    visible([tmp_path / "opt"])
    with pytest.raises(InvalidInput, match="hidden"):
        visible([tmp_path / "link" / "config.toml"])


def test_the_hidden_folders_are_those_that_the_units_close() -> None:
    """By systemd.exec(5): ProtectHome closes /home, /root and /run/user, PrivateTmp /tmp and /var/tmp."""
    place = Place(Path("/opt/bin/cloud-dispatch"), Path("/etc/c.toml"), Path("/var/lib/cloud-dispatch"))
    for name, text in units(place).items():
        if name.endswith(".service"):
            assert {"ProtectHome=yes", "PrivateTmp=yes"} <= set(text.splitlines())
    assert set(HIDDEN) == {"/home", "/root", "/run/user", "/tmp", "/var/tmp"}
