"""A control VM under a real systemd: `cloud-dispatch install` in a VM that has booted, and what systemd then does."""

from __future__ import annotations

import re
import textwrap
import time
from pathlib import Path

from tests.boot.control import HOME, make_disk
from tests.boot.qemu import NOCLOUD, QemuGuests
from tests.boot.site import PATIENCE_S
from tests.fakes.asking import launch
from tests.fakes.ec2 import FakeEc2
from tools import boot_image

CONFIG = """\
[dispatcher]
deployment = "control"
listen = "127.0.0.1:7717"
"""
#: Says what it finds as `SEEN name value`, and stops at nothing: of a run that fails all is seen.
SCRIPT = r"""
#!/bin/sh
seen() { echo "SEEN $1 $(echo $2)"; }
pid() { systemctl show -P MainPID cloud-dispatch; }
field() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$(pid)/status"; }
awaited() { # what it is, at most for so many seconds
  for _ in $(seq "$2"); do [ "$(systemctl is-active cloud-dispatch)" = "$1" ] && break; sleep 1; done
}
mkdir -p HOME && mount LABEL=control HOME
chmod 0600 /etc/cloud-dispatch/config.toml
HOME/bin/cloud-dispatch install
seen refused "$? $(systemctl list-unit-files 'cloud-dispatch*' | grep -c service)"
chmod 0644 /etc/cloud-dispatch/config.toml
HOME/bin/cloud-dispatch install
seen installed $?
seen active "$(systemctl is-active cloud-dispatch cloud-dispatch-backup.timer)"
seen user "$(stat -c %U "/proc/$(pid)")"
seen capabilities "$(field CapEff)"
seen privileges "$(field NoNewPrivs)"
seen filter "$(field Seccomp)"
seen state "$(stat -c '%U %a' /var/lib/cloud-dispatch)"
systemctl reload cloud-dispatch
seen reload $?
first=$(pid)
seen same "$([ "$first" = "$(pid)" ] && echo yes)"
kill -9 "$first"
sleep 2
awaited active 600
seen again "$([ "$first" != "$(pid)" ] && systemctl is-active cloud-dispatch)"
systemctl start cloud-dispatch-backup.service
seen backup $?
seen copies "$(ls /var/lib/cloud-dispatch/backups | wc -l)"
seen log "$(journalctl --namespace cloud-dispatch -o cat | grep -c -e configuration.reloaded -e dispatcher.up)"
echo "LABEL=none-such /var/lib/cloud-dispatch ext4 nofail,x-systemd.device-timeout=3s 0 2" >> /etc/fstab
systemctl stop cloud-dispatch
systemctl daemon-reload
systemctl start cloud-dispatch
seen diskless "$? $(systemctl is-active cloud-dispatch)"
seen enabled "$(systemctl is-enabled cloud-dispatch cloud-dispatch-backup.timer)"
journalctl --namespace cloud-dispatch -o cat | tail -n 30
journalctl -o cat -u cloud-dispatch -u cloud-dispatch-backup | tail -n 30
systemctl poweroff
"""
EXPECTED = {
    "refused": "2 0",
    "installed": "0",
    "active": "active active",
    "user": "cloud-dispatch",
    "capabilities": "0000000000000000",
    "privileges": "1",
    "filter": "2",
    "state": "cloud-dispatch 700",
    "reload": "0",
    "same": "yes",
    "again": "active",
    "backup": "0",
    "diskless": "1 inactive",
    "enabled": "enabled enabled",
}


def test_installed_it_is_up_reloads_comes_back_and_is_copied(image: boot_image.Image, tmp_path: Path) -> None:
    """Not where its user can't read the configuration. The service has no right of its machine but to its state folder;
    a reload is heard by the same process; killed, it is started anew; the backup's service makes a copy under the same
    restrictions. Without the disk that its state is on it does not start."""
    disk = make_disk(tmp_path)
    script = SCRIPT.strip().replace("HOME", HOME)
    data = (
        "#cloud-config\nwrite_files:\n"
        f"  - path: /etc/cloud-dispatch/config.toml\n    content: |\n{textwrap.indent(CONFIG, ' ' * 6)}\n"
        f"  - path: /root/see.sh\n    content: |\n{textwrap.indent(script, ' ' * 6)}\n"
        "runcmd: [[sh, /root/see.sh]]\n"
    )
    with FakeEc2() as aws, QemuGuests(aws, tmp_path, str, {}, image=image, source=NOCLOUD, disk=disk) as guests:
        (made,) = launch(aws.client(), UserData=data)
        deadline = time.monotonic() + 2 * PATIENCE_S
        while not (found := aws.instance(made["InstanceId"])).running_ms or guests.running():
            assert time.monotonic() < deadline, guests.consoles()
            time.sleep(0.5)
        said = dict(re.findall(r"SEEN (\w+) (.*?)\r?$", found.console, re.MULTILINE))
    assert {name: said.get(name) for name in EXPECTED} == EXPECTED
    assert int(said["copies"]) >= 1
    assert int(said["log"]) >= 3
