"""Bounds: logs without end, a full disk, a second dispatcher, a crowd of clients, bad input."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.crowd import CONFIG as CROWD
from tests.system.crowd import Worker, seats_house
from tests.system.house import CONFIG, House


def test_a_gibibyte_of_logs_neither_blocks_nor_fills(house: House) -> None:
    """The head and the tail are kept within the limit, a line says what was dropped, the task succeeds."""
    command = "echo first; dd if=/dev/zero bs=1M count=1024 2>/dev/null | tr '\\0' 'x'; echo; echo last"
    (number,) = house.submit({"command": command})
    assert house.until_ended(number, within=110)["state"] == "succeeded"
    kept = sum(f.stat().st_size for f in (house.state / "logs").rglob("*.log"))
    assert kept <= 17 * 2**20
    log = b""
    while True:
        piece = house.ask("GET", f"/v1/tasks/{number}/logs", params={"offset": len(log)})
        if not piece.content:
            break
        log += piece.content
    assert log.startswith(b"first\n")
    assert log.endswith(b"last\n")
    assert b"dropped" in log


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder]).returncode:
        pytest.skip("a small file system can't be mounted here: needs root and CAP_SYS_ADMIN")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def moved(house: House, disk: Path, reserve: str) -> House:
    """`house` with its state on `disk`, of which `reserve` is the statestore's."""
    house.state = disk / "state"
    config = CONFIG.format(
        deployment=f"t{os.getpid()}x{house.port}", state=house.state, port=house.port, cap=1, idle="3s", lease="30s",
        pool="",
    )  # fmt: skip
    house.config.write_text(f'{config}\n[limits]\ndisk_reserve = "{reserve}"\n')
    house.up()
    return house


def test_what_tasks_print_leaves_the_statestore_its_room(make_house: Any, small_disk: Path) -> None:
    """With less free than is the statestore's, logs are lost and nothing else: tasks are taken, run and succeed, and
    `health` says what is short until there is room again."""
    house = moved(make_house(), small_disk, "12MiB")
    assert house.ask("GET", "/v1/health").json()["problems"] == []
    ballast = small_disk / "ballast"
    disk = os.statvfs(small_disk)
    ballast.write_bytes(bytes(disk.f_bavail * disk.f_frsize - 10 * 2**20))
    health = house.ask("GET", "/v1/health").json()
    assert (health["status"], len(health["problems"])) == ("degraded", 1)
    assert "less than 12MiB left" in health["problems"][0]
    lost = house.submit(*({"command": "head -c 900000 /dev/zero"} for _ in range(2)))
    assert [house.until_ended(number, within=110)["state"] for number in lost] == ["succeeded"] * 2
    assert not list((house.state / "logs").rglob("*.log"))
    ballast.unlink()
    assert house.ask("GET", "/v1/health").json()["problems"] == []
    (number,) = house.submit({"command": "echo here"})
    assert house.until_ended(number, within=30)["state"] == "succeeded"
    assert house.ask("GET", f"/v1/tasks/{number}/logs", params={"offset": 0}).content == b"here\n"


def test_a_full_disk_is_said_and_loses_nothing(make_house: Any, small_disk: Path) -> None:
    """Submissions are refused with the reason while it is full; what was accepted runs once there is room again."""
    house = moved(make_house(), small_disk, "0")
    before = house.submit(*({"command": ["sh", "-c", "sleep 0.2; echo ok"]} for _ in range(20)))
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as filling:
        try:
            while True:
                filling.write(b"x" * 65_536)
        except OSError:
            pass
    refused = None
    for _ in range(200):
        reply = house.ask(
            "POST", "/v1/tasks", json={"tasks": [{"command": ["true"], "env": {"BIG": "x" * 30_000}}] * 20}
        )
        if reply.status_code != 200:
            refused = reply
            break
        before += reply.json()["ids"]
    assert refused is not None
    assert refused.status_code == 507
    problem = refused.json()
    assert problem["code"] == "store-unavailable"
    assert "full" in problem["message"]
    assert problem["hint"]
    time.sleep(1)
    assert house.process is not None
    assert house.process.poll() is None, "a full disk must not end the dispatcher"
    ballast.unlink()
    assert house.until_all_ended(len(before), within=100) == {"succeeded": len(before)}
    house.until_no_instance()


