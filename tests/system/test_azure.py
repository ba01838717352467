"""End to end on Azure: a real dispatcher, the real driver in its process, a fake Azure, and guests that really boot.

What is stood in for: ARM and the metadata service of VMs (`tests/fakes/arm`). User data, agents, proofs of identity,
notices and shutdowns are real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.faults import Fault, FaultKind
from tests.fakes.guests.host import Guests, cannot
from tests.fakes.guests.sources import AZURE
from tests.providers.azure import scenes
from tests.system.aws import SEEN_AT, drivers_of
from tests.system.azure import WatchedArm
from tests.system.house import CONFIG, House

pytestmark = pytest.mark.skipif(bool(cannot()), reason=cannot() or "it can")
_PROFILE = """
[profiles.azure]
driver = "azure"
subscription = "{subscription}"
resource_group = "{group}"
region = "{region}"
subnet = "{subnet}"
endpoint_url = "{fake.url}"
authority_url = "{fake.url}"
prices_url = "{fake.prices_url}"
ca_file = "{fake.ca_file}"
credential = "environment"
identity_certificates = "{issuers}"
sizes = ["Standard_D2s_v5"]
consistency = "1s"
boot = "1s"
{more}
caps = {{ instances = {cap} }}
budget = {{ total = "5" }}
"""


class Subscription:
    """One deployment whose VMs are those of `fake`."""

    def __init__(
        self, folder: Path, fake: WatchedArm, *, cap: int = 2, pool: str = "", by: str = "issuer",
        more: str = "guest_enforced = true", boots: bool = True,
    ) -> None:  # fmt: skip
        issuers = folder / "issuers.pem"
        issuers.write_text(scenes.trusted())
        before, _, after = CONFIG.partition("[profiles.local]")
        head = before.replace("tls = false\n", f'advertise = "https://{SEEN_AT}:{{port}}"\n')
        written = _PROFILE.format(
            subscription=scenes.fake.SUBSCRIPTION, group=scenes.fake.GROUP, region=scenes.REGION, subnet=scenes.SUBNET,
            fake=fake, issuers=issuers, cap=cap, more=more,
        )  # fmt: skip
        tail = after[after.index("[pools.default]") :].replace('profiles = ["local"]', 'profiles = ["azure"]')
        config = head + written.replace("{", "{{").replace("}", "}}") + tail
        self.fake = fake
        self.house = House(folder, config=config, cap=cap, pool=pool, idle="1s")
        self.house.url = self.house.url.replace("http:", "https:")
        self.house.trust = self.house.state / "tls" / "ca.pem"
        ways = {(SEEN_AT, self.house.port): ("127.0.0.1", self.house.port)}

        def sign(said: bytes) -> str:
            return scenes.signature(said, "metadata.azure.com", by)

        self.guests = Guests(fake, folder / "guests", sign, ways, AZURE)
        fake.accounts.append(self)
        if boots:
            self.guests.__enter__()

    def until_gone(self, within: float = 60) -> None:
        """Nothing is left, by every word there is: the dispatcher's, the fake's, and this host's."""
        self.house.until_no_instance(within)
        self.house.until(lambda: not self.fake.all_vms() and not self.guests.running(), 20, "no VM is left")
        self.fake.until_alike()
        assert self.fake.leftovers() == []
        ever = [vm.name for vm in self.fake.estate.ever]
        known = [row["vm"] for row in self.house.instances(past=True) if row["vm"]]
        assert sorted(ever) == sorted(known)
        assert len(set(ever)) == len(ever)

    def close(self) -> None:
        print(self.house.log_tail(400), self.guests.consoles())  # noqa: T201
        self.house.clean_up()
        self.guests.__exit__()


Make = Callable[..., Subscription]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a deployment on a fake Azure of the test's own, which at its end looks at it."""
    with WatchedArm() as fake:
        for name, value in fake.environment().items():
            monkeypatch.setenv(name, value)

        def one(**more: object) -> Subscription:
            return Subscription(tmp_path, fake, **more)  # type: ignore[arg-type]

        yield one


def test_tasks_run_and_everything_is_gone(make: Make) -> None:
    """VMs prove who they are by attested documents made out to their batch, run tasks, shut down, and are deleted."""
    azure = make()
    house = azure.house
    house.up()
    ids = house.submit(*({"command": ["sh", "-c", f"echo out-{n}"]} for n in range(10)))
    assert house.until_all_ended(10) == {"succeeded": 10}
    assert [house.logs(task) for task in ids] == [b"out-%d\n" % n for n in range(10)]
    azure.until_gone()


def test_a_spot_vm_that_is_taken_back_gives_its_work_back_before(make: Make) -> None:
    """It reads of its end in the scheduled events, by its own name, and the task goes on elsewhere."""
    azure = make(pool='markets = ["spot"]')
    house = azure.house
    house.up()
    script = "[ $CLOUD_DISPATCH_ATTEMPT = 1 ] || exec echo resumed; echo begun; while :; do sleep 0.1; done"
    (task,) = house.submit({"command": ["bash", "-c", script], "cpus": 2})
    house.until(lambda: b"begun" in house.logs(task), 40, "it runs")
    first = house.get(f"/v1/instances/{house.task(task)['instance']}")["vm"]
    azure.fake.evict(first, notice_ms=20_000)
    ends_ms = azure.fake.clock.now() + 20_000
    one, _ = house.until(lambda: len(found := house.task(task)["attempts_list"]) == 2 and found, 20, "goes on")
    assert one["cause"] == "preempted"
    assert one["ended_ms"] < ends_ms
    assert house.until_ended(task)["state"] == "succeeded"
    azure.until_gone()


def test_killed_while_a_launch_is_under_way_it_doubles_and_leaks_nothing(make: Make) -> None:
    """Azure has accepted the VM, and the dispatcher dies of SIGKILL: the next one goes on with the same VM."""
    azure = make(cap=1)
    house = azure.house
    house.up()
    azure.fake.add_faults(Fault(FaultKind.SLOW, operation="VirtualMachines_CreateOrUpdate", amount=20_000, times=1))
    (task,) = house.submit({"command": ["echo", "once"]})
    house.until(azure.fake.all_vms, 30, "Azure has made it")
    assert house.process is not None
    old = house.process.pid
    house.kill()
    house.until(lambda: not drivers_of(old), 10, "its driver's process ends with it")
    house.up()
    assert house.until_ended(task)["state"] == "succeeded"
    azure.until_gone()
    assert len(azure.fake.estate.ever) == 1


def test_a_launch_that_fails_after_it_was_accepted_is_followed_by_another(make: Make) -> None:
    """AllocationFailed comes late; what it left is deleted, and the task runs elsewhere."""
    azure = make(cap=1)
    house = azure.house
    house.up()
    azure.fake.add_faults(Fault(FaultKind.ASYNC_FAILURE, code="ZonalAllocationFailed", times=1))
    (task,) = house.submit({"command": ["echo", "here"]})
    assert house.until_ended(task)["state"] == "succeeded"
    house.until_no_instance(60)
    house.until(lambda: not azure.fake.all_vms(), 20, "no VM is left")
    assert azure.fake.leftovers() == []


def test_whose_document_another_key_has_signed_is_not_admitted(make: Make) -> None:
    """The VM is what it says, but nobody whom the operator names vouches for its signer: it gets no task."""
    azure = make(cap=1, by="somebody else")
    house = azure.house
    house.up()
    (task,) = house.submit({"command": ["echo", "never"]})
    house.until(lambda: "vouch" in house.log_tail(4000), 60, "it is refused, and the log says why")
    assert house.task(task)["state"] != "succeeded"
