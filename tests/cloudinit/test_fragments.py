"""What a pool's `boot` adds to its VMs' documents: what the scripts say, and that shells understand it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloud_dispatch.cloudinit.render import render

DISPATCHER: dict[str, Any] = {
    "url": "http://10.0.0.1:7717",
    "join_token": "join",
    "agent_sha256": "ab" * 32,
    "pool": "default",
}
MOUNTS = [
    {"kind": "nfs", "source": "10.0.0.2:/export", "path": "/data", "options": "ro,nfsvers=4.1", "size": 0},
    {"kind": "tmpfs", "source": "", "path": "/scratch", "options": "", "size": 1 << 30},
    {
        "kind": "block", "source": "/dev/vdb", "path": "/big", "options": "noatime", "filesystem": "xfs",
        "format": True, "size": 0,
    },
]  # fmt: skip
EVERYTHING: dict[str, Any] = {
    "nvidia": True,
    "mounts": MOUNTS,
    "proxies": {"http": "http://p:1", "https": "http://p:2", "no": "10.0.0.0/8"},
    "scripts": [{"name": "a.sh", "content": "#!/bin/sh\necho one\n"}],
}


def files(**variables: Any) -> dict[str, str]:
    document = yaml.safe_load(render("agent", {**DISPATCHER, **variables}))
    return {file["path"].removeprefix("/var/lib/cloud-dispatch/"): file["content"] for file in document["write_files"]}


@pytest.mark.parametrize("left_out", ["", *EVERYTHING])
def test_shells_understand_every_combination(left_out: str) -> None:
    """All fragments together, and all but one, whose functions others must not need."""
    found = files(**{name: value for name, value in EVERYTHING.items() if name != left_out})
    for name in ("bootstrap.sh", "metadata.sh"):
        done = subprocess.run(
            ["/bin/sh", "-n"], input=found[name], capture_output=True, text=True, timeout=10, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert found[name].startswith("#!/bin/sh\n")
    script = found["bootstrap.sh"]
    for function in ("has", "debian", "begin", "attach"):
        used = any(line.strip().startswith(f"{function} ") for line in script.splitlines())
        assert not used or f"{function}() {{" in script


def test_the_timer_is_armed_before_any_fragment() -> None:
    """Whatever a fragment does or waits for, the VM's end is certain by then."""
    timer = {"anchor": "ab" * 32, "first_ms": 60_000, "step_ms": 1, "links": 1, "lease_ms": 1, "ends_ms": 10**15}
    script = files(**EVERYTHING, timer=timer)["bootstrap.sh"]
    begun = [
        script.index(text)
        for text in (
            'sleep "$left"',
            "phase=proxies",
            "phase=fetch",
            "begin drivers",
            "begin mounts",
            "begin snippets",
            "phase=metadata",
            "phase=service",
        )
    ]
    assert begun == sorted(begun)


def test_mounts_are_made_as_they_are_asked_for() -> None:
    """Source, folder, type and options of each, and a file system only where there is none and it may be made."""
    script = files(mounts=MOUNTS)["bootstrap.sh"]
    assert "attach nfs 10.0.0.2:/export /data ro,nfsvers=4.1,_netdev,nofail\n" in script
    assert f"attach tmpfs tmpfs /scratch size={1 << 30},nodev,nosuid\n" in script
    assert '  mkfs -t xfs "$device" || give_up' in script
    assert 'attach xfs "$device" /big noatime,nofail\n' in script
    careful = files(mounts=[{**MOUNTS[2], "format": False}])["bootstrap.sh"]
    assert "mkfs" not in careful


@pytest.mark.parametrize(
    ("device", "blkid", "made"),
    [("blank", None, True), ("swap", None, False), ("folder", None, False), ("blank", 4, False), ("blank", 8, False)],
)
def test_a_device_is_formatted_only_where_nothing_is_found_on_it(
    device: str, blkid: int | None, made: bool, tmp_path: Path
) -> None:
    """That blkid fails may mean that the disk can't be read, or that more than one thing is found on it. The lines as
    they are, by a shell, on a file; a folder stands for a disk that can't be read."""
    script = files(mounts=[MOUNTS[2]])["bootstrap.sh"]
    lines = script[script.index("found=0\n") : script.index("\nattach xfs")]
    (tmp_path / "folder").mkdir()
    for name in ("blank", "swap"):
        (tmp_path / name).write_bytes(bytes(1 << 20))
    subprocess.run(["mkswap", "-q", tmp_path / "swap"], check=True, stderr=subprocess.DEVNULL)
    programs = tmp_path / "programs"
    programs.mkdir()
    stubs = {"mkfs": f'echo "$*" >{tmp_path}/made'} | ({} if blkid is None else {"blkid": f"exit {blkid}"})
    for name, line in stubs.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    given_up = 'give_up() { echo "$1"; exit 9; }\n'
    done = subprocess.run(
        ["/bin/sh"], input=f"{given_up}device={tmp_path / device}\n{lines}", capture_output=True, text=True, timeout=10,
        env={"PATH": f"{programs}:/usr/sbin:/sbin:/usr/bin:/bin"}, check=False,
    )  # fmt: skip
    assert (tmp_path / "made").exists() == made
    refused = not made and device != "swap"
    assert (done.returncode == 9, "can't be told, so that it is not formatted" in done.stdout) == (refused, refused)


