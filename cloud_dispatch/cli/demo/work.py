"""What a task of the demo does: hash or compress one file, and write down the result. Standard library only.

Run as `python work.py hash|compress FILE`. The result is one line of JSON on stdout and in `result.json`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

OUTPUT = "result.json"


def result_of(kind: str, content: bytes) -> dict[str, object]:
    """The result for a file's content: its hash, or the size and hash of what zlib makes of it."""
    if kind == "hash":
        return {"kind": kind, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    packed = zlib.compress(content, 9)
    return {
        "kind": kind,
        "size": len(content),
        "packed": len(packed),
        "sha256": hashlib.sha256(packed).hexdigest(),
    }


def line_of(kind: str, content: bytes) -> bytes:
    """The result as it is written."""
    return json.dumps(result_of(kind, content), sort_keys=True).encode() + b"\n"


def main(arguments: Sequence[str]) -> None:
    kind, path = arguments
    line = line_of(kind, Path(path).read_bytes())
    Path(OUTPUT).write_bytes(line)
    sys.stdout.buffer.write(line)


if __name__ == "__main__":
    main(sys.argv[1:])
