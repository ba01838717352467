"""EC2, Compute Engine and Azure for benchmarks: the tests' own fakes as processes, and a dispatcher's settings of them.

Owns the fakes and what a dispatcher is told about them, a pool a profile. Knows nothing of what is measured.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.fake_ec2 import IMAGE, REGION, TYPE, ZONE, Fake, certificate, fake
from bench.processes import BenchmarkFailed
from bench.product import toml_value

AWS, GCP, AZURE = CLOUDS = ("aws", "gcp", "azure")
PROJECT, GCP_REGION, GCP_TYPE = "fake-project", "us-central1", "e2-standard-2"
GCP_ZONES = tuple(f"{GCP_REGION}-{letter}" for letter in "abcf")
SUBSCRIPTION, GROUP, LOCATION, SIZE = (
    "00000000-1111-4222-8333-444444444444", "dispatch-vms", "westeurope", "Standard_D2s_v5"
)  # fmt: skip
SUBNET = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Network/virtualNetworks/dispatch-net/"
    "subnets/vms"
)
CPUS = 2
_HEAD = """
[dispatcher]
deployment = "bench"
state_dir = {state_dir}
listen = {listen}
tls = false
advertise = "https://192.0.2.1:7717"
"""
#: One type in one zone and one market, at a price that the operator says, and with what lets VMs share a launch. As in
#: `bench.fake_ec2` of AWS: the account is one that may launch a lot. Google's and Azure's paces are the drivers' own.
_PROFILES = {
    AWS: """
driver = "aws"
region = {region}
endpoint_url = {url}
instance_types = [{type}]
images = {{ x86_64 = {image} }}
zones = [{zone}]
prices = {{ {type} = "0.096" }}
identity_certificate = {certificate}
launches_per_s = 100
launch_burst = 1000
""",
    GCP: """
driver = "gcp"
project = {project}
regions = [{region}]
zones = [{zone}]
endpoint_url = {url}
credentials_file = {key}
instance_types = [{type}]
prices = {{ {type} = "0.067" }}
service_account = "worker@fake-project.iam.gserviceaccount.com"
launches_per_s = 1000
""",
    AZURE: """
driver = "azure"
subscription = {subscription}
resource_group = {group}
region = {region}
zones = ["1"]
subnet = {subnet}
endpoint_url = {url}
authority_url = {url}
prices_url = {prices}
ca_file = {ca}
credential = "environment"
identity_certificates = {certificate}
sizes = [{type}]
prices = {{ {type} = "0.096" }}
""",
}
_COMMON = """
spot = false
price_list = false
guest_enforced = true
caps = {{ instances = 20000 }}
budget = {{ month = "$10000000" }}
[pools.{name}]
profiles = ["{name}"]
max_tasks_per_instance = 1
boot_allowance = "$1000"
end = {{ idle = "1h" }}
"""


@dataclass(frozen=True)
class Sky:
    """The fakes that run, by the name of their profile, and what a profile says to reach each."""

    fakes: Mapping[str, Fake]
    ways: Mapping[str, Mapping[str, str]]

    def check(self, wanted: Mapping[str, int]) -> None:
        """BenchmarkFailed unless each has made exactly so many VMs, and was asked for nothing that it has not."""
        for name, one in self.fakes.items():
            one.check()
            made = len(one.do("inventory"))
            if made != wanted.get(name, 0):
                raise BenchmarkFailed(f"{wanted.get(name, 0)} VMs were to be launched, {one.name} has {made}")


@contextlib.contextmanager
def sky(folder: Path, latency_ms: int, names: Sequence[str] = CLOUDS) -> Iterator[Sky]:
    """Fakes without quotas and throttling, empty, whose every answer takes so long at least."""
    made: dict[str, Fake] = {}
    ways: dict[str, dict[str, str]] = {}
    with contextlib.ExitStack() as stack:
        if AWS in names:
            one = made[AWS] = stack.enter_context(fake(folder, "EC2", {"latency_ms": latency_ms, "types": [TYPE]}))
            ways[AWS] = {
                "url": one.url, "region": REGION, "zone": ZONE, "type": TYPE, "image": IMAGE,
                "certificate": certificate(),
            }  # fmt: skip
        if GCP in names:
            one = made[GCP] = stack.enter_context(fake(folder, "GCE", {"latency_ms": latency_ms}))
            key = folder / "key.json"
            key.write_text(json.dumps(one.do("key")))
            ways[GCP] = {
                "url": one.url, "project": PROJECT, "region": GCP_REGION, "zone": GCP_ZONES[0], "type": GCP_TYPE,
                "key": str(key),
            }  # fmt: skip
        if AZURE in names:
            one = made[AZURE] = stack.enter_context(fake(folder, "ARM", {"latency_ms": latency_ms}))
            places = one.do("places")
            ways[AZURE] = {
                "url": places["url"], "prices": places["prices_url"], "ca": places["ca_file"], "region": LOCATION,
                "subscription": SUBSCRIPTION, "group": GROUP, "subnet": SUBNET, "type": SIZE,
                "certificate": certificate(),
            }  # fmt: skip
        yield Sky(made, ways)


def configure(folder: Path, clouds: Sky, port: int, names: Sequence[str] = CLOUDS) -> Path:
    """A dispatcher's configuration in ``folder``: a profile and a pool for each of these clouds, one VM a task."""
    head = {"state_dir": str(folder / "state"), "listen": f"127.0.0.1:{port}"}
    text = _HEAD.format(**{name: toml_value(value) for name, value in head.items()})
    for name in names:
        told = {key: toml_value(value) for key, value in clouds.ways[name].items()}
        text += f"[profiles.{name}]\n{_PROFILES[name].format(**told)}{_COMMON.format(name=name)}"
    path = folder / "config.toml"
    path.write_text(text)
    return path
