"""Modules of this folder may run in virtual time."""

from __future__ import annotations

from tests.virtual_time import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
