"""A stolen join token against real VMs over real HTTP: who has it before the VM itself can use it, and is quicker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx

from cloud_dispatch.wire.codec import encode
from cloud_dispatch.wire.messages import REGISTER_PATH, RegisterRequest
from tests.system.crowd import JOIN_TOKEN
from tests.system.house import CONFIG, House

#: From power-on to the boot: the thief's time.
HEAD_START = CONFIG.replace('boot_delay = "0.1s"', 'boot_delay = "12s"').replace(
    'boot_deadline = "20s"', 'boot_deadline = "60s"'
)


class Thief:
    """Somebody with what stands in the user data of a VM, and with what other VMs have to show."""

    def __init__(self, house: House, folder: Path) -> None:
        self._house = house
        token = JOIN_TOKEN.search((folder / "user-data").read_text())
        assert token is not None
        self._headers = {"Authorization": f"Bearer {token[0]}"}

    def register(self, vm: str, proof: str = "") -> httpx.Response:
        request = RegisterRequest(vm=vm, proof=proof, incarnation="thief")
        url, trust = self._house.url + REGISTER_PATH, self._house.verify
        return httpx.post(url, content=encode(request), headers=self._headers, timeout=30, verify=trust)


def forged(proof: str, vm: str) -> str:
    """What another VM signed, with this one's name in it."""
    body, _, signature = proof.partition(".")
    said = {**json.loads(bytes.fromhex(body)), "vm": vm}
    return f"{json.dumps(said, separators=(',', ':')).encode().hex()}.{signature}"


def test_a_thief_who_is_quicker_than_a_real_vm_gets_nothing(make_house: Any) -> None:
    """No proof, a made up one, another VM's, one with another name in it, that of a VM that is gone: refused, and told
    to the operator. Then the VMs come, and work."""
    house = make_house(config=HEAD_START, pool="min = 3", idle="60s")
    house.up()
    vms = house.state / "providers" / "local" / "vms"
    rows = house.until(lambda: found if len(found := house.instances()) == 3 else None, 20, "three VMs are launched")
    assert len({row["id"].rpartition("-")[0] for row in rows}) == 1, "the test is about VMs that share a join token"
    house.until(lambda: all((vms / row["id"] / "identity").exists() for row in rows), 20, "they are made")
    victim, other, gone = (row["id"] for row in rows)
    thief = Thief(house, vms / victim)
    proofs = {name: (vms / name / "identity").read_text() for name in (victim, other, gone)}

    house.post(f"/v1/instances/{gone}/kill", {"reason": "test"})
    house.until(lambda: gone not in [row["id"] for row in house.instances()], 10, "it is gone")
    tries = {
        "no proof": thief.register(victim),
        "made up": thief.register(victim, "signed, me"),
        "of another VM": thief.register(victim, proofs[other]),
        "another name": thief.register(victim, forged(proofs[other], victim)),
        "of one that is gone": thief.register(victim, proofs[gone]),
        "as the one that is gone": thief.register(gone, proofs[gone]),
        "as none of the batch": thief.register("b00000000000-0", proofs[other]),
    }
    assert {why: reply.status_code for why, reply in tries.items()} == dict.fromkeys(tries, 403)
    assert not any("token" in reply.json() for reply in tries.values())
    assert {row["state"] for row in house.instances() if row["id"] in (victim, other)} == {"booting"}, "too late"

    def served() -> bool:
        states = {row["id"]: row["state"] for row in house.instances()}
        return states.get(victim) == states.get(other) == "idle"

    house.until(served, 60, "the VMs have their places")
    assert thief.register(victim).status_code == thief.register(victim, proofs[victim]).status_code == 403
    refused = [event for event in house.get("/v1/events")["events"] if event["action"] == "registration.refused"]
    assert [event["instance"] for event in refused] == [victim]
    assert re.search("brought no proof of identity", refused[0]["detail"])
    house.submit({"command": ["true"]})
    assert house.until_all_ended(1) == {"succeeded": 1}