def test_tasks_are_kept_from_the_metadata_service_unless_allowed() -> None:
    """By the uids of tasks, at boot and at each start of the service; nothing is written where they have none."""
    found = files()
    assert "uids=60600-60855\n" in found["metadata.sh"]
    for address in ("169.254.169.254", "fd00:ec2::254"):
        assert found["metadata.sh"].count(address) == 2  # nft, and iptables
    # What Azure's hosts have besides is closed to all but root; one rule of nft for both ports, two of iptables.
    assert found["metadata.sh"].count("168.63.129.16") == 3
    assert "ExecStartPre=/bin/sh metadata.sh\n" in found["cloud-dispatch.service"]
    assert "sh metadata.sh || give_up" in found["bootstrap.sh"]
    for allowed in (files(metadata=True), files(task_uids="")):
        assert "metadata.sh" not in allowed
        assert not [name for name, content in allowed.items() if "metadata.sh" in content]


@pytest.mark.parametrize("program", ["nft", "iptables", "none"])
def test_the_block_uses_what_the_image_has(program: str, tmp_path: Path) -> None:
    """nft or iptables with the rule for the uids; with neither it fails, so that the boot does."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "cat").symlink_to(shutil.which("cat") or "/bin/cat")
    for name in ("iptables", "ip6tables") if program == "iptables" else (program,):
        reads = "cat >>" if program == "nft" else 'echo "$0 $*" >>'
        (programs / name).write_text(f'#!/bin/sh\n[ "$2" = -C ] && exit 1\n{reads}{tmp_path}/asked\n')
        (programs / name).chmod(0o755)
    if program == "none":
        os.unlink(programs / "none")
    done = subprocess.run(
        ["/bin/sh"], input=files()["metadata.sh"], env={"PATH": str(programs)},
        capture_output=True, text=True, timeout=10, check=False,
    )  # fmt: skip
    if program == "none":
        assert done.returncode == 1
        assert done.stderr == "neither nft nor iptables is here\n"
        return
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text()
    assert "60600-60855" in asked
    if program == "nft":
        assert "meta skuid != 0 ip daddr 168.63.129.16 tcp dport { 80, 32526 } reject\n" in asked
    else:
        for port in (80, 32526):  # what root's connections end with has no owner: it goes through
            assert f"-d 168.63.129.16 -p tcp --syn --dport {port} -m owner ! --uid-owner 0 -j REJECT\n" in asked
    assert "169.254.169.254" in asked
    assert "reject" in asked.lower()


def test_an_operators_script_arrives_as_it_is() -> None:
    """Any text, in its order, for root only."""
    text = "#!/bin/bash\n\techo 'ä' \"$x\" <a> & \\\n   b: c\n"
    scripts = [{"name": "one.sh", "content": text}, {"name": "two.sh", "content": "#!/bin/sh\n"}]
    document = yaml.safe_load(render("agent", {**DISPATCHER, "scripts": scripts}))
    found = [file for file in document["write_files"] if "/snippets/" in file["path"]]
    assert [Path(file["path"]).name for file in found] == ["01-one.sh", "02-two.sh"]
    assert (found[0]["content"], found[0]["permissions"]) == (text, "0700")


def test_package_managers_hear_of_the_proxy_on_a_machine_of_its_own() -> None:
    """apt, dnf and pip are told; a VM that is a part of its host leaves the host's files alone."""
    proxies = {"https": "http://p:2", "no": "10.0.0.0/8"}
    script = files(proxies=proxies)["bootstrap.sh"]
    for text in ("no_proxy=10.0.0.0/8", "HTTPS_PROXY=http://p:2", "Acquire::https::Proxy", "/etc/dnf/dnf.conf", "pip"):
        assert text in script
    part = files(proxies=proxies, whole_machine="", service="", task_uids="")["bootstrap.sh"]
    assert "https_proxy=http://p:2" in part
    assert "/etc/" not in part
