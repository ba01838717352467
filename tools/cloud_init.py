"""Bring Debian's cloud-init, whose `schema` command judges our boot documents, and nft, which keeps tasks from the
metadata service: `python tools/cloud_init.py PROGRAM` (nft is put beside it).

Owns how they get here: the packages are downloaded with apt into a folder of their own beside PROGRAM and unpacked, not
installed, so that it takes no root and changes nothing of the system; PROGRAM runs it with this very interpreter. apt's
own configuration says where packages come from. A cloud-init that is installed serves where there is no apt.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

#: cloud-init, and of what it imports what the development environment does not have (all without compiled parts).
PACKAGES = ("cloud-init", "python3-configobj", "python3-oauthlib")
#: nft with the libraries that a Debian without it lacks.
NFT = ("nftables", "libnftables1", "libnftnl11", "libmnl0", "libxtables12", "libjansson4", "libedit2", "libbsd0")
TIMEOUT_SECONDS = 300
_GOOD, _BAD = "#cloud-config\nruncmd: [[ls]]\n", "#cloud-config\nruncmd: 1\n"


def bring(program: Path) -> str:
    """Make `program` a cloud-init that works; "" or why that can't be."""
    installed = shutil.which("cloud-init")
    if shutil.which("apt-get") and shutil.which("dpkg-deb"):
        tree = program.resolve().parent.parent / "cloud-init"
        unpack(tree)
        wrap_nft(tree, program.with_name("nft"))
        modules = tree / "usr" / "lib" / "python3" / "dist-packages"
        # sys.executable, not resolved: the environment's own packages come with it
        command = f"PYTHONPATH={shlex.quote(str(modules))} exec {shlex.quote(sys.executable)} -m cloudinit.cmd.main"
    elif installed and Path(installed) != program:
        command = f"exec {shlex.quote(installed)}"
    else:
        return "neither apt nor cloud-init is on this machine"
    partial = program.with_name(program.name + ".new")
    partial.write_text(f'#!/bin/sh\n# Written by tools/cloud_init.py.\n{command} "$@"\n')
    partial.chmod(0o755)
    problem = trial(partial)
    if not problem:
        partial.replace(program)
    return problem


def unpack(tree: Path) -> None:
    """The packages' files below `tree`, in place of what was there. CalledProcessError when apt can't have them."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("lists/partial", "cache/archives/partial"):
            (Path(folder) / name).mkdir(parents=True)
        apt = ["apt-get", "-qq", "-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
        if os.geteuid() == 0:
            apt += ["-o", "APT::Sandbox::User=root"]  # apt's own user may not write below our folder
        for words in (["update"], ["download", *PACKAGES, *NFT]):
            subprocess.run([*apt, *words], cwd=folder, check=True, timeout=TIMEOUT_SECONDS)
        for archive in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", archive, tree], check=True, timeout=TIMEOUT_SECONDS)


def wrap_nft(tree: Path, program: Path) -> None:
    """A program that runs nft with the libraries that came with it."""
    libraries = ":".join(str(folder) for folder in sorted((tree / "usr" / "lib").glob("*-linux-gnu")))
    command = f'LD_LIBRARY_PATH={shlex.quote(libraries)} exec {shlex.quote(str(tree / "usr" / "sbin" / "nft"))} "$@"'
    program.write_text(f"#!/bin/sh\n# Written by tools/cloud_init.py.\n{command}\n")
    program.chmod(0o755)


def trial(program: Path) -> str:
    """Why `program` does not tell a good document from a bad one, "" if it does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "user-data"
        for text, expected in ((_GOOD, True), (_BAD, False)):
            path.write_text(text)
            done = subprocess.run(
                [program, "schema", "-c", path], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
            )
            said = done.stdout + done.stderr
            if (done.returncode == 0) is not expected or "Traceback" in said:
                return f"{program} does not judge documents: {said.strip()}"
    return ""


def main(arguments: list[str]) -> int:
    """0 also where it can't be had: all but one kind of tests works without it, and that kind says what is missing."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python tools/cloud_init.py PROGRAM\n")
        return 2
    try:
        problem = bring(Path(arguments[0]))
    except (OSError, subprocess.SubprocessError) as error:
        problem = str(error)
    if problem:
        sys.stderr.write(f"no cloud-init, so that tests of boot documents will fail: {problem}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
