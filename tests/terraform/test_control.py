"""What control VMs boot with, whatever the cloud: one template, which cloud-init, a shell and Python judge."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pwd
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cloud_dispatch.cloudinit import schema
from tests.terraform.rendering import MODULES, rendered

#: Longer than a module's own come to: a configuration, an identity certificate, what reaches other clouds.
FILES = {
    "config.toml": "".join(f'line_{one} = "{one * 7919:x}"\n' for one in range(120)),
    "identity.pem": "-----BEGIN CERTIFICATE-----\n" + "MIIB" * 400 + "\n-----END CERTIFICATE-----\n",
    "google.json": json.dumps({"type": "external_account", "audience": "//iam.example.org/pools/a"}),
}


def user_data(files: dict[str, str] = FILES, package: str = "cloud-dispatch[aws,postgres]==1.0") -> str:
    return rendered(MODULES / "shared" / "control.yaml.tftpl", {
        "package": package, "files": base64.b64encode(json.dumps(files).encode()).decode(),
        "devices": "/dev/disk/by-id/one /dev/xvdf",
    })  # fmt: skip


def written() -> dict[str, str]:
    """What it writes, by path."""
    return {one["path"]: one["content"] for one in yaml.safe_load(user_data())["write_files"]}


def test_cloud_init_takes_it() -> None:
    """By its own schema; 16 KiB is the least that a cloud takes, and half of that is kept free."""
    told = user_data()
    assert len(base64.b64encode(gzip.compress(told.encode()))) < 8 * 1024  # as it is sent
    program = schema.program()
    assert program, "there is no cloud-init: `make setup` brings it, and says why if it can't"
    for each in (told, user_data(files={"config.toml": ""})):
        assert schema.complaint(program, each) == ""
    assert schema.complaint(program, told.replace("runcmd:", "runcmd: 1 #")) != ""


def test_its_scripts_are_shell() -> None:
    """Each read by a shell that does not run it."""
    scripts = {path: text for path, text in written().items() if text.startswith("#!/bin/sh")}
    assert {Path(path).name for path in scripts} == {"cloud-dispatch-disk", "cloud-dispatch-setup"}
    for script in scripts.values():
        done = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_its_files_are_where_the_configuration_names_them(tmp_path: Path) -> None:
    """The script as it is, with another folder."""
    told = written()
    script = told["/usr/local/sbin/cloud-dispatch-files"].replace("/etc/cloud-dispatch", str(tmp_path))
    (tmp_path / "files.json").write_bytes(base64.b64decode(told["/etc/cloud-dispatch/files.json"]))
    subprocess.run([sys.executable, "-c", script], check=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != "files.json"} == FILES


@pytest.fixture(scope="module")
def state_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the file system of a state, as large as the smallest disk."""
    disk = tmp_path_factory.mktemp("disks") / "state"
    with disk.open("wb") as file:
        file.truncate(8 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-L", "cd-state", disk], check=True, env=_SYSTEM)
    return disk


_SYSTEM = {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}


def _disk(tmp_path: Path, disk: Path, **stubs: str) -> tuple[bool, str]:
    """Whether the disk script makes a file system on `disk`, and what it says where it fails. It is as it is, but for
    another root; `stubs`: what stands in for programs."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, line in {"mountpoint": "", "sleep": "", "mkfs.ext4": f'echo "$*" >{tmp_path}/made', **stubs}.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "fstab").touch()
    script = written()["/usr/local/sbin/cloud-dispatch-disk"].replace("/dev/disk/by-id/one", str(disk))
    script = script.replace("/var/lib/cloud-dispatch", str(tmp_path / "state")).replace(
        "/etc/fstab", f"{tmp_path}/fstab"
    )
    path = {"PATH": f"{programs}:{_SYSTEM['PATH']}"}
    done = subprocess.run(["sh"], input=script, capture_output=True, text=True, timeout=60, env=path, check=False)
    assert (done.returncode == 0) == ("cd-state" in (tmp_path / "fstab").read_text())
    assert done.returncode == 0 or "It is tried again every 30 seconds." in done.stderr
    made = (tmp_path / "made").read_text() if (tmp_path / "made").exists() else ""
    assert made in ("", f"-q -L cd-state {disk}\n")
    return bool(made), done.stderr if done.returncode else ""


@pytest.mark.parametrize("noise", [False, True])
def test_a_new_disk_becomes_the_states(tmp_path: Path, noise: bool) -> None:
    """Also one that reads as noise, as what is encrypted does on AWS before it is written to."""
    disk = tmp_path / "disk"
    disk.write_bytes(random.Random(7).randbytes(1 << 20) if noise else bytes(1 << 20))
    assert _disk(tmp_path, disk) == (True, "")


def test_the_states_disk_is_mounted_as_it_is(tmp_path: Path, state_disk: Path) -> None:
    """It has the state's label."""
    assert _disk(tmp_path, state_disk) == (False, "")


def test_a_state_whose_start_is_damaged_is_not_formatted(tmp_path: Path, state_disk: Path) -> None:
    """blkid finds nothing on it, e2fsck finds all of it; with the words that it is told to be called by."""
    disk = tmp_path / "disk"
    subprocess.run(["cp", "--sparse=always", state_disk, disk], check=True)
    with disk.open("r+b") as file:
        file.write(random.Random(7).randbytes(4096))
    assert subprocess.run(["blkid", "-p", disk], env=_SYSTEM, check=False).returncode == 2
    made, said = _disk(tmp_path, disk)
    assert (made, f"e2fsck -b 32768 -B 4096 {disk}." in said) == (False, True)
    words = ["e2fsck", "-y", "-b", "32768", "-B", "4096", str(disk)]
    assert subprocess.run(words, env=_SYSTEM, check=False, capture_output=True).returncode == 1, "mended"
    (tmp_path / "again").mkdir()
    assert _disk(tmp_path / "again", disk) == (False, "")


@pytest.mark.parametrize(
    ("blkid", "said"),
    [("exit 4", "can't be told (blkid: 4)"), ("exit 8", "can't be told (blkid: 8)"), ("echo other", "something else")],
)
def test_a_disk_of_which_is_not_known_that_it_is_blank_is_not_formatted(tmp_path: Path, blkid: str, said: str) -> None:
    """blkid fails, is of two minds, or finds another file system."""
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    made, words = _disk(tmp_path, tmp_path / "disk", blkid=blkid)
    assert (made, said in words) == (False, True)
    assert f"if nothing on this one is wanted, make it one: mkfs.ext4 -L cd-state {tmp_path}/disk." in words


def test_a_disk_that_cant_be_read_is_not_formatted(tmp_path: Path) -> None:
    """blkid says of it what it says of a blank one. A folder can't be read as a disk is."""
    (tmp_path / "disk").mkdir()
    assert subprocess.run(["blkid", "-p", tmp_path / "disk"], env=_SYSTEM, check=False).returncode == 2
    made, words = _disk(tmp_path, tmp_path / "disk")
    assert (made, "can't be read: nothing was written to it" in words) == (False, True)


def test_a_disk_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    """After five minutes, by its names."""
    made, words = _disk(tmp_path, tmp_path / "disk")
    assert (made, f"not there, by none of {tmp_path}/disk /dev/xvdf" in words) == (False, True)


@pytest.mark.parametrize("module", ["aws", "azure", "gcp"])
def test_templates_are_given_what_they_have_places_for(module: str) -> None:
    """Values that Terraform gives a template are those that it has places for; of every template of the module."""
    folder = MODULES / module
    text = "".join(file.read_text() for file in folder.glob("*.tf"))
    named = dict(re.findall(r'^\s*(\w+)\s+= "\$\{path\.module\}/([\w./-]+)"$', text, re.MULTILINE))
    calls = re.findall(r'templatefile\((?:"\$\{path\.module\}/([\w./-]+)"|local\.(\w+)), \{(.*?)\}\)', text, re.DOTALL)
    assert len(calls) == text.count("templatefile(") > 0
    for path, name, body in calls:
        given = re.findall(r"(?:^|\{)\s*(\w+)\s+=", "{" + body, re.MULTILINE)
        rendered(folder / (path or named[name]), dict.fromkeys(given, "x"))
    templates = {file.resolve() for file in (*folder.rglob("*.tftpl"), *(MODULES / "shared").glob("*.tftpl"))}
    assert {(folder / (path or named[name])).resolve() for path, name, _ in calls} == templates


def test_what_fails_at_the_first_boot_is_tried_until_it_is_done(tmp_path: Path) -> None:
    """cloud-init goes through its list once: an index of packages that was away for a moment, or a machine that was
    started anew meanwhile, would leave a deployment without its dispatcher."""
    unit = written()["/etc/systemd/system/cloud-dispatch-setup.service"]
    assert {"Type=oneshot", "Restart=on-failure", "StartLimitIntervalSec=0"} <= set(unit.splitlines())
    assert "WantedBy=multi-user.target\n" in unit
    assert [" ".join(words) for words in yaml.safe_load(user_data())["runcmd"]] == [
        "systemctl daemon-reload", "systemctl enable cloud-dispatch-setup", "systemctl start cloud-dispatch-setup",
    ]  # fmt: skip
    if (analyze := shutil.which("systemd-analyze")) is not None:
        path = tmp_path / "cloud-dispatch-setup.service"
        path.write_text(unit.replace("/usr/local/sbin/cloud-dispatch-setup", "/bin/true"))
        done = subprocess.run([analyze, "verify", "--man=no", path], capture_output=True, text=True, timeout=120)
        assert [line for line in done.stderr.splitlines() if path.name in line] == []


@pytest.mark.parametrize("whole", [False, True])
def test_what_was_half_installed_is_made_anew(tmp_path: Path, whole: bool) -> None:
    """pip takes a package for installed that it was killed over. What was seen to run stays."""
    script = written()["/usr/local/sbin/cloud-dispatch-setup"]
    lines = [line for line in script.splitlines() if "python3" in line and not line.startswith("#")]
    opt = tmp_path / "opt" / "cloud-dispatch"
    (opt / "lib").mkdir(parents=True)
    if whole:
        (opt / "current").symlink_to(".")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python3").write_text('#!/bin/sh\n[ "$1" = -c ] || mkdir "$3"\n')
    (programs / "python3").chmod(0o755)
    script = "\n".join(["set -eu", *lines]).replace("/opt/cloud-dispatch", str(opt))
    subprocess.run(["sh"], input=script, text=True, check=True, env={"PATH": f"{programs}:/usr/bin:/bin"})
    assert (opt / "lib").exists() == whole
    assert opt.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
def test_the_state_of_a_disk_is_its_users_whatever_number_he_had(tmp_path: Path) -> None:
    """Another image gives the user another one: the dispatcher could not open its own store. The line as it is, for
    another folder and a user of this machine; what links lead to stays whose it was."""
    (line,) = [
        line for line in written()["/usr/local/sbin/cloud-dispatch-setup"].splitlines() if "chown" in line.split("#")[0]
    ]
    state, outside = tmp_path / "state", tmp_path / "outside"
    (state / "keys").mkdir(parents=True)
    outside.touch()
    (state / "link").symlink_to(outside)
    (state / "keys" / "fence").touch()
    for path in (state, *state.rglob("*")):
        os.chown(path, 54_321, 54_321, follow_symlinks=False)
    line = line.replace("/var/lib/cloud-dispatch", str(state))
    line = line.replace("cloud-dispatch:cloud-dispatch", "nobody:").replace("-user cloud-dispatch", "-user nobody")
    subprocess.run(["sh", "-c", line], check=True)
    nobody = pwd.getpwnam("nobody").pw_uid
    assert {path.lstat().st_uid for path in (state, *state.rglob("*"))} == {nobody}
    assert outside.stat().st_uid == os.geteuid()


@pytest.mark.parametrize(
    "there",
    [(), ("keys",), ("keys", "store.sqlite"), ("keys", "restoring")],
    ids=["none", "keys", "all", "half"],
)
@pytest.mark.parametrize("named", ["", "s3://lab-queue/copies/latest"])
def test_a_control_vm_without_state_is_restored_before_its_service_starts(
    tmp_path: Path, named: str, there: tuple[str, ...]
) -> None:
    """Also where that was cut off; and one that has it copies the statestore first: its tables may be migrated. The
    script as it is, with another root and programs that say how they are called."""
    script = written()["/usr/local/sbin/cloud-dispatch-setup"].replace("/opt/cloud-dispatch/bin/", "")
    for folder in ("/etc/cloud-dispatch", "/var/lib/cloud-dispatch", "/opt/cloud-dispatch", "/usr/local/bin", "/run"):
        (tmp_path / folder[1:]).mkdir(parents=True)
        script = script.replace(folder, str(tmp_path / folder[1:]))
    state = tmp_path / "var/lib/cloud-dispatch"
    for one in there:
        (state / one).mkdir()
    if named:
        (tmp_path / "etc/cloud-dispatch/restore-from").write_text(named)
    programs = tmp_path / "programs"
    programs.mkdir()
    others = ("pip", "python3", "id", "find", "systemctl")
    for name in ("cloud-dispatch", "cloud-dispatch-files", "cloud-dispatch-disk", *others):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/said\n')
        (programs / name).chmod(0o755)
    path = {"PATH": f"{programs}:/usr/bin:/bin"}
    (programs / "ln").write_text("#!/bin/sh\nexit 1\n")  # the first time one of the last steps fails
    (programs / "ln").chmod(0o755)
    assert subprocess.run(["sh"], input=script, text=True, check=False, env=path).returncode == 1
    first = (tmp_path / "said").read_text().splitlines()
    (programs / "ln").write_text("#!/bin/sh\n")
    (tmp_path / "said").write_text("")
    subprocess.run(["sh"], input=script, text=True, check=True, env=path)
    lines = (tmp_path / "said").read_text().splitlines()
    assert lines[-1] == "systemctl disable cloud-dispatch-setup", "what is done is not done again"
    said, again = ([line for line in of if line.startswith("cloud-dispatch ")] for of in (first, lines))
    config = tmp_path / "etc/cloud-dispatch/config.toml"
    restored = (
        [f"cloud-dispatch restore --config {config} {named}"] if named and (not there or "restoring" in there) else []
    )
    copied = [f"cloud-dispatch backup --config {config} --into {state}/backups"] if "store.sqlite" in there else []
    assert said == [*copied, *restored, "cloud-dispatch install"]
    assert again == [*restored, "cloud-dispatch install"], "one copy is enough"
