"""The function in an account that ends VMs past their `ends-at` tag, as it is shipped, by the fake's clock. Stood in
for is who calls it. It knows the tags alone: no dispatcher, no statestore, no driver."""

from __future__ import annotations

import threading
from types import TracebackType

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.reapers import rounds
from cloud_dispatch.reapers.aws import Ec2
from tests.fakes.ec2.fake import FakeEc2


class AccountReaper:
    """`with AccountReaper(fake, 200):` it looks each 200 ms; without a period whenever `look` is called."""

    def __init__(self, fake: FakeEc2, period_ms: int = 0, *, deployment: str) -> None:
        self._fake, self._period_ms, self._deployment = fake, period_ms, deployment
        self._ec2 = fake.client()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="reaper", daemon=True)
        #: What it has ended, in that order.
        self.ended: list[VmId] = []
        self.errors: list[Exception] = []

    def look(self) -> list[VmId]:
        """Once: end what is past its end, and say what that was."""
        found = rounds.look(Ec2(self._ec2, self._deployment), self._fake.clock.now(), self._deployment)
        if found.failed:
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

    def __enter__(self) -> AccountReaper:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self._over.set()
        self._thread.join(10)
