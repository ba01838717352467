"""The unit of the agent's supervisor: what it says, and the bootstrap that starts it where there is a systemd."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloud_dispatch.cloudinit.render import render
from cloud_dispatch.domain.errors import InvalidInput

DISPATCHER: dict[str, Any] = {
    "url": "http://127.0.0.1:1",
    "join_token": "join",
    "agent_sha256": "ab" * 32,
    "pool": "default",
    "timer": {"anchor": "ab" * 32, "first_ms": 60_000, "step_ms": 1, "links": 1, "lease_ms": 1, "ends_ms": 10**15},
}
UNIT, END = "cloud-dispatch.service", "cloud-dispatch-end.service"
#: Tasks inherit what the unit does to itself: each of these breaks some that the image promises to run.
BREAKS_TASKS = (
    "NoNewPrivileges", "RestrictSUIDSGID", "PrivateDevices", "PrivateTmp", "ProtectHome", "ProtectProc", "ProtectClock",
    "ProtectKernelTunables", "ProtectKernelLogs", "ProtectKernelModules", "ProtectHostname", "ProtectControlGroups",
    "RestrictNamespaces", "RestrictAddressFamilies", "SystemCallFilter", "LockPersonality", "MemoryDenyWriteExecute",
    "User", "DynamicUser", "UMask", "DevicePolicy",
)  # fmt: skip


def files(**variables: Any) -> dict[str, str]:
    document = yaml.safe_load(render("agent", {**DISPATCHER, **variables}))
    return {Path(file["path"]).name: file["content"] for file in document["write_files"]}


def settings(unit: str) -> dict[str, list[str]]:
    """The settings of a unit, each with all its values."""
    found: dict[str, list[str]] = {}
    for line in unit.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found.setdefault(name, []).append(value)
    return found


def test_the_supervisor_is_started_again_and_its_failure_ends_the_vm() -> None:
    """It comes back after a crash, not after a configuration that it can't use; where it can't stay, the VM ends."""
    unit, end = settings(files()[UNIT]), settings(files()[END])
    assert unit["Restart"] == ["on-failure"]
    assert unit["RestartPreventExitStatus"] == ["2"]
    assert int(unit["StartLimitBurst"][0]) < int(unit["StartLimitIntervalSec"][0])
    assert unit["OnFailure"] == [END]
    assert end["ExecStart"] == ['/bin/sh -c "systemctl poweroff"']


def test_the_supervisor_runs_the_same_on_any_image() -> None:
    """By systemd as by the boot script: without what an image's Python has been given besides its standard library."""
    (line,) = settings(files()[UNIT])["ExecStart"]
    started = line.removeprefix('/usr/bin/env "python3"')
    assert started == " -S -I agent.pyz agent.json"
    assert files()["bootstrap.sh"].splitlines()[-1] == f'exec "$python"{started}'


def test_a_task_that_dies_does_not_stop_the_service() -> None:
    """systemd stops a service of which the kernel killed a process for its memory, unless it is told not to."""
    unit = settings(files()[UNIT])
    assert (unit["OOMPolicy"], unit["TasksMax"], unit["KillMode"]) == (["continue"], ["infinity"], ["mixed"])
    assert int(unit["TimeoutStopSec"][0]) > 45


def test_the_unit_takes_nothing_that_tasks_need() -> None:
    """No setting of the unit is one that tasks inherit and break by; the file system is theirs where they are root."""
    unit = settings(files()[UNIT])
    assert not set(unit) & set(BREAKS_TASKS)
    assert unit["ProtectSystem"] == ["full"]
    assert "ProtectSystem" not in settings(files(task_uids="")[UNIT])
    kept = " ".join(unit["CapabilityBoundingSet"])
    for needed in ("SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "SYS_MODULE", "SYS_ADMIN", "SYS_BOOT"):
        assert f"CAP_{needed} " not in f"{kept} "


@pytest.mark.parametrize("text", ['a b"c', "50%", "back\\slash", "$HOME"])
def test_values_arrive_in_units_as_they_are(text: str) -> None:
    """What systemd would read as a quote, a specifier, an escape or a variable is written so that it does not."""
    unit = settings(files(python=f"/opt/{text}/python3", end_command=f"echo {text}", proxies={"http": text})[UNIT])
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    assert unit["Environment"] == [f'"http_proxy={quoted}"']
    assert unit["ExecStart"] == [f'/usr/bin/env "/opt/{quoted.replace("$", "$$")}/python3" -S -I agent.pyz agent.json']


def test_a_line_break_does_not_make_a_setting() -> None:
    """A value with a control character is refused, not written into the unit."""
    with pytest.raises(InvalidInput, match="no control characters"):
        files(python="python3\nExecStartPre=/bin/evil")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="more of the same where systemd is installed")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    """systemd knows every setting, also with values that have to be quoted."""
    found = files(python='/opt/a b"c/$x%/python3', base_folder=str(tmp_path), proxies={"http": "http://p:1/%41 x"})
    for name in (UNIT, END):
        (tmp_path / name).write_text(found[name])
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    complaints = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert not complaints


WAITED_FOR: dict[str, Any] = {
    "nvidia": True,
    "mounts": [{"kind": "tmpfs", "source": "", "path": "/scratch", "options": "", "size": 0}],
    "scripts": [{"name": "a.sh", "content": "#!/bin/sh\n"}],
    "early": False,
    "service": "",
}


