"""What to boot is on a disk that NoCloud reads, as on a hypervisor of one's own. Two VMs end by themselves: here the
provider lets nobody else end any."""

from __future__ import annotations

from tests.boot.qemu import NOCLOUD
from tests.boot.site import PATIENCE_S, MakeSite, Measured, Site
from tests.fakes.ec2.records import State

#: Tries to read what the agent speaks to the dispatcher with.
THIEF = "cat /var/lib/cloud-dispatch/agent.json"
STUBBORN = "trap '' TERM; while :; do sleep 1; done"
#: From the timer's end to that of the machine: the supervisor's looks, and a shutdown.
ENDING_S = 120


def test_it_powers_itself_off_when_drained_and_when_its_dispatcher_is_dead(
    make_site: MakeSite, measured: Measured
) -> None:
    """The first registers over TLS with its dispatcher's certificate pinned; its tasks are users of their own; it is
    drained. The dispatcher of the second is killed and never comes back, which its own timer hears of."""
    site = make_site(NOCLOUD)
    site.fake.denied.add("ec2:TerminateInstances")
    site.house.up()
    took_s = drained(site, measured)
    site.house.kill(15)
    lifetime_s = 90 + round(2 * took_s)  # from the launch: the time of a boot as it was just now, and as much again
    site.configure('lifetime = "1h"', f'lifetime = "{lifetime_s}s"')
    site.house.up()
    orphaned(site, lifetime_s)
    site.fake.denied.clear()
    site.configure("[dispatcher]", "[dispatcher]\npause = true")  # its task is still to be done
    site.house.up()
    site.until_gone(PATIENCE_S)


def drained(site: Site, measured: Measured) -> float:
    """The first VM's life; how long after its launch it had registered, in seconds."""
    house = site.house
    users, secret, place = house.submit(
        {"command": ["sh", "-c", "id -u; id -u cloud-dispatch"]},
        {"command": ["sh", "-c", THIEF], "max_attempts": 1},
        {"command": ["sh", "-c", "cat /run/cloud-init/cloud-id /proc/1/comm"]},
    )
    row, machine = site.machine()
    measured.registration(row, machine)
    assert house.url.startswith("https:")
    for task in (users, place):
        assert house.until_ended(task, PATIENCE_S)["state"] == "succeeded", house.logs(task)
    own, agents = map(int, house.logs(users).split())
    assert own >= 60_600
    assert agents not in (0, own)
    assert house.until_ended(secret, PATIENCE_S)["state"] == "failed"
    assert b"Permission denied" in house.logs(secret)
    assert house.logs(place).split() == [b"nocloud", b"systemd"]
    house.post(f"/v1/instances/{row['id']}/drain", {})
    house.until(lambda: not machine.thread.is_alive(), PATIENCE_S, "it is off")
    assert machine.by_itself
    house.until(lambda: not house.instances(), PATIENCE_S, "the dispatcher knows")
    return float(row["registered_ms"] - row["intended_ms"]) / 1000


def orphaned(site: Site, lifetime_s: int) -> None:
    """The second VM, whose dispatcher dies for good while a task runs that heeds no signal."""
    house = site.house
    (task,) = house.submit({"command": ["sh", "-c", STUBBORN]})
    row, machine = site.machine()
    house.until(lambda: house.task(task)["state"] == "running", PATIENCE_S, "it runs")
    house.kill()
    assert machine.thread.is_alive()
    machine.thread.join(lifetime_s + ENDING_S)
    assert not machine.thread.is_alive(), "its timer has not ended it"
    assert machine.by_itself
    assert machine.said("over: (the guest )?timer")
    assert site.fake.instance(row["vm"]).state in (State.SHUTTING_DOWN, State.TERMINATED)
