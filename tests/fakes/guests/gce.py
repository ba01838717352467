"""VMs of the fake Compute Engine that really boot: what differs from those of EC2."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.fakes.gce.cloud import Cloud
from tests.fakes.guests.host import Guests
from tests.fakes.guests.network import Place
from tests.fakes.guests.sources import GCE


class GceGuests(Guests):
    """`with GceGuests(fake, folder, {("10.255.0.1", 443): ("127.0.0.1", 7717)}):` from then on what the fake starts
    really runs. Nobody signs: VMs are given tokens by the service itself."""

    def __init__(self, cloud: Cloud, folder: Path, ways: Mapping[Place, Place]) -> None:
        super().__init__(cloud, folder, lambda said: "", ways, GCE)
