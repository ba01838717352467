"""The reference of the driver interface names all of it."""

from __future__ import annotations

import dataclasses
import re

import pytest

from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.provider import spi
from cloud_dispatch.provider.errors import Scope
from cloud_dispatch.provider.funnel import Call
from tests.architecture.source import ROOT

PAGE = (ROOT / "docs" / "reference" / "driver-spi.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([A-Za-z_]+)", PAGE))
VALUES = [value for value in (*vars(spi).values(), Scope, Offering) if dataclasses.is_dataclass(value)]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.__name__)
def test_every_field_of_every_value_is_named(value: type) -> None:
    """A field that a driver's author can't look up might as well not be there."""
    unnamed = {field.name for field in dataclasses.fields(value)} - NAMED - {"profile"}
    assert not unnamed
    assert value.__name__ in PAGE


def test_every_call_is_a_method_of_the_interface_and_is_named() -> None:
    """The funnel that hosts and wrappers use, the interface and its page have the same calls."""
    methods = {name for name, member in vars(spi.Provider).items() if callable(member) and not name.startswith("_")}
    assert methods - {"close"} == {str(call) for call in Call}
    assert methods <= NAMED


def test_every_trait_has_its_default_in_the_table() -> None:
    """A default that was changed without its page is found."""
    for field in dataclasses.fields(spi.Traits):
        rows = [line for line in PAGE.splitlines() if line.startswith("|") and f"`{field.name}`" in line.split("|")[1]]
        assert rows, field.name
        assert any(str(field.default) in row.split("|")[2] for row in rows), field.name
