"""What the tests install by npm: the same packages everywhere, and from wherever npm is told to."""

from __future__ import annotations

import json
from typing import Any

from tools.npm_lock import FOLDER, LOCK, complaint, slim

TEXT = (FOLDER / LOCK).read_text()


def test_every_package_has_its_version_and_hash_and_no_address() -> None:
    """And the first of them is the one that is asked for."""
    assert complaint(TEXT) is None
    packages = json.loads(TEXT)["packages"]
    asked = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    assert asked == packages[""]["dependencies"] == {"azurite": packages["node_modules/azurite"]["version"]}
    assert all("version" in said for name, said in packages.items() if name)


def test_a_lock_that_says_too_much_or_too_little_is_refused() -> None:
    """An address anywhere; a package that could become another."""
    assert complaint(TEXT.replace('"bin"', '"from": "file://x", "bin"', 1)) == "it names an address"
    packages: dict[str, Any] = json.loads(TEXT)["packages"]
    del packages["node_modules/azurite"]["integrity"]
    said = complaint(json.dumps({"packages": packages}))
    assert said == "packages without a hash: node_modules/azurite"


def test_what_npm_says_besides_is_left_out() -> None:
    """Who is to be paid, and where it came from."""
    said = {"version": "1", "resolved": "file://a.tgz", "integrity": "sha512-x", "funding": "them"}
    text = slim({"lockfileVersion": 3, "packages": {"": {"dependencies": {"a": "1"}}, "node_modules/a": said}})
    assert json.loads(text)["packages"]["node_modules/a"] == {"version": "1", "integrity": "sha512-x"}
    assert complaint(text) is None
