"""A real dispatcher with the AWS driver, a fake EC2, and guests that boot: what the tests of `test_aws` share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.fakes.ec2 import FakeEc2
from tests.fakes.ec2.records import Instance, State
from tests.fakes.guests.host import Guests
from tests.providers.aws import scenes
from tests.system.house import CONFIG, House

#: The dispatcher's address in the VMs' network.
SEEN_AT = "10.255.0.1"
TYPES = ("m6i.large", "c6i.large")
_PROFILE = """
[profiles.aws]
driver = "aws"
region = "us-east-1"
account = "123456789012"
endpoint_url = "ENDPOINT"
identity_certificate = "CERTIFICATE"
instance_types = ["m6i.large", "c6i.large"]
consistency = "1s"
boot = "1s"
guest_enforced = true
caps = {{ instances = {cap} }}
budget = {{ total = "5" }}

"""


class Account:
    """One deployment whose VMs are instances of `fake`. `signer`: whose key signs the VMs' identity documents."""

    def __init__(self, folder: Path, fake: FakeEc2, *, cap: int = 2, pool: str = "", signer: str = "EC2") -> None:
        certificate = folder / "us-east-1.pem"
        certificate.write_text(scenes.certificate())
        before, _, after = CONFIG.partition("[profiles.local]")
        head = before.replace("tls = false\n", f'advertise = "https://{SEEN_AT}:{{port}}"\n')
        profile = _PROFILE.replace("ENDPOINT", fake.url).replace("CERTIFICATE", str(certificate))
        pools = after[after.index("[pools.default]") :].replace('profiles = ["local"]', 'profiles = ["aws"]')
        self.fake = fake
        self.house = House(folder, config=head + profile + pools, cap=cap, pool=pool, idle="1s")
        self.house.url = self.house.url.replace("http:", "https:")
        self.house.trust = self.house.state / "tls" / "ca.pem"
        ways = {(SEEN_AT, self.house.port): ("127.0.0.1", self.house.port)}
        self.guests = Guests(fake, folder / "guests", lambda said: scenes.proof(said, signer), ways)

    def living(self) -> list[Instance]:
        """What bills, or is about to."""
        return [vm for vm in self.fake.all_instances() if vm.state in (State.PENDING, State.RUNNING)]

    def ever(self) -> list[Instance]:
        """All that was ever launched."""
        with self.fake.lock:
            return [vm for region in self.fake.regions_in_use() for vm in region.ever]

    def until_alike(self, within: float = 20) -> None:
        """The fake's inventory is the dispatcher's state: each VM that lives is one instance of the dispatcher's, each
        that ever was has been one and no more, and no disk or interface is without a VM."""
        self.house.until(lambda: not self.differences(), within, "inventory and state are alike")

    def differences(self) -> list[str]:
        """In what the two are not alike."""
        rows = self.house.instances(past=True)
        known = Counter(row["vm"] for row in rows if row["vm"])
        now = {row["vm"] for row in self.house.instances() if row["vm"]}
        lives = {vm.id for vm in self.living()}
        launched = {vm.id for vm in self.ever()}
        found = [f"{vm} is {times} instances" for vm, times in known.items() if times > 1]
        found += [f"{vm} lives and is unknown" for vm in lives - now]
        found += [f"{vm} is known and does not live" for vm in now - lives]
        found += [f"{vm} was launched and never known" for vm in launched - set(known)]
        found += [f"{vm} is known and was never launched" for vm in set(known) - launched]
        found += [f"{vm} runs and is no instance" for vm in set(self.guests.running()) - {v.id for v in self.burning()}]
        with self.fake.lock:
            for region in self.fake.regions_in_use():
                held = [(volume.id, volume.instance) for volume in region.volumes.values()]
                held += [(interface.id, interface.instance) for interface in region.interfaces.values()]
                found += [f"{name} belongs to no VM" for name, vm in held if vm not in region.instances]
        return found

    def burning(self) -> list[Instance]:
        """Those that are not over yet."""
        return [vm for vm in self.fake.all_instances() if vm.state is not State.TERMINATED]

    def until_gone(self, within: float = 60) -> None:
        """Nothing is left, by every word there is: the dispatcher's, the fake's, and this host's."""
        self.house.until_no_instance(within)
        self.house.until(lambda: not self.burning() and not self.guests.running(), 20, "no VM is left")
        self.until_alike()
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
