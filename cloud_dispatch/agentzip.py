"""Builds the agent that the dispatcher serves: one zipapp of `wire` and `agent`, the same bytes from the same sources.

Owns the archive's form, and the former agents that are kept; must not import the agent, which has to run on an older
Python than this one.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from pathlib import Path

_PACKAGES = ("wire", "agent")
_MOMENT = (1980, 1, 1, 0, 0, 0)
#: VMs that boot while the dispatcher is replaced were promised the agent of the one before.
_FORMER = 3
#: What a `#` may stand in, and what tells whether a string is a statement. A prefix (r, b, f) is before it.
_TOKEN = re.compile(
    r'''#[^\n]*|"""(?:[^\\]|\\.)*?"""|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[()\[\]{}]''',
    re.DOTALL,
)
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_SHEBANG = b"#!/usr/bin/env python3\n"
#: Must parse and run on any Python, so that an old one gets a sentence instead of a traceback. zipimport by itself
#: compiles a module to learn the name of its file, and then again to run it.
_MAIN = """\
import sys
import zipimport

if sys.version_info < (3, 9):
    sys.stderr.write("cloud-dispatch agent: needs Python 3.9 or newer, this is %s\\n" % sys.version.split()[0])
    sys.exit(2)


class Importer(zipimport.zipimporter):
    def get_filename(self, fullname):
        end = "/__init__.py" if self.is_package(fullname) else ".py"
        return self.archive + "/" + self.prefix + fullname.rpartition(".")[2] + end


sys.path_hooks.insert(0, Importer)
sys.path_importer_cache.pop(sys.path[0], None)

from cloud_dispatch.agent.__main__ import main

sys.exit(main(sys.argv[1:]))
"""


def build() -> tuple[bytes, str]:
    """The zipapp's bytes and their sha256 (hex). Deterministic: fixed times and modes, sorted names. Compressed, and
    without what only people read: a fleet fetches it at once."""
    here = Path(__file__).parent
    files = {"__main__.py": _MAIN.encode(), "cloud_dispatch/__init__.py": b""}
    for package in _PACKAGES:
        for path in (here / package).glob("*.py"):
            files[f"cloud_dispatch/{package}/{path.name}"] = slim(path.read_text()).encode()
    buffer = io.BytesIO()
    buffer.write(_SHEBANG)
    with zipfile.ZipFile(buffer, "a") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _MOMENT)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, files[name], compress_type=zipfile.ZIP_DEFLATED, compresslevel=9)
    body = buffer.getvalue()
    return body, hashlib.sha256(body).hexdigest()


def slim(source: str) -> str:
    """`source` without comments and docstrings (those with a prefix stay). Every line keeps its number, so that a
    traceback from a VM is read in the source that everybody has. A look at what a string, a comment or a bracket begins
    with is enough for that and takes a ninth of the time of `ast`: every start of the dispatcher waits for this."""
    parts: list[str] = []
    done = depth = 0
    for token in _TOKEN.finditer(source):
        found, start = token[0], token.start()
        if found in _BRACKETS:
            depth += _BRACKETS[found]
            continue
        instead = ""
        if found[0] != "#":
            if depth or not _alone(source, start, token.end()):
                continue
            # A body needs a statement; before `from __future__` none may stand.
            indented = start > 0 and source[start - 1] != "\n"
            instead = ("0" if indented else "") + "\n" * found.count("\n")
        parts += [source[done:start].rstrip(" ") if found[0] == "#" else source[done:start], instead]
        done = token.end()
    return "".join([*parts, source[done:]])


def _alone(source: str, start: int, end: int) -> bool:
    """Whether the string from `start` to `end`, outside all brackets, is a statement of its own: prose."""
    begin = source.rfind("\n", 0, start) + 1
    last = source.find("\n", end)
    rest = source[end : len(source) if last < 0 else last].lstrip()
    carried_on = source.endswith("\\\n", 0, begin)
    return not source[begin:start].strip() and not carried_on and (not rest or rest[0] == "#")


def former(folder: Path, body: bytes, sha256: str) -> dict[str, bytes]:
    """The agents that earlier dispatchers of this folder have served, by sha256; `body` is kept there for later ones.
    One that is not what its name says is left out. OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = folder / f"{sha256}.pyz"
    fresh = own.with_suffix(".new")
    fresh.write_bytes(body)
    fresh.replace(own)  # it is the newest now
    found = sorted(folder.glob("*.pyz"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in found[_FORMER + 1 :]:
        path.unlink(missing_ok=True)
    bodies = {path.stem: path.read_bytes() for path in found[: _FORMER + 1] if path != own}
    return {name: known for name, known in bodies.items() if hashlib.sha256(known).hexdigest() == name}
