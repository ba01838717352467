"""All operations that the fake has. Importing a module enters its own into the table."""

from __future__ import annotations

from tests.fakes.ec2 import around, fleets, instances, places, resources, tags
from tests.fakes.ec2.session import OPERATIONS

__all__ = ["OPERATIONS", "around", "fleets", "instances", "places", "resources", "tags"]
