"""Write the parts of docs/reference that follow from the code: `python -m tools.reference [--check]`.

Owns the marks in the pages. What stands between `<!-- generated: NAME -->` and `<!-- end -->` is replaced by the part
of that name; everything around it is written by hand and left alone. With `--check` nothing is written, and pages that
would change are named (exit code 1).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.reference_parts import PARTS, ROOT, Incomplete

FOLDER = ROOT / "docs" / "reference"
_MARKED = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(text: str) -> str:
    """`text` with every generated part as the code has it now; KeyError for a part that does not exist."""
    return _MARKED.sub(lambda match: f"{match[1]}\n{PARTS[match[2]]()}\n\n{match[3]}", text)


def stale_pages() -> dict[Path, str]:
    """The pages that differ from the code, with what they should be."""
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("*.md"))}
    unused = set(PARTS) - {name for text in pages.values() for _, name, _ in _MARKED.findall(text)}
    if unused:
        raise Incomplete(f"docs/reference: no page has the generated parts {sorted(unused)}")
    return {page: fresh for page, text in pages.items() if (fresh := rendered(text)) != text}


def main(arguments: list[str]) -> int:
    """The exit code."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m tools.reference [--check]\n")
        return 2
    try:
        stale = stale_pages()
    except Incomplete as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for page, text in stale.items():
        if not arguments:
            page.write_text(text, encoding="utf-8")
        print(("differs from the code: " if arguments else "written: ") + str(page.relative_to(ROOT)))
    return 1 if stale and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
