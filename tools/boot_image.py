"""The machine image that `make test-boot` boots in QEMU: `python -m tools.boot_image` brings what it takes, builds it.

Owns the recipe: Debian's own packages, cloud-init and systemd as they come, nothing of ours. QEMU boots kernel and
initrd directly; the root disk is one file system, which VMs write to through snapshots, so that one image serves all.
It is kept by the recipe's hash in the user's cache folder and built once a machine. `cannot` says why there is none.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SUITE = "bookworm"
#: What an image for clouds has: Debian's own of this suite, as far as booting an agent goes.
PACKAGES = (
    "ca-certificates", "cloud-init", "dbus", "iproute2", "isc-dhcp-client", "kmod", "libpam-systemd",
    "linux-image-cloud-amd64", "netplan.io", "nftables", "procps", "python3", "systemd-resolved", "systemd-sysv",
    "udev",
)  # fmt: skip
#: What nobody reads in a VM that lives for minutes, and emulated processors would have to pass by.
_WITHOUT = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*")
#: What the kernel needs to find its root disk; with all modules the initrd is eight times as large.
_MODULES = ("ext4", "virtio_blk", "virtio_pci")
_DISK_MB = 1500
#: What makers of images say to cloud-init: this one has no locales to choose from and no sshd to make keys for.
_CLOUD_CFG = "locale: false\\nssh_deletekeys: false\\nssh_genkeytypes: []\\n"
#: Programs by the package that has them.
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "unshare": "util-linux",
    "ip": "iproute2",
}
_APT_S, _BUILD_S = 900, 1800


@dataclass(frozen=True, slots=True)
class Image:
    """What QEMU takes."""

    folder: Path

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd.img"

    @property
    def disk(self) -> Path:
        return self.folder / "root.ext4"


def cannot() -> str:
    """Why there can be no such VMs here, or ""."""
    if os.geteuid() != 0:
        return "VMs that truly boot need networks of their own and an image, and those need root"
    if platform.machine() != "x86_64":
        return f"the image is for x86_64, this machine is {platform.machine()}"
    lacking = missing()
    if lacking:
        return f"not here, and not to be had by apt: {', '.join(lacking)}"
    return ""


def missing() -> list[str]:
    """The packages whose programs are not here."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return sorted(package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None)


def install(packages: Iterable[str]) -> None:
    """Have apt install them. CalledProcessError or OSError where it can't."""
    for words in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        subprocess.run(
            ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *words], check=True, timeout=_APT_S,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, stdout=subprocess.DEVNULL,
        )  # fmt: skip


def words(root: Path) -> list[str]:
    """The command that makes the tree of files; it is the recipe, but for where the tree is."""
    modules = "\\n".join(_MODULES)
    initrd = (
        'mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d" && '
        'echo MODULES=list >"$1/etc/initramfs-tools/conf.d/boot" && '
        f"printf '{modules}\\n' >\"$1/usr/share/initramfs-tools/modules.d/boot\""
    )
    told = f"printf '{_CLOUD_CFG}' >\"$1/etc/cloud/cloud.cfg.d/90-image.cfg\""
    return [
        "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}",
        '--aptopt=APT::Install-Recommends "false"', *(f"--dpkgopt=path-exclude={path}" for path in _WITHOUT),
        f"--essential-hook={initrd}", f"--customize-hook={told}", SUITE, str(root),
    ]  # fmt: skip


def disk_words(root: Path, disk: Path) -> list[str]:
    """The command that makes a disk of the tree."""
    features = ["-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard"]
    return ["mke2fs", "-q", "-t", "ext4", *features, "-d", str(root), str(disk), f"{_DISK_MB}M"]


def cache() -> Path:
    """Where images are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cloud-dispatch" / "boot"


def image() -> Image:
    """The image, built where it is not there yet. CalledProcessError, with what was said, where that fails."""
    recipe = json.dumps([words(Path("root")), disk_words(Path("root"), Path("disk"))])
    folder = cache() / hashlib.sha256(recipe.encode()).hexdigest()[:16]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as partial:
            made = Path(partial) / "made"
            _build(Path(partial) / "root", made)
            if not folder.is_dir():  # another run may have been quicker
                made.rename(folder)
    return Image(folder)


def _build(root: Path, made: Path) -> None:
    made.mkdir()
    _run(words(root))
    for name, target in (("vmlinuz", "vmlinuz"), ("initrd.img", "initrd.img")):
        (kernel,) = (root / "boot").glob(f"{name}-*")
        shutil.copy(kernel, made / target)
    _run(disk_words(root, made / "root.ext4"))


def _run(command: list[str]) -> None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_BUILD_S, check=False, env={**os.environ, "PATH": path}
    )
    if done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, command[0], done.stdout, done.stderr)


def main() -> int:
    """0 also where it can't be had: the tests say that they are skipped, and why."""
    if os.geteuid() == 0 and shutil.which("apt-get") and missing():
        print(f"installing {' '.join(missing())}")
        try:
            install(missing())
        except (OSError, subprocess.SubprocessError) as error:
            print(f"apt: {error}", file=sys.stderr)
    problem = cannot()
    if problem:
        print(f"no VMs that truly boot here: {problem}", file=sys.stderr)
        return 0
    try:
        print(f"the image is in {image().folder}")
    except subprocess.CalledProcessError as error:
        print(f"the image could not be built ({error}):\n{error.stderr}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