def test_a_log_that_takes_nothing_is_said_and_stops_nothing(make_house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever disk it is on, from the first record on: tasks run, and instances end."""
    house = make_house(idle="1s")
    monkeypatch.setattr(house, "log_tail", lambda: "")  # what is read from there has no end
    house.log = Path("/dev/full")
    house.up()
    (task,) = house.submit({"command": ["true"]})
    assert house.until_ended(task)["state"] == "succeeded"
    assert "the log can't be written" in " ".join(house.get("/v1/health")["problems"])
    house.until_no_instance()


def test_a_second_dispatcher_on_the_same_store_refuses_and_names_the_first(house: House) -> None:
    """It ends at once, says whose the store is, and the first goes on."""
    assert house.process is not None
    second = subprocess.run(house.command("up"), capture_output=True, timeout=60, text=True)
    assert second.returncode == 4
    assert str(house.process.pid) in second.stderr
    assert "in use" in second.stderr
    assert "Traceback" not in second.stderr
    assert house.answers()


def test_twenty_clients_submit_while_workers_claim(make_house: Any) -> None:
    """50,000 tasks from 20 clients at once while agents claim and finish them: none lost, none doubled."""
    house: House = make_house(cap=4, idle="5m", config=CROWD)
    seats_house(house)
    house.up()
    house.until(lambda: len(list((house.folder / "seats").iterdir())) == 4, 30, "the seats are launched")
    clients, each, batch = 20, 2_500, 500
    ids: list[int] = []
    errors: list[BaseException] = []
    lock = threading.Lock()

    def client(name: int) -> None:
        try:
            for start in range(0, each, batch):
                got = house.submit(
                    *(
                        {"command": ["true"], "idempotency_key": f"{name}-{n}", "cpus": 0.001, "memory": "1MiB"}
                        for n in range(start, start + batch)
                    )
                )
                with lock:
                    ids.extend(got)
        except BaseException as error:
            errors.append(error)

    workers = [Worker(house, seat) for seat in sorted((house.folder / "seats").iterdir())]
    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in (*threads, *workers):
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    counts = house.until_all_ended(clients * each, within=100)
    for worker in workers:
        worker.stop()
    assert [e for worker in workers for e in worker.errors] == []
    assert counts == {"succeeded": 50_000}
    assert len(set(ids)) == 50_000
    done = [task for worker in workers for task in worker.done]
    assert sorted(done) == sorted(ids), "a task was handed out twice, or never"


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("\n".join(['{"command": ["true"]}'] * 16 + ['{"command": ["true"], "cpus": "many"}']), ":17"),
        ("\n".join(['{"command": ["true"]}'] * 3 + ["{nonsense"]), ":4"),
        ('{"command": ["true"], "cpus": -1}', ":1"),
        ('{"command": ["tr\\u0000ue"]}', ":1"),
        (json.dumps({"command": ["true"], "env": {"A": "x" * 10_000_000}}), ":1"),
        ('{"command": ["true"], "colour": "blue"}', "colour"),
    ],
    ids=["a late line", "no JSON", "negative", "NUL", "too large", "unknown"],
)
def test_bad_input_is_refused_whole_with_its_place(house: House, tmp_path: Path, content: str, place: str) -> None:
    """Exit code 2, one clear line, and nothing half-submitted."""
    file = tmp_path / "tasks.jsonl"
    file.write_text(content + "\n")
    done = subprocess.run(house.command("submit", "--file", str(file)), capture_output=True, timeout=60, text=True)
    assert done.returncode == 2, done
    assert place in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 2_000
    assert house.counts() == {}


def test_unicode_names_are_kept(house: House) -> None:
    """Names, arguments, environment and output in any script."""
    word = "Grüße-数据-🚀"
    (number,) = house.submit({"command": ["sh", "-c", 'echo "$1 $W"', "sh", word], "env": {"W": word}, "name": word})
    ended = house.until_ended(number)
    assert (ended["name"], ended["state"]) == (word, "succeeded")
    assert house.logs(number).decode() == f"{word} {word}\n"
