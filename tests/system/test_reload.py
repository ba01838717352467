"""SIGHUP: the configuration is read anew by a real dispatcher, and followed whole or not at all."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.system.house import House

OTHER = """
[profiles.other]
driver = "local"

[profiles.other.catalogue."vm.4"]
cpus = 4
memory = "8GiB"
disk = "20GiB"
price = "0.08"
boot_delay = "0.1s"
"""
WAITS = "echo begin; while [ ! -e {go} ]; do sleep 0.05; done; echo end"


def news(house: House) -> list[tuple[str, str]]:
    """What was said of reloads, the latest first."""
    events = house.get("/v1/events", limit=1000)["events"]
    return [(one["action"], one["detail"]) for one in events if one["action"].startswith("configuration.")]


def reload(house: House, change: Callable[[str], str]) -> tuple[str, str]:
    """Have the dispatcher read what `change` makes of its configuration; what it says of that."""
    before = len(news(house))
    house.config.write_text(change(house.config.read_text()))
    assert house.process is not None
    house.process.send_signal(signal.SIGHUP)
    house.until(lambda: len(news(house)) > before, 20, "it says what came of it")
    return news(house)[0]


def waiting(house: House, number: int) -> str:
    """Why a task waits."""
    return "; ".join(house.get(f"/v1/tasks/{number}/explain")["reasons"])


@pytest.fixture
def house(make_house: Any) -> House:
    made: House = make_house(idle="60s", lease="20s")
    made.up()
    return made


def test_what_is_lowered_and_raised_holds_at_once(house: House, tmp_path: Path) -> None:
    """A cap and a limit are taken to nothing while work waits, and given back; no agent is disturbed."""
    go = tmp_path / "go"
    (held,) = house.submit({"command": ["sh", "-c", WAITS.format(go=go)]})
    house.until(lambda: b"begin" in house.logs(held), 30, "it runs")
    reload(house, lambda text: text.replace("instances = 3", "instances = 1"))
    (second,) = house.submit({"command": ["true"], "cpus": 2})
    house.until(lambda: "cap" in waiting(house, second), 20, "the cap keeps it waiting")
    limited = 'instances = 3\n[budget]\nday = "0.0001"'
    said = reload(house, lambda text: text.replace("instances = 1", limited))
    assert said == ("configuration.reloaded", "budget.day, caps.instances")
    (more,) = house.submit({"command": ["sh", "-c", "sleep 0.1"], "cpus": 2})
    house.until(lambda: "budget" in waiting(house, more), 20, "the limit keeps it waiting")
    assert len(house.instances()) == 1
    reload(house, lambda text: text.replace('day = "0.0001"', 'day = "10"'))
    assert {house.until_ended(number)["state"] for number in (second, more)} == {"succeeded"}
    go.write_text("")
    assert (house.until_ended(held)["state"], house.task(held)["attempts"]) == ("succeeded", 1)


def test_a_bad_one_is_refused_whole_and_that_of_before_holds(house: House) -> None:
    good = house.config.read_text()
    action, detail = reload(house, lambda text: text.replace("instances = 3", "instances = 0\nfoo = 1"))
    assert action == "configuration.refused"
    assert f"{house.config}:" in detail
    assert "foo" in detail
    health = house.get("/v1/health")
    assert health["status"] == "degraded"
    assert detail in health["problems"][0]
    assert b"cloud_dispatch_configuration_refused 1.0" in house.ask("GET", "/v1/metrics").content

    action, detail = reload(house, lambda _: good.replace('lease = "20s"', 'lease = "25s"').replace("idle =", "idle="))
    assert action == "configuration.refused"
    assert "timing.lease can't change" in detail
    assert "restart" in detail

    (number,) = house.submit({"command": ["true"]})
    assert house.until_ended(number)["state"] == "succeeded"
    assert reload(house, lambda _: good)[0] == "configuration.reloaded"
    assert house.get("/v1/health")["status"] == "ok"
    assert b"cloud_dispatch_configuration_refused 0.0" in house.ask("GET", "/v1/metrics").content


def test_a_profile_that_leaves_is_looked_after_to_the_end(house: House, tmp_path: Path) -> None:
    """What runs on its VM is finished, the VM is ended and seen to be gone; new work goes to the profile that came."""
    go = tmp_path / "go"
    (held,) = house.submit({"command": ["sh", "-c", WAITS.format(go=go)]})
    house.until(lambda: b"begin" in house.logs(held), 30, "it runs")

    def swapped(text: str) -> str:
        first, rest = text.split("[profiles.local]")
        return first + OTHER + rest[rest.index("\n[pools.default]") :].replace('["local"]', '["other"]')

    action, detail = reload(house, swapped)
    assert action == "configuration.reloaded"
    assert "profiles.local" in detail
    assert "profiles.other" in detail
    (more,) = house.submit({"command": ["true"]})
    assert house.until_ended(more)["state"] == "succeeded"
    assert {one["profile"] for one in house.instances()} == {"local", "other"}
    go.write_text("")
    assert (house.until_ended(held)["state"], house.task(held)["attempts"]) == ("succeeded", 1)
    house.until(lambda: {one["profile"] for one in house.instances()} == {"other"}, 30, "its VM is gone")
    assert house.get("/v1/health")["status"] == "ok"
    house.post("/v1/shutdown", {"terminate": True, "grace_ms": 1000})
    assert house.process is not None
    assert house.process.wait(30) == 0
    house.until(lambda: not house.processes(), 10, "nothing of it is left")


def test_a_driver_that_is_made_anew_goes_on_with_its_vms(house: House) -> None:
    """Its settings are others: what it offers is asked anew, and the VM that is there serves on."""
    (first,) = house.submit({"command": ["true"]})
    assert house.until_ended(first)["state"] == "succeeded"
    (vm,) = [one["vm"] for one in house.instances()]
    action, detail = reload(house, lambda text: text.replace('price = "0.04"', 'price = "0.02"'))
    assert (action, detail) == ("configuration.reloaded", "profiles.local.catalogue.vm.2.price")
    (second,) = house.submit({"command": ["true"]})
    assert house.until_ended(second)["state"] == "succeeded"
    assert [one["vm"] for one in house.instances()] == [vm]
    house.until(
        lambda: {one["rate_nano"] for one in house.get("/v1/offers")["offers"]} == {20_000_000}, 20, "the new price"
    )


def test_a_pool_that_leaves_has_its_tasks_told(house: House) -> None:
    """And one that comes back runs them."""
    good = house.config.read_text()
    more = '\n[pools.extra]\nprofiles = ["local"]\n'
    reload(house, lambda text: text + more)
    reload(house, lambda _: good)
    (number,) = house.submit({"command": ["true"], "pool": "extra"})
    house.until(lambda: "extra" in waiting(house, number), 20, "it is told that there is no such pool")
    reload(house, lambda text: text + more)
    assert house.until_ended(number)["state"] == "succeeded"


def test_a_profile_is_not_moved_away_from_its_vms(house: House, tmp_path: Path) -> None:
    """Neither by a reload nor by a start, which says why: its task goes on where it is. One without VMs may move."""
    go, good = tmp_path / "go", house.config.read_text()
    house.beside.append(tmp_path / "elsewhere")
    (held,) = house.submit({"command": ["sh", "-c", WAITS.format(go=go)]})
    house.until(lambda: b"begin" in house.logs(held), 30, "it runs")

    def moved(text: str) -> str:
        return text.replace('driver = "local"', f'driver = "local"\nroot = "{tmp_path / "elsewhere"}"')

    action, detail = reload(house, moved)
    assert action == "configuration.refused"
    assert "profiles.local.root: profile local has VMs" in detail

    house.kill(signal.SIGTERM)
    again = house.spawn()
    assert again.wait(30) == 4
    assert "profiles.local.root: profile local has VMs" in house.log_tail()
    house.config.write_text(good)
    house.up()
    go.write_text("")
    assert (house.until_ended(held)["state"], house.task(held)["attempts"]) == ("succeeded", 1)
    (one,) = house.instances()
    house.post(f"/v1/instances/{one['id']}/kill", {"reason": "the test is done with it"})
    house.until(lambda: not house.instances(), 30, "its VM is gone")
    assert reload(house, moved)[0] == "configuration.reloaded"
    (more,) = house.submit({"command": ["true"]})
    assert house.until_ended(more)["state"] == "succeeded"
    assert list((tmp_path / "elsewhere" / "vms").iterdir())
    house.post("/v1/shutdown", {"terminate": True, "grace_ms": 1000})