@pytest.mark.parametrize("asked", ["", *WAITED_FOR])
def test_where_nothing_is_waited_for_the_boot_script_runs_once_it_is_written(asked: str, tmp_path: Path) -> None:
    """By a unit of its own: at the first boot, where there is a systemd. What a pool asks for happens when it always
    did, at the end of cloud-init."""
    document = yaml.safe_load(
        render("agent", {**DISPATCHER, "base_folder": str(tmp_path), **({asked: WAITED_FOR[asked]} if asked else {})})
    )
    assert document["runcmd"] == [["/bin/sh", f"{tmp_path}/bootstrap.sh"]]
    assert ("bootcmd" in document) is (not asked)
    if asked:
        return
    (command,) = document["bootcmd"]

    def started(systemd: Path) -> list[str]:
        """What is asked of systemd by the command, with a `systemd-run` that fails as it may."""
        script, path = command.replace("/run/systemd/system", str(systemd)), {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(
            ["/bin/sh", "-ec", script], env=path, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.splitlines()

    (tmp_path / "systemd-run").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 1\n")
    (tmp_path / "systemd-run").chmod(0o755)
    words = started(tmp_path)
    assert "DefaultDependencies=no" in words, "systemd would not start it before the stage of the network is over"
    assert "Before=shutdown.target" in words
    assert ran_when_whole(words[words.index("/bin/sh") :], tmp_path / "bootstrap.sh")
    (tmp_path / "bootstrap.sh").unlink()
    assert started(tmp_path / "absent") == []
    (tmp_path / "bootstrap.sh").touch()
    assert started(tmp_path) == []


def ran_when_whole(command: list[str], script: Path) -> bool:
    """Whether the command, started before there is a script, runs it when it is executable and not sooner: cloud-init
    writes a file first."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        script.write_text("echo half")
        with pytest.raises(subprocess.TimeoutExpired):
            running.communicate(timeout=0.5)
        script.write_text("echo whole")
        script.chmod(0o755)
        return running.communicate(timeout=60)[0] == "whole\n"
    finally:
        running.kill()
        running.wait()


def test_all_that_the_boot_script_needs_is_written_before_it() -> None:
    """It may be run once it is there."""
    for asked in ({}, *({name: value} for name, value in WAITED_FOR.items())):
        document = yaml.safe_load(render("agent", {**DISPATCHER, **asked}))
        assert document["write_files"][-1]["path"].endswith("/bootstrap.sh")
        assert document["write_files"][-1]["permissions"] == "0755"


def on_a_systemd(tmp_path: Path, failing: bool = False) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the bootstrap on a machine whose programs are stand-ins that write down what they were asked."""
    machine, programs = tmp_path / "machine", tmp_path / "programs"
    for folder in (machine, programs, tmp_path / "run", tmp_path / "units"):
        folder.mkdir()
    found = files(base_folder=str(machine), vm_id_command="echo i-1", end_command="poweroff")
    for name, content in found.items():
        (machine / name).write_text(content)
    (machine / "boot.py").write_text("")  # another test's business
    script = found["bootstrap.sh"].replace("/run/systemd/system", str(tmp_path / "run"))
    (machine / "bootstrap.sh").write_text(script.replace("/etc/systemd/system", str(tmp_path / "units")))
    asked = tmp_path / "asked"
    for name, code in {"systemctl": int(failing), "useradd": 0, "poweroff": 0, "id": 1, "nft": 0, "sleep": 0}.items():
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{asked}\nexit {code}\n')
        (programs / name).chmod(0o755)
    (programs / "sleep").write_text("#!/bin/sh\n")  # nothing waits here; and so the early timer ends at once
    done = subprocess.run(
        ["/bin/sh", machine / "bootstrap.sh"], env={"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done, asked.read_text().splitlines()


def test_systemd_gets_the_units_and_starts_them(tmp_path: Path) -> None:
    """The agent's user is made, the units are in place before systemd is told, and a reboot starts them again. What it
    knows already it need not read again: that would take as long as all the rest."""
    done, asked = on_a_systemd(tmp_path)
    assert done.returncode == 0, done.stderr
    (made,) = [line for line in asked if line.startswith("useradd ")]
    assert made.startswith("useradd --system ")
    assert made.endswith(" cloud-dispatch")
    assert [line for line in asked if "is-active" not in line and line.startswith("systemctl")] == [
        "systemctl enable --now --no-reload cloud-dispatch.service",
    ]  # fmt: skip
    assert [line for line in asked if line.startswith(("nft", "systemctl enable"))] == [
        "nft -f -", "systemctl enable --now --no-reload cloud-dispatch.service",
    ]  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "units").iterdir()) == [END, UNIT]
    born = (tmp_path / "machine" / "environment").read_text()
    assert float(born.removeprefix("CLOUD_DISPATCH_BORN=")) > 0


def test_the_boot_script_runs_once_a_boot(tmp_path: Path) -> None:
    """Started by its unit and again by the commands: whoever comes second does nothing, and that is no failure."""
    on_a_systemd(tmp_path)
    (tmp_path / "asked").unlink()
    script = ["/bin/sh", tmp_path / "machine" / "bootstrap.sh"]
    environment = {"PATH": f"{tmp_path}/programs:/usr/local/bin:/usr/bin:/bin"}
    assert subprocess.run(script, env=environment, timeout=60, check=False).returncode == 0
    assert not (tmp_path / "asked").exists()


def test_an_early_timer_leaves_a_vm_alone_whose_supervisor_is_up(tmp_path: Path) -> None:
    """With the service at work, the end of the boot script's timer is nothing."""
    _, asked = on_a_systemd(tmp_path)
    assert "systemctl is-active --quiet cloud-dispatch.service" in asked
    assert "poweroff " not in asked


def test_a_systemd_that_does_not_start_it_ends_the_vm(tmp_path: Path) -> None:
    """A service that can't be started is a boot that failed."""
    done, asked = on_a_systemd(tmp_path, failing=True)
    assert done.returncode != 0
    assert "poweroff " in asked
