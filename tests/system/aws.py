"""A real dispatcher with the AWS driver, a fake EC2, and guests that boot: what the tests on AWS share.

`WatchedEc2` is the fake of all tests that run a dispatcher: at its end its inventory is what its dispatchers know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.ec2 import FakeEc2, Settings
from tests.fakes.ec2.records import Instance, State
from tests.fakes.ec2.settings import ACCOUNT, REGION
from tests.fakes.guests.host import Guests
from tests.providers.aws import scenes
from tests.system.house import CONFIG, House
from tests.system.watched import Inventory, Watched

#: The dispatcher's address in the VMs' network.
SEEN_AT = "10.255.0.1"
TYPES = ("m6i.large", "c6i.large")
PENDING_MS = ENDING_MS = 300
_PROFILE = """
[profiles.{name}]
driver = "aws"
region = "{region}"
account = "{account}"
endpoint_url = "{url}"
identity_certificate = "{certificate}"
instance_types = ["m6i.large", "c6i.large"]
consistency = "1s"
boot = "1s"
guest_enforced = true
caps = {{ instances = {cap} }}
budget = {{ total = "5" }}
{more}
"""


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile on the fake. `cap` 0 is that of the deployment; `more` are lines of its own."""

    name: str = "aws"
    region: str = REGION
    account: str = ACCOUNT
    cap: int = 0
    more: str = ""


class WatchedEc2(Watched, FakeEc2):
    """A fake EC2 that knows its dispatchers."""

    def __init__(self, settings: Settings | None = None, *, patience_s: float = 20) -> None:
        super().__init__(settings)
        self.accounts: list[Account] = []
        #: VMs that the test itself has launched: no dispatcher's.
        self.strangers: set[str] = set()
        self.patience_s = patience_s

    def living(self) -> list[Instance]:
        """What bills, or is about to."""
        return [vm for vm in self.all_instances() if vm.state in (State.PENDING, State.RUNNING)]

    def burning(self) -> list[Instance]:
        """Those that are not over yet."""
        return [vm for vm in self.all_instances() if vm.state is not State.TERMINATED]

    def ever(self) -> list[Instance]:
        """All that was ever launched."""
        with self.lock:
            return [vm for region in self.regions_in_use() for vm in region.ever]

    def inventory(self) -> Inventory:
        with self.lock:
            loose = tuple(
                part.id
                for region in self.regions_in_use()
                for part in (*region.volumes.values(), *region.interfaces.values())
                if part.instance not in region.instances
            )
            launched = frozenset(vm.id for vm in self.ever()) - self.strangers
            return Inventory(
                frozenset(vm.id for vm in self.living()) - self.strangers,
                {vm.id: vm.id for vm in self.burning() if vm.id not in self.strangers},
                launched,
                launched,
                loose,
            )


class Account:
    """One deployment whose VMs are instances of `fake`, which ends it. `signer`: whose key signs the VMs' identity
    documents; `boots`: whether anything runs in them; `hosted`: what they run on."""

    def __init__(
        self, folder: Path, fake: WatchedEc2, *, cap: int = 2, pool: str = "", signer: str = "EC2",
        profiles: Sequence[Profile] = (Profile(),), pools: str = "", boots: bool = True,
        hosted: Callable[..., Guests] = Guests,
    ) -> None:  # fmt: skip
        certificate = folder / "us-east-1.pem"
        certificate.write_text(scenes.certificate())
        before, _, after = CONFIG.partition("[profiles.local]")
        head = before.replace("tls = false\n", f'advertise = "https://{SEEN_AT}:{{port}}"\n')
        written = "".join(
            _PROFILE.format(
                name=one.name, region=one.region, account=one.account, url=fake.url, certificate=certificate,
                cap=one.cap or cap, more=one.more,
            )
            for one in profiles
        )  # fmt: skip
        names = ", ".join(f'"{one.name}"' for one in profiles)
        tail = after[after.index("[pools.default]") :].replace('profiles = ["local"]', f"profiles = [{names}]")
        written, pools = (text.replace("{", "{{").replace("}", "}}") for text in (written, pools))
        self.fake = fake
        self.house = House(folder, config=head + written + tail + pools, cap=cap, pool=pool, idle="1s")
        self.house.url = self.house.url.replace("http:", "https:")
        self.house.trust = self.house.state / "tls" / "ca.pem"
        ways = {(SEEN_AT, self.house.port): ("127.0.0.1", self.house.port)}
        self.guests = hosted(fake, folder / "guests", lambda said: scenes.proof(said, signer), ways)
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
        self.house.until(lambda: not self.fake.burning() and not self.guests.running(), 20, "no VM is left")
        self.fake.until_alike()
        assert self.fake.leftovers() == []
        with self.fake.lock:
            for region in self.fake.regions_in_use():
                assert not region.volumes
                assert not region.interfaces
                assert all(request.state == "closed" for request in region.spot_requests.values())


def drivers_of(pid: int) -> list[str]:
    """The processes of drivers that the dispatcher with this pid has started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_text().split("\0") if entry.name.isdecimal() else []
        except OSError:
            continue
        if "cloud_dispatch.provider.process_child" in words and str(pid) in words:
            found.append(entry.name)
    return found


MakeAccount = Callable[..., Account]
