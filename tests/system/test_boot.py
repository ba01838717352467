"""Boots of real VMs of the local provider: an operator's scripts run first, and a boot that fails says so at once."""

from __future__ import annotations

import subprocess
import time
from typing import Any


def test_an_operators_script_runs_before_any_task(make_house: Any) -> None:
    """What it made is there for the task."""
    house = make_house(pool='boot.scripts = ["own.sh"]\nboot.cloud_config = ["own.yaml"]')
    (house.folder / "own.sh").write_text(f"#!/bin/sh\necho made >{house.folder}/made\n")
    (house.folder / "own.yaml").write_text("#cloud-config\nwrite_files: [{path: own-file, content: x}]\n")
    house.up()
    (task,) = house.submit({"command": ["cat", f"{house.folder}/made"]})
    house.until_all_ended(1, within=60)
    assert house.get(f"/v1/tasks/{task}")["state"] == "succeeded"
    house.until_no_instance()


def test_scripts_that_user_data_has_no_room_for_are_fetched(make_house: Any) -> None:
    """Together they are larger than what the provider takes; both have run, in their order."""
    house = make_house(pool='boot.scripts = ["large.sh", "small.sh"]')
    padding = "".join(f"# {number} of many lines\n" for number in range(2_000))
    (house.folder / "large.sh").write_text(f"#!/bin/sh\n{padding}echo large >{house.folder}/made\n")
    (house.folder / "small.sh").write_text(f"#!/bin/sh\necho small >>{house.folder}/made\n")
    house.up()
    house.submit({"command": ["true"]})
    house.until_all_ended(1, within=60)
    assert (house.folder / "made").read_text() == "large\nsmall\n"
    house.until_no_instance()


def test_a_boot_that_fails_is_known_at_once_and_in_its_own_words(make_house: Any) -> None:
    """Cause, phase, exit code and log reach the operator long before the boot deadline; the VM is gone."""
    house = make_house(pool='boot.scripts = ["own.sh"]')
    (house.folder / "own.sh").write_text("#!/bin/sh\necho looking for the licence >&2\nsleep 2\nexit 42\n")
    house.up()
    began = time.monotonic()
    house.submit({"command": ["true"]})
    (gone, *_) = house.until(
        lambda: [row for row in house.get("/v1/instances?past=1")["instances"] if row["cause"] == "boot-failed"],
        15,
        "its boot has failed",
    )
    assert time.monotonic() - began < 15  # the boot deadline is 20 s
    assert gone["reason"].startswith("boot phase snippets failed (exit code 42): ")

    def told() -> dict[str, str]:
        return {e["action"]: e["detail"] for e in house.get(f"/v1/events?instance={gone['id']}")["events"]}

    events = house.until(lambda: "instance.boot-log" in (now := told()) and now, 5, "the next pass has kept the log")
    assert events["instance.boot"] == "phase snippets"
    assert "looking for the licence\ncloud-dispatch: snippet snippets/01-own.sh failed" in events["instance.boot-log"]
    done = subprocess.run(house.command("explain", gone["id"]), capture_output=True, text=True, timeout=60, check=False)
    assert "exit code 42" in done.stdout
