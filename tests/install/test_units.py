"""The units of a control VM: what systemd itself says of them."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cloud_dispatch.install.units import BACKUP, SERVICE, TIMER, Place, journal, quoted, units

ANALYZE = shutil.which("systemd-analyze")
#: Of ten; systemd's own words: below 3 is "OK", from 5 on "medium".
MOST_EXPOSED = 3.0
judged = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze, which judges units, is not on this machine")


def place(folder: Path, name: str = "own") -> Place:
    program = folder / "bin" / "cloud-dispatch"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return Place(program, folder / name / "config.toml", folder / name / "state", user="root")


def written(folder: Path, files: dict[str, str]) -> list[Path]:
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


def exposure(unit: Path) -> float:
    """What `systemd-analyze security` says, 0 to 10."""
    words = [str(ANALYZE), "security", "--offline=true", "--json=short", "--no-pager", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    table = json.loads(done.stdout)
    assert table, done.stderr
    words = [str(ANALYZE), "security", "--offline=true", "--no-pager", str(unit)]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60).stdout
    (line,) = [line for line in said.splitlines() if "Overall exposure level" in line]
    return float(line.split(":")[1].split()[0])


@judged
@pytest.mark.parametrize("unit", [SERVICE, BACKUP])
def test_what_a_service_may_do_is_little(tmp_path: Path, unit: str) -> None:
    files = units(place(tmp_path))
    written(tmp_path, files)
    assert exposure(tmp_path / unit) < MOST_EXPOSED
    (tmp_path / unit).write_text(files[unit].replace("CapabilityBoundingSet=\n", "").replace("SystemCallFilter", "#"))
    assert exposure(tmp_path / unit) > MOST_EXPOSED


@judged
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    """Also where paths have signs that mean something to it. It says nothing, and does say what it does not know."""
    paths = written(tmp_path, units(place(tmp_path, 'of 100% $HOME "x"')))
    words = [str(ANALYZE), "verify", "--man=no", *map(str, paths)]
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=120)
    ours = [line for line in done.stderr.splitlines() if "cloud-dispatch" in line]
    assert ours == []
    paths[0].write_text(paths[0].read_text().replace("[Service]", "[Service]\nProtectAll=yes"))
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert "ProtectAll" in done.stderr


def test_the_timer_starts_the_backup_of_its_name(tmp_path: Path) -> None:
    """A timer starts the service that is called as it is."""
    assert TIMER.removesuffix(".timer") == BACKUP.removesuffix(".service")
    files = units(place(tmp_path))
    assert set(files) == {SERVICE, BACKUP, TIMER}
    assert f"backup --config {quoted(tmp_path / 'own' / 'config.toml')}\n" in files[BACKUP]


def test_both_services_have_the_environment_of_a_file_that_need_not_be_there(tmp_path: Path) -> None:
    """What SDKs and `env:NAME` look for there; systemd reads it, so that it is root's alone."""
    made = dataclasses.replace(place(tmp_path), environment=tmp_path / "100%")
    for unit in (SERVICE, BACKUP):
        assert one_of(units(made)[unit].splitlines(), "EnvironmentFile") == f"-{tmp_path}/100%%"
        assert (
            "EnvironmentFile=-/etc/cloud-dispatch/environment\n"
            in units(Place(made.program, made.config, made.state))[unit]
        )


def test_without_the_disk_of_the_state_nothing_is_begun_anew_in_its_place(tmp_path: Path) -> None:
    """Nor is a copy made into the folder where the disk of copies would be."""
    made = dataclasses.replace(place(tmp_path), copies=tmp_path / "else $where")
    of_state, of_copies = (f'RequiresMountsFor="{path}"' for path in (made.state, made.copies))
    files = {name: text.partition("[Service]")[0].splitlines() for name, text in units(made).items()}
    assert (of_state in files[SERVICE], of_copies in files[SERVICE]) == (True, False)
    assert {of_state, of_copies} <= set(files[BACKUP])


@judged
def test_copies_elsewhere_are_all_that_the_backup_may_write_besides(tmp_path: Path) -> None:
    """The dispatcher itself may not."""
    made = dataclasses.replace(place(tmp_path), copies=tmp_path / "else where")
    files = units(made)
    line = f'ReadWritePaths="{tmp_path}/else where"\n'
    assert (line in files[BACKUP], line in files[SERVICE]) == (True, False)
    written(tmp_path, files)
    assert exposure(tmp_path / BACKUP) < MOST_EXPOSED


def test_a_path_that_no_unit_can_hold_is_refused(tmp_path: Path) -> None:
    """Its second line would be a setting."""
    for odd in ("a\nUser=root", "a b", "a%n", "a$b"):
        with pytest.raises(ValueError, match="can't be the program"):
            units(Place(tmp_path / odd, tmp_path / "c", tmp_path / "s"))
    with pytest.raises(ValueError, match="no unit can hold"):
        units(Place(tmp_path / "a", tmp_path / "c\nUser=root", tmp_path / "s"))
    with pytest.raises(ValueError, match="no unit can hold"):
        units(Place(tmp_path / "a", tmp_path / "c", tmp_path / "s\nUser=root"))
    with pytest.raises(ValueError, match="no unit can hold"):
        units(Place(tmp_path / "a", tmp_path / "c", tmp_path / "s", user="x\nUser=root"))


def test_the_service_says_when_it_is_up_and_what_it_logs_is_bounded(tmp_path: Path) -> None:
    """The journal of its name is the one whose bounds are written; a bad configuration fails the reload before any
    signal. It starts after whatever waits for the clock."""
    unit, (name, text) = units(place(tmp_path))[SERVICE].splitlines(), *journal().items()
    assert {"Type=notify", "NotifyAccess=main", "WatchdogSec=120"} <= set(unit)
    assert f"journald@{one_of(unit, 'LogNamespace')}.conf" == name
    assert {"SystemMaxUse=1G", "Storage=persistent", "RateLimitBurst=20000"} <= set(text.splitlines())
    assert "time-sync.target" in one_of(unit, "After").split(), "a clock that is wrong at the start is believed"
    check, hang_up = (line.partition("=")[2] for line in unit if line.startswith("ExecReload="))
    assert check.split(" ", 1)[1] == f"config check --config {quoted(tmp_path / 'own' / 'config.toml')}"
    assert hang_up == "/bin/kill -HUP $MAINPID"


def one_of(unit: list[str], setting: str) -> str:
    (line,) = [line for line in unit if line.startswith(f"{setting}=")]
    return line.partition("=")[2]
