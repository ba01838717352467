"""What needs what in a configuration, as Terraform finds it: by what is read, and by what `depends_on` says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.terraform import hcl
from tests.terraform.hcl import Block, Configuration


def needs(configuration: Configuration) -> Mapping[str, frozenset[str]]:
    """By resource, all that must be there before it and is destroyed after it: resources, data and locals, by address.
    ValueError for a circle."""
    direct = {address: set(reads) for address, reads in _nodes(configuration)}
    whole: dict[str, frozenset[str]] = {}

    def found(address: str, way: tuple[str, ...]) -> frozenset[str]:
        if address in way:
            raise ValueError(f"a circle: {' -> '.join((*way[way.index(address) :], address))}")
        if address not in whole:
            below = [found(one, (*way, address)) for one in sorted(direct[address]) if one in direct]
            whole[address] = frozenset(direct[address]).union(*below)
        return whole[address]

    for address in direct:
        found(address, ())
    return whole


def _nodes(configuration: Configuration) -> Iterator[tuple[str, Iterator[str]]]:
    for block in configuration.blocks:
        if block.kind in ("resource", "data"):
            yield block.address, _read(block, block.body)
        elif block.kind == "locals":
            yield from ((f"local.{name}", _read(block, value)) for name, value in hcl.items(block.body))


def _read(block: Block, value: object) -> Iterator[str]:
    return (f"{root}.{name}" for root, name, _ in hcl.reads(value) if f"{root}.{name}" != block.address)
