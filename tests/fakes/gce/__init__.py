"""Our own fake of Google Compute Engine over real HTTP, for the real SDK. See ../README.md for what it models.

with FakeGce(Settings(stopping_ms=500), SetClock()) as gce:          # in a thread of the test's process
    vms = compute_v1.InstancesClient(**gce.client())                 # credentials of the fake, and its URL
    gce.add_faults(Fault(FaultKind.LOST_ANSWER, operation="instances.insert", times=1))
    ...
    gce.advance(500)                                                 # fails at the end for what is not modelled
"""

from tests.fakes.gce.fake import FakeGce
from tests.fakes.gce.settings import PROJECT, Settings

__all__ = ["PROJECT", "FakeGce", "Settings"]
