"""All operations that the fake has. Importing a module enters its own into the table."""

from __future__ import annotations

from tests.fakes.arm import around, launch, places, vms
from tests.fakes.arm.routes import ROUTES

__all__ = ["ROUTES", "around", "launch", "places", "vms"]
