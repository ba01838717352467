"""Tests that share what is dear to make run on one worker. A pytest that xdist does not know undid that silently."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="module")
def dear() -> int:
    return os.getpid()


def test_what_shares_a_fixture_of_its_module_is_a_group(request: pytest.FixtureRequest, dear: int) -> None:
    """By its name, which is all that the scheduler looks at (tests/conftest.py gives the mark)."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("groups are not asked for (--dist loadgroup)")
    assert request.node.nodeid.endswith("@test_groups")
