"""On EC2's data source: RunInstances of the real driver, EC2's metadata service at its address, Debian's cloud-init."""

from __future__ import annotations

from tests.boot.site import PATIENCE_S, MakeSite, Measured
from tests.fakes.guests.sources import EC2

#: Asks the metadata service from within a task.
CURIOUS = "import urllib.request as r; r.urlopen('http://169.254.169.254/latest/meta-data/', timeout=20)"
#: So soon after its VM's network is up an agent has registered, under emulation.
SOON_S = 10


def test_it_boots_registers_works_and_ends(make_site: MakeSite, measured: Measured) -> None:
    """cloud-init finds out where it is and crawls the service; the driver believes the VM's proof; tasks get nothing of
    the metadata; when EC2 ends it, it switches itself off at its button."""
    site = make_site(EC2)
    house = site.house
    house.up()
    query = ["cloud-init", "query", "--format", "{{v1.cloud_name}} {{v1.instance_id}} {{v1.region}}"]
    told, curious = house.submit({"command": query}, {"command": ["python3", "-c", CURIOUS], "max_attempts": 1})
    row, machine = site.machine()
    took_s = measured.registration(row, machine)
    assert house.until_ended(told, PATIENCE_S)["state"] == "succeeded", house.logs(told)
    assert house.logs(told).decode().split() == ["aws", row["vm"], "us-east-1"]
    assert house.until_ended(curious, PATIENCE_S)["state"] == "failed"
    assert b"Connection refused" in house.logs(curious)
    house.post(f"/v1/instances/{row['id']}/kill", {})
    site.until_gone(PATIENCE_S)
    assert not machine.by_itself
    assert machine.said("Reached target .*poweroff.target")
    assert took_s is None or took_s <= SOON_S
