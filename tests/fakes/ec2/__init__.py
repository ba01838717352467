"""A fake EC2, and of the services around it as much as a launcher of VMs needs."""

from __future__ import annotations

from tests.fakes.ec2.fake import FakeEc2
from tests.fakes.ec2.region import Hooks
from tests.fakes.ec2.settings import Settings

__all__ = ["FakeEc2", "Hooks", "Settings"]
