"""What is secret in a deployment, every place where it must not be, and the judge who looks for one in the other.

A place is a name and its bytes. The judge knows a secret in the forms in which a program passes text on.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus

from cloud_dispatch.cli.main import run

#: What is looked for is at least so long, so that chance finds nothing.
LEAST = 12
_TOKENS = {
    "join": re.compile(r"cdj1(?:\.[\w-]+){4}"),
    "service": re.compile(r"cds2(?:\.[\w-]+){3}"),
    "task": re.compile(r"cdt1(?:\.[\w-]+){4}"),
}
_GIVEN = b"CLOUD_DISPATCH_TASK_TOKEN="


@dataclass(frozen=True)
class Leak:
    place: str
    secret: str
    form: str


@dataclass(frozen=True)
class Home:
    """Where a secret may be, and why: names of secrets and of places by patterns."""

    secret: str
    place: str
    why: str

    def of(self, leak: Leak) -> bool:
        return bool(re.fullmatch(self.secret, leak.secret) and re.fullmatch(self.place, leak.place))


def forms(secret: str) -> dict[str, tuple[bytes, ...]]:
    """The bytes that give `secret` away, by the name of their form."""
    raw = secret.encode()
    assert len(raw) >= LEAST
    return {
        "clear": (raw,),
        "base64": tuple(cut for shift in range(3) for cut in _base64(raw, shift)),
        "hex": (raw.hex().encode(), raw.hex().upper().encode()),
        "URL": (quote(secret, safe="").encode(), quote_plus(secret).encode(), b"".join(b"%%%02X" % c for c in raw)),
        "JSON": (json.dumps(secret)[1:-1].encode(), json.dumps(secret)[1:-1].replace("/", "\\/").encode()),
    }


def _base64(raw: bytes, shift: int) -> Iterator[bytes]:
    """`raw` as it looks with `shift` bytes before it, without the characters that its neighbours have a part in."""
    for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
        text = encode(bytes(shift) + raw)
        yield text[-(-shift * 8 // 6) : (len(raw) + shift) * 8 // 6]


def leaks(places: Mapping[str, bytes], secrets: Mapping[str, str]) -> list[Leak]:
    """Every secret that is in a place, each once a place, in the first of its forms that is found."""
    known = [(name, forms(secret)) for name, secret in secrets.items()]
    found = []
    for place, body in places.items():
        for name, wanted in known:
            form = next((form for form, texts in wanted.items() if any(text in body for text in texts)), None)
            if form is not None:
                found.append(Leak(place, name, form))
    return found


def keys_of(pem: str) -> list[str]:
    """The lines of a private key in PEM that say anything."""
    return [line for line in pem.splitlines() if len(line) >= 40 and not line.startswith("-")]


class Lookout:
    """Reads, as long as it is open, every command line of this machine, the environment of every process of a
    deployment besides its dispatcher, and all that its VMs' folders hold: much of it lives for a moment only. The token
    that a task is given in its own environment is kept apart."""

    def __init__(self, state: Path, dispatcher: int) -> None:
        self._state, self._own = state, {dispatcher, os.getpid()}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._read: set[tuple[int, int, int]] = set()
        self.commands: set[bytes] = set()
        self.environments: set[bytes] = set()
        self.given: set[bytes] = set()
        self.files: dict[str, set[bytes]] = {}
        self.modes: dict[str, set[int]] = {}

    def __enter__(self) -> Lookout:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def places(self) -> dict[str, bytes]:
        files = {f"vm:{name}": b"\0".join(bodies) for name, bodies in self.files.items()}
        return {
            "ps": b"\n".join(self.commands), "environments of VMs": b"\n".join(self.environments), **files
        }  # fmt: skip

    def tokens(self) -> dict[str, str]:
        """Every token of a batch, an agent or a task that was seen in the files of a VM or given to a task, and every
        proof of identity."""
        seen = [*(body for bodies in self.files.values() for body in bodies), *self.given]
        text = b"\0".join(seen).decode(errors="replace")
        tokens = {
            f"{kind} token {i}": token
            for kind, form in _TOKENS.items()
            for i, token in enumerate(sorted(set(form.findall(text))))
        }
        proofs = sorted(body.decode() for body in self.files.get("identity", ()) if body)
        return {**tokens, **{f"proof {i}": proof for i, proof in enumerate(proofs)}}

    def _look(self) -> None:
        while not self._closing.is_set():
            self._processes()
            self._folders()
            time.sleep(0.03)

    def _processes(self) -> None:
        mark = str(self._state).encode()
        for entry in os.listdir("/proc"):
            if not entry.isdecimal() or int(entry) in self._own:
                continue
            try:
                command, environment = _whole(f"/proc/{entry}/cmdline"), _whole(f"/proc/{entry}/environ")
            except OSError:
                continue
            self.commands.add(command)
            if mark in environment:
                entries = environment.split(b"\0")
                own = [] if b"agent.pyz" in command else [each for each in entries if each.startswith(_GIVEN)]
                self.given.update(own)
                self.environments.add(b"\0".join(each for each in entries if each not in own))

    def _folders(self) -> None:
        for path, found in _files(str(self._state / "providers")):
            seen = (found.st_ino, found.st_size, found.st_mtime_ns)
            if seen in self._read:
                continue
            try:
                body, mode = _whole(path), stat.S_IMODE(found.st_mode)
            except OSError:
                continue
            self._read.add(seen)
            name = re.sub(r"^.*?/(vms|trash|making)/[^/]+/", "", os.path.relpath(path, self._state))
            self.files.setdefault(name, set()).add(body)
            self.modes.setdefault(name, set()).add(mode)


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every regular file below `folder`, with what it is; none that has gone meanwhile."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            is_folder, found = entry.is_dir(follow_symlinks=False), entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if is_folder:
            yield from _files(entry.path)
        elif stat.S_ISREG(found.st_mode):
            yield entry.path, found


def _whole(path: str) -> bytes:
    """All bytes of a file. A file object costs four times as much: a lookout reads hundreds, many times a second."""
    opened = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while part := os.read(opened, 1 << 17):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(opened)


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`, by its name relative to it."""
    return {os.path.relpath(path, folder): _whole(path) for path, _ in _files(str(folder))}


@contextmanager
def environment(more: Mapping[str, str]) -> Iterator[None]:
    """These variables, and none of ours that the machine may have."""
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def typed(words: Sequence[str]) -> bytes:
    """What a command says on stdout and stderr, and nothing else: whoever says nothing is found out."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        run(words)
    return out.getvalue().encode()
