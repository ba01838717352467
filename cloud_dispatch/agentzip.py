"""Builds the agent that the dispatcher serves: one zipapp of `wire` and `agent`, the same bytes from the same sources.

Owns the archive's form; must not import the agent, which has to run on an older Python than this one.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

_PACKAGES = ("wire", "agent")
_MOMENT = (1980, 1, 1, 0, 0, 0)
_SHEBANG = b"#!/usr/bin/env python3\n"
#: Must parse and run on any Python, so that an old one gets a sentence instead of a traceback.
_MAIN = """\
import sys

if sys.version_info < (3, 9):
    sys.stderr.write("cloud-dispatch agent: needs Python 3.9 or newer, this is %s\\n" % sys.version.split()[0])
    sys.exit(2)

from cloud_dispatch.agent.__main__ import main

sys.exit(main(sys.argv[1:]))
"""


def build() -> tuple[bytes, str]:
    """The zipapp's bytes and their sha256 (hex). Deterministic: fixed times and modes, sorted names, not compressed."""
    here = Path(__file__).parent
    files = {"__main__.py": _MAIN.encode(), "cloud_dispatch/__init__.py": b""}
    for package in _PACKAGES:
        for path in (here / package).glob("*.py"):
            files[f"cloud_dispatch/{package}/{path.name}"] = path.read_bytes()
    buffer = io.BytesIO()
    buffer.write(_SHEBANG)
    with zipfile.ZipFile(buffer, "a") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _MOMENT)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, files[name], compress_type=zipfile.ZIP_STORED)
    body = buffer.getvalue()
    return body, hashlib.sha256(body).hexdigest()
