"""What has to be there before what, as Terraform reads it from a module: its graph of resources. Destroying goes the
other way round. Owns the graph; knows of no cloud."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.terraform import hcl

Graph = Mapping[str, frozenset[str]]


def of_module(folder: Path) -> Graph:
    """By the address of each resource, those that it needs directly, by references or by depends_on."""
    configuration = hcl.load(folder)
    locals_ = {name: value for one in configuration.of("locals") for name, value in hcl.items(one.body)}
    known = {block.address: block for block in configuration.blocks if block.kind in ("resource", "data")}
    return {
        address: frozenset(_needed(block.body, locals_, frozenset(known)) - {address})
        for address, block in known.items()
    }


def _needed(value: Any, locals_: Mapping[str, Any], known: frozenset[str]) -> set[str]:
    return set(_reads(value, locals_, known, frozenset()))


def _reads(
    value: Any, locals_: Mapping[str, Any], known: frozenset[str], passed: frozenset[str]
) -> Iterator[str]:  # fmt: skip
    for root, name, _ in hcl.reads(value):
        if root == "local" and name in locals_ and name not in passed:
            yield from _reads(locals_[name], locals_, known, passed | {name})
        elif f"{root}.{name}" in known:
            yield f"{root}.{name}"


def before(graph: Graph, address: str) -> frozenset[str]:
    """All that has to be there before it, and is destroyed after it."""
    found: set[str] = set()
    waiting = [address]
    while waiting:
        for one in graph[waiting.pop()] - found:
            found.add(one)
            waiting.append(one)
    return frozenset(found)
