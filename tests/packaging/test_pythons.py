"""The metadata name the Pythons that are tested, and no other."""

from __future__ import annotations

import re
import tomllib

from tests.architecture.source import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_NAMED = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def ci_pythons() -> list[str]:
    """What `.ci/run` runs the tests with."""
    return re.findall(r"\bPYTHON=python(3\.\d+)\b", (ROOT / ".ci" / "run").read_text())


def test_the_classifiers_are_what_ci_tests() -> None:
    """An entry more would be a promise that nobody looks after."""
    named = [match[1] for one in PROJECT["project"]["classifiers"] if (match := _NAMED.fullmatch(one))]
    assert named == ci_pythons() != []


def test_the_oldest_is_the_bound_and_what_the_tools_take_it_for() -> None:
    """Installers take no older one, and linter and type checker know nothing newer."""
    oldest = min(ci_pythons(), key=lambda version: int(version.partition(".")[2]))
    assert PROJECT["project"]["requires-python"] == f">={oldest}"
    assert PROJECT["tool"]["mypy"]["python_version"] == oldest
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
