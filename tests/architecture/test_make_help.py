"""`make` says what may be typed: every target that is meant for people has its line, and every line its target."""

from __future__ import annotations

import re
import subprocess

from tests.architecture.source import ROOT

#: Parts of other targets, which nobody types.
INNER = {"collected"}


def make(*targets: str) -> str:
    answer = subprocess.run(
        ["make", "--no-print-directory", *targets], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return answer.stdout


def test_make_alone_lists_every_target_that_people_type() -> None:
    """With a few words each; of files that are made on the way, and of parts of others, nothing is said."""
    listed = dict(re.fullmatch(r"make (\S+) +(\S.*)", line).groups() for line in make().splitlines())  # type: ignore[union-attr]
    (phony,) = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(set(phony.split()) - INNER)
    assert make("help") == make()
