"""The function in an account that ends VMs past their `ends-at` tag, stood in for: the core's own rule, over boto3, by
the fake's clock. It knows the tags alone: no dispatcher, no statestore, no driver."""

from __future__ import annotations

import threading
from types import TracebackType

from cloud_dispatch.domain import reaper
from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.tags import DEPLOYMENT
from tests.fakes.ec2.fake import FakeEc2

_LIVING = ["pending", "running", "stopping", "stopped"]


class AccountReaper:
    """`with AccountReaper(fake, 200):` it looks each 200 ms; without a period whenever `look` is called."""

    def __init__(self, fake: FakeEc2, period_ms: int = 0, deployment: str = "") -> None:
        self._fake, self._period_ms, self._deployment = fake, period_ms, deployment
        self._ec2 = fake.client()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="reaper", daemon=True)
        #: What it has ended, in that order.
        self.ended: list[VmId] = []
        self.errors: list[Exception] = []

    def look(self) -> list[VmId]:
        """Once: end what is past its end, and say what that was."""
        pages = self._ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": "tag-key", "Values": [DEPLOYMENT]}, {"Name": "instance-state-name", "Values": _LIVING},
            ]
        )  # fmt: skip
        found = [vm for page in pages for reservation in page["Reservations"] for vm in reservation["Instances"]]
        worn = [(VmId(vm["InstanceId"]), {tag["Key"]: tag["Value"] for tag in vm.get("Tags", ())}) for vm in found]
        late = reaper.overdue(worn, self._fake.clock.now(), self._deployment)
        if late:
            self._ec2.terminate_instances(InstanceIds=late)
            self.ended += late
        return late

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
