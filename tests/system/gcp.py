"""A real dispatcher with the Google Cloud driver, a fake Compute Engine, and guests that boot: what the tests share.

`WatchedGce` is the fake of all tests that run a dispatcher: at its end its inventory is what its dispatchers know.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.fakes.clock import RealClock
from tests.fakes.gce import PROJECT, FakeGce, Settings
from tests.fakes.gce.records import Instance, Status
from tests.fakes.guests.gce import GceGuests
from tests.system.house import CONFIG, House
from tests.system.watched import Inventory, Watched

#: The dispatcher's address in the VMs' network.
SEEN_AT = "10.255.0.1"
STARTING_MS = STOPPING_MS = 200
_PROFILE = """
[profiles.gcp]
driver = "gcp"
project = "{project}"
regions = ["us-central1"]
endpoint_url = "{url}"
credentials_file = "{key}"
service_account = "worker@{project}.iam.gserviceaccount.com"
instance_types = ["n2-standard-2", "e2-standard-2"]
consistency = "1s"
boot = "1s"
operation_poll = "200ms"
caps = {{ instances = {cap} }}
budget = {{ total = "5" }}
{more}
"""


def settings() -> Settings:
    return Settings(provisioning_ms=STARTING_MS, staging_ms=STARTING_MS, stopping_ms=STOPPING_MS)


def id_of(vm: Instance) -> str:
    """As dispatchers call it."""
    return f"{vm.zone}/{vm.name}"


class WatchedGce(Watched, FakeGce):
    """A fake Compute Engine that knows its dispatchers."""

    def __init__(self, *, patience_s: float = 20) -> None:
        super().__init__(settings(), RealClock())
        self.accounts: list[Account] = []
        self.patience_s = patience_s

    def living(self) -> list[Instance]:
        """What bills, or is about to."""
        return [vm for vm in self.all_instances() if vm.status in (Status.PROVISIONING, Status.STAGING, Status.RUNNING)]

    def inventory(self) -> Inventory:
        with self.lock:
            return Inventory(
                frozenset(map(id_of, self.living())),
                {id_of(vm): vm.id for vm in self.all_instances()},
                frozenset(id_of(vm) for vm in self.ever() if vm.running_ms),
                frozenset(map(id_of, self.ever())),
                tuple(self.leftovers()),
            )


class Account:
    """One deployment whose VMs are instances of `fake`, which ends it. `boots`: whether anything runs in them."""

    def __init__(
        self, folder: Path, fake: WatchedGce, *, cap: int = 2, pool: str = "", more: str = "", boots: bool = True
    ) -> None:
        before, _, after = CONFIG.partition("[profiles.local]")
        head = before.replace("tls = false\n", f'advertise = "https://{SEEN_AT}:{{port}}"\n')
        key = fake.write_key(folder)
        written = _PROFILE.format(project=PROJECT, url=fake.url, key=key, cap=cap, more=more)
        tail = after[after.index("[pools.default]") :].replace('profiles = ["local"]', 'profiles = ["gcp"]')
        written = written.replace("{", "{{").replace("}", "}}")
        self.fake = fake
        self.house = House(folder, config=head + written + tail, cap=cap, pool=pool, idle="1s")
        self.house.url = self.house.url.replace("http:", "https:")
        self.house.trust = self.house.state / "tls" / "ca.pem"
        ways = {(SEEN_AT, self.house.port): ("127.0.0.1", self.house.port)}
        self.guests = GceGuests(fake, folder / "guests", ways)
        fake.accounts.append(self)
        if boots:
            self.guests.__enter__()

    def close(self) -> None:
        """Nothing of it runs afterwards."""
        print(self.house.log_tail(400), self.guests.consoles())  # noqa: T201
        self.house.clean_up()
        self.guests.__exit__()

    def until_gone(self, within: float = 60) -> None:
        """Nothing is left, by every word there is: the dispatcher's, the fake's, and this host's."""
        self.house.until_no_instance(within)
        self.house.until(lambda: not self.fake.all_instances() and not self.guests.running(), 20, "no VM is left")
        self.fake.until_alike()
        assert self.fake.leftovers() == []


MakeAccount = Callable[..., Account]
