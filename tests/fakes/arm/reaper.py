"""The function in a subscription that deletes VMs past their `ends-at` tag, as it is shipped, by the fake's clock.
Stood in for is who calls it. It knows the tags alone: no dispatcher, no statestore, no driver, no SDK."""

from __future__ import annotations

import ssl
import threading
import time
from types import TracebackType

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.reapers import azure, rounds
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.records import Part
from tests.fakes.arm.settings import LOCATION

_CALL_S = 30.0


def own_identity(fake: FakeArm) -> Part:
    """The identity of the function, whose tag takes its signs of life; with a tag of its owner's."""
    kind = "Microsoft.ManagedIdentity/userAssignedIdentities"
    found = f"{fake.function_environment()['GROUP']}/providers/{kind}/reaper"
    part = Part(kind, found, LOCATION, {}, {"owner": "lab"}, fake.clock.now())
    with fake.lock:
        fake.estate.parts[found.lower()] = part
    return part


class SubscriptionReaper:
    """`with SubscriptionReaper(fake, 200, deployment="lab"):` it looks each 200 ms; without a period whenever `look` is
    called."""

    def __init__(self, fake: FakeArm, period_ms: int = 0, *, deployment: str) -> None:
        self._fake, self._period_ms, self._deployment = fake, period_ms, deployment
        self._trusted = ssl.create_default_context(cafile=fake.ca_file)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="reaper", daemon=True)
        #: What it has ended, in that order.
        self.ended: list[VmId] = []
        self.errors: list[Exception] = []

    def look(self) -> list[VmId]:
        """Once: end what is past its end, and say what that was."""
        told = self._fake.function_environment()
        bearer = azure.token(told["IDENTITY_ENDPOINT"], told["IDENTITY_HEADER"], told["CLIENT"])
        group = azure.Arm(told["ARM"], told["GROUP"], bearer, lambda: _CALL_S, time.sleep, trusted=self._trusted)
        found = rounds.look(group, self._fake.clock.now(), self._deployment)
        if found.failed or found.problem:
            raise rounds.Unfinished(str(found))
        self.ended += found.ended
        return list(found.ended)

    async def has_ended(self) -> set[VmId]:
        """What it has ended so far, as it knows."""
        return set(self.ended)

    def _live(self) -> None:
        while not self._over.wait(self._period_ms / 1000):
            try:
                self.look()
            except Exception as error:
                self.errors.append(error)  # the next look makes up for it

    def __enter__(self) -> SubscriptionReaper:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self._over.set()
        self._thread.join(10)
