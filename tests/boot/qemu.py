"""VMs of a fake cloud that truly boot: each instance is a machine that QEMU emulates, with a kernel, systemd and
cloud-init of its own.

The network that QEMU runs in is the one that all guests of fakes get (`tests.fakes.guests.network`): the metadata
service is at its real address, the dispatcher where the test says. The VM itself is on QEMU's user network, with the
address that its cloud gave it. Where it learns what to boot is its source's: EC2's metadata service, or a disk that
NoCloud reads.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.fakes.guests.host import PROGRAMS, Guest, Guests
from tests.fakes.guests.sources import EC2, Source
from tools.boot_image import Image

#: What the boot log says when the VM's network is up.
ONLINE = r"Reached target (\S+ - )?(Network is Online|network-online.target)"
_STAMPED = re.compile(rb"^\[ *(\d+\.\d+)\] (.*)")
#: The boot log goes to the console as a whole, each line with the time on the VM's own clock.
_KERNEL = "root=/dev/vda rw console=ttyS0 quiet audit=0 systemd.journald.forward_to_console=1"


def _drive(disk: Path) -> list[str]:
    """What is written to it is gone with the VM."""
    return ["-drive", f"file={disk},format=raw,if=virtio,snapshot=on"]


def _seed(vm: Any) -> dict[str, bytes]:
    return {"meta-data": f"instance-id: {vm.id}\nlocal-hostname: {vm.id}\n".encode(), "user-data": vm.user_data}


#: The metadata service is there, and cloud-init is not told of it: what to boot is on a disk.
NOCLOUD = replace(EC2, name="nocloud", files=_seed)


class QemuGuests(Guests):
    """`Guests` whose VMs are QEMU's. `image`: what they boot; `disk`: a second one that each has."""

    def __init__(self, *where: Any, image: Image, source: Source = EC2, disk: Path | None = None) -> None:
        super().__init__(*where, source=source)
        self.image, self.disk = image, disk

    def guest(self, vm: Any) -> QemuGuest:
        return QemuGuest(self, vm, self.image, self.source, self.disk)

    def of(self, vm: str) -> QemuGuest:
        """The machine of this instance."""
        found = self._guests[vm]
        assert isinstance(found, QemuGuest)
        return found


class QemuGuest(Guest):
    """One VM. `zero_ms`: when its clock began, by this host's: the least that any line of its log says, since lines may
    come late and never early."""

    grace_s = 120.0

    def __init__(self, host: Guests, vm: Any, image: Image, source: Source, disk: Path | None) -> None:
        self._image, self.source, self._disk = image, source, disk
        self.zero_ms: float | None = None
        #: What it said, and when by its own clock in seconds.
        self.log: list[tuple[float, str]] = []
        self._waits_online: dict[str, int] = {}
        super().__init__(host, vm)

    def said(self, what: str) -> float | None:
        """When by its own clock it first said this, a pattern; None where it has not."""
        return next((at for at, line in list(self.log) if re.search(what, line)), None)

    def on_its_clock(self, epoch_ms: float) -> float:
        """A moment of this host's clock on the VM's, in seconds."""
        assert self.zero_ms is not None, "it has not said anything"
        return (epoch_ms - self.zero_ms) / 1000

    def waited_s(self) -> float:
        """How long since its network was up the one of its processors that waited longest was ready to go on and this
        host had other things to do."""
        return max((after - self._waits_online.get(at, 0) for at, after in self._waits().items()), default=0) / 1e9

    def _waits(self) -> dict[str, int]:
        """What each of its processors has waited so far for one of this host's, in ns."""
        found = {}
        for task in Path(f"/proc/{self._process.pid}/task").iterdir() if self._process is not None else ():
            with contextlib.suppress(OSError):  # other threads come and go
                if (task / "comm").read_text().startswith("CPU "):
                    found[task.name] = int((task / "schedstat").read_text().split()[1])
        return found

    def furnish(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            path = self.folder / "seed" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.folder.mkdir(parents=True, exist_ok=True)
        for end in ("in", "out"):
            os.mkfifo(self.folder / f"monitor.{end}")

    def program(self) -> list[str]:
        qemu = shutil.which("qemu-system-x86_64", path=PROGRAMS)
        assert qemu is not None
        return [
            qemu, "-accel", "tcg,thread=multi", "-smp", "2", "-m", "1024", "-nodefaults", "-no-user-config",
            "-display", "none", "-no-reboot", "-name", "vm,debug-threads=on", "-serial", "stdio",
            "-chardev", f"pipe,id=monitor,path={self.folder / 'monitor'}", "-mon", "chardev=monitor",
            "-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd), "-append", _KERNEL,
            "-device", "virtio-rng-pci", *self._network(), *_drive(self._image.disk),
            *(_drive(self._disk) if self._disk else []), *self._told(),
        ]  # fmt: skip

    def _network(self) -> list[str]:
        (interface,) = self._vm.interfaces
        net = ipaddress.ip_interface(f"{interface.address}/18").network
        host, names = net[1], net[2]
        return [
            "-netdev", f"user,id=net,ipv6=off,net={net},host={host},dns={names},dhcpstart={interface.address}",
            "-device", f"virtio-net-pci,netdev=net,mac={interface.mac},romfile=",
        ]  # fmt: skip

    def _told(self) -> list[str]:
        """What it learns of its cloud without a network: a disk with a seed, or what the firmware calls the machine."""
        seed = self.folder / "seed"
        if seed.is_dir():
            return ["-drive", f"driver=vvfat,dir={seed},label=cidata,read-only=on,if=virtio"]
        own = self.name.removeprefix("i-").ljust(17, "0")
        uuid = f"ec2{own[:5]}-{own[5:9]}-4{own[9:12]}-a{own[12:15]}-{own[:12]}"
        return ["-smbios", f"type=1,manufacturer=Amazon EC2,product={self._vm.type_name},uuid={uuid},serial={uuid}"]

    def ask_to_end(self, process: subprocess.Popen[bytes]) -> None:
        try:
            monitor = os.open(self.folder / "monitor.in", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return  # nobody reads there: it is off already
        with open(monitor, "wb") as file:
            file.write(b"system_powerdown\n")

    def hear(self, line: bytes) -> None:
        stamped = _STAMPED.match(line)
        if stamped is not None:
            at = float(stamped[1])
            zero_ms = time.time() * 1000 - at * 1000
            self.zero_ms = zero_ms if self.zero_ms is None else min(self.zero_ms, zero_ms)
            self.log.append((at, stamped[2].decode(errors="replace").rstrip()))
            if not self._waits_online and re.search(ONLINE, self.log[-1][1]):
                self._waits_online = self._waits()
        super().hear(line)
