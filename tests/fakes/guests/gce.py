"""VMs of the fake Compute Engine that really boot: what differs from those of EC2."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from http.server import ThreadingHTTPServer
from pathlib import Path

from tests.fakes.gce.cloud import Cloud
from tests.fakes.gce.metadata import Metadata
from tests.fakes.gce.project import Hooks
from tests.fakes.gce.records import Instance
from tests.fakes.guests.host import Guests
from tests.fakes.guests.network import Place


class GceGuests(Guests):
    """`with GceGuests(fake, folder, {("10.255.0.1", 443): ("127.0.0.1", 7717)}):` from then on what the fake starts
    really runs."""

    source = "gce"

    def __init__(self, cloud: Cloud, folder: Path, ways: Mapping[Place, Place]) -> None:
        super().__init__(cloud, folder, lambda said: "", ways)
        self._gce = cloud

    def hook(self) -> None:
        self._gce.hooks = Hooks(on_start=self._start, on_stop=self._stop)

    def unhook(self) -> None:
        self._gce.hooks = Hooks()

    def address(self, vm: Instance) -> str:
        return vm.address

    def metadata(self, listener: socket.socket, vm: Instance) -> ThreadingHTTPServer:
        return Metadata(listener, vm, self._gce.clock.now, self._gce.unmodelled.append)
