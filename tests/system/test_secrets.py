"""Secrets stay where they belong: a marker is planted in every place where one can be, work is done, commands are
typed, what can go wrong goes wrong, and everything that was said, stored and shown is searched for each of them.

The pool's name is the canary: it is no secret, and the search must find it in every place in which it looks.
"""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import stat
import subprocess
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from cloud_dispatch.cli.main import program
from tests.system.house import CONFIG, House
from tests.system.secrecy import Home, Leak, Lookout, environment, files_below, forms, keys_of, leaks, typed

#: One run serves all tests: they stay together, and it may take its time.
pytestmark = [pytest.mark.xdist_group("secrets"), pytest.mark.timeout(300)]

CANARY = "canary-7Qz9pXw2"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
#: Every character that base64, URLs or JSON write otherwise, as far as the secret's own place allows it.
CLOUD = {
    "AWS_SECRET_ACCESS_KEY": "aws/Marker+4kQ9=x&y\"z",
    "AWS_SESSION_TOKEN": "session/Marker+77Lm=",
    "AZURE_CLIENT_SECRET": "azure~Marker/8Gh+3",
    "ARM_CLIENT_SECRET": "arm~Marker/51Kj+9",
    "PGPASSWORD": "pgpass Marker/6Tt:1",
    "HTTPS_PROXY": "http://bob:proxyMarker9Wd2@127.0.0.1:9",
}  # fmt: skip
GOOGLE = "google/Marker+2Vb5QqRr7Uu/Xx=="
FIXED = {
    "operator's token": "operatorMarker_5Rk-2LpQ8vTz",
    "service key": "serviceMarker_8Jd-6NwC1yHs",
    "join key": "joinMarker_3Fg-9BmX4uEk",
}
STORE, STORE_OPTION = "store:Marker-4Zx!7", "storeOption-Marker9Rq"
ADVERTISED, PROXY, DRIVER = "advertised-Marker3Kk", "poolProxy-Marker6Hh", "driverKey-Marker2Ww"
CLIENT = "client-Marker5Pp"
CONFIGURED = {
    "store's password": STORE, "store's option": STORE_OPTION, "advertised": ADVERTISED, "pool's proxy": PROXY,
    "driver's key": DRIVER, "client's URL": CLIENT,
}  # fmt: skip
#: What holds a secret because it is where the secret lives, or because somebody has to be told.
HOMES = (
    Home("operator's token", r"state:operator\.token", "commands on the control VM read it"),
    Home("service key", r"state:keys/service\.key", "keys live beside the database"),
    Home("join key", r"state:keys/join\.key", "keys live beside the database"),
    Home(r"TLS key \d+", r"state:tls/server\.key", "the key that the dispatcher was given, or made"),
    Home(r"CA key \d+", r"state:tls/ca\.key", "the key of the CA that it made"),
    Home(r".*join token \d+", r"(talkative )?vm:user-data|state:providers/.*/user-data", "it is what user data is for"),
    Home(r".*join token \d+", r"talkative vm:(.*/)?(console|boot)\.log", "the operator's own script has printed it"),
    Home(
        "signature of a transfer", r"state:store\.sqlite(-wal)?|backup|dump", "where a task's input is, its user says"
    ),
    Home(
        r".*(join token|proof) \d+",
        r"(talkative )?(vm|state):(.*/)?disk/.*agent\.json(\.new)?",
        "the agent's own configuration",
    ),
    Home(r".*proof \d+", r"(talkative )?vm:identity|state:providers/.*/identity", "where the VM gets it"),
    Home(
        r"task token \d+",
        r"log of the task|`logs`|answers of GET /v1/tasks/{task}/logs|(vm|state):.*\.log",
        "the task itself has printed it",
    ),
    Home(
        r".*service token \d+", r"(talkative )?(vm|state):(.*/)?disk/.*identity\.json(\.part)?", "the agent's own state"
    ),
)
#: One of each kind of place, through which the canary goes.
CARRY_THE_CANARY = {
    "ps", "environments of VMs", "vm:user-data", "vm:console.log", "vm:disk/cloud-dispatch/boot.log", "backup", "dump",
    "state:store.sqlite", "inflated", "dispatcher's log", "log of the task", "events", "events of a failed boot",
    "`explain` of a failed boot", "`cloud-init render`", "`instances`", "`config show`", "`tasks`",
    "answers of GET /v1/pools", "answers of GET /v1/tasks", "answers of GET /v1/instances", "bad configuration",
    "talkative vm:console.log",
}  # fmt: skip
#: How places begin that are files of VMs and of the dispatcher.
FILES = ("vm:", "talkative vm:", "state:")
#: What is not typed, and why.
UNTYPED = {
    "up": "it runs",
    "demo": "makes a deployment of its own",
    "simulate": "has no deployment",
    "token new": "would put another token in the marker's place; tests/cli looks at what it says",
}
BAD = f"""
[dispatcher]
advertise = "https://bob:{ADVERTISED}@h"
[store]
url = "mysql://bob:{STORE}@127.0.0.1/x?sslpassword={STORE_OPTION}"
[profiles.local]
driver = "local"
max_vms = {{ password = "{DRIVER}" }}
[pools.{CANARY}]
profiles = ["local"]
boot.proxy.https = "http://bob:{PROXY}@10.0.0.8:3128"
"""
POSTGRES = f"""
[dispatcher]
state_dir = "state-pg"
deployment = "{CANARY}"
[store]
url = "postgresql://bob:{STORE}@127.0.0.1:1/x?sslpassword={STORE_OPTION}&connect_timeout=2"
"""


class Evidence:
    """One deployment with a secret wherever one can be, and all that it left behind."""

    def __init__(self, folder: Path) -> None:
        pool = '\nboot.scripts = ["own.sh"]\nhealth_checks = []'
        text = (
            CONFIG.replace("tls = false\n", "")
            .replace("[pools.default", f"[pools.{CANARY}")
            .replace("{pool}", "{pool}" + pool)
        )
        self.house = House(folder, config=text, idle="2s")
        self.house.url = self.house.url.replace("http:", "https:")
        self.house.trust = self.house.state / "tls" / "ca.pem"
        self.folder, self.state = folder, self.house.state
        self.places: dict[str, bytes] = {}
        self.secrets = {**FIXED, **CONFIGURED, **CLOUD, "google": GOOGLE}
        self.secrets["HTTPS_PROXY"] = "proxyMarker9Wd2"
        self._http: httpx.Client | None = None
        self._lasting = 0
        self._plant()

    def _plant(self) -> None:
        keys = self.state / "keys"
        keys.mkdir(mode=0o700, parents=True)
        homes = (self.state / "operator.token", keys / "service.key", keys / "join.key")
        for path, secret in zip(homes, FIXED.values(), strict=True):
            path.touch(mode=0o600)
            path.write_text(secret + "\n")
        (self.folder / "google.json").write_text(json.dumps({"private_key": GOOGLE, "client_email": "bob"}))
        # It says what it sees; where a file says so, all that it can read, and fails.
        talkative = f"[ ! -e {self.folder}/fail ] || {{ cat agent.json; echo {CANARY}; exit 42; }}"
        (self.folder / "own.sh").write_text(f"#!/bin/sh\necho {CANARY}\nenv\n{talkative}\n")
        (self.folder / "bad.toml").write_text(BAD)
        (self.folder / "pg.toml").write_text(POSTGRES)
        (self.folder / "crash.toml").write_text(f'[dispatcher]\nstate_dir = "own.sh"\ndeployment = "{CANARY}"\n')

    @property
    def cloud(self) -> dict[str, str]:
        file = str(self.folder / "google.json")
        return {**CLOUD, "GOOGLE_APPLICATION_CREDENTIALS": file, "NO_PROXY": "127.0.0.1"}

    def collect(self) -> None:
        """Everything happens here."""
        with environment(self.cloud):
            self.house.up()
            assert self.house.process is not None
            for name, file in (("TLS", "server.key"), ("CA", "ca.key")):
                lines = keys_of((self.state / "tls" / file).read_text())
                self.secrets |= {f"{name} key {i}": line for i, line in enumerate(lines)}
            with Lookout(self.state, self.house.process.pid) as lookout:
                task = self._work()
                self._refused(lookout)
                self._routes(task)
                self._commands(task)
                self.house.post("/v1/tasks/cancel", {"ids": [self._lasting]})
                self.house.until(lambda: not self.house.instances(), 30, "the first VMs are gone")
            with Lookout(self.state, self.house.process.pid) as talkative:
                self._failing_boot()
                self._crash(task)
                self._bad_configurations()
                self.house.kill(15)
        self.modes = {**talkative.modes, **lookout.modes}
        for prefix, looked in (("", lookout), ("talkative ", talkative)):
            self.secrets |= {f"{prefix}{name}": token for name, token in looked.tokens().items()}
            self.places |= {f"{prefix}{name}": body for name, body in looked.places().items()}
        self._left_behind()

    def _work(self) -> int:
        """Tasks that succeed, fail, log and have outputs, and one whose URLs are signed."""
        url = "http://bob:taskMarker-8Ee4@127.0.0.1:1/x?X-Amz-Signature=taskMarker-8Ee4"
        ids = self.house.submit(
            {"command": ["sh", "-c", f"echo {CANARY}; env; cat /proc/self/environ; echo {CANARY} >out; sleep 1"],
             "outputs": ["out"], "name": CANARY, "env": {"NAME": CANARY}},
            {"command": ["sh", "-c", f"echo {CANARY} >&2; exit 3"], "max_attempts": 1},
            {"command": ["true"], "inputs": [{"path": "in", "url": url}], "max_attempts": 1},
            # until all was asked an instance is there to be told of, however slow the machine
            {"command": ["sleep", "300"]},
        )  # fmt: skip
        self._lasting = ids.pop()
        for number in ids:
            self.house.until_ended(number)
        self.places["log of the task"] = self.house.logs(ids[0]) + self.house.logs(ids[1])
        self.places["detail of a failed transfer"] = str(self.house.task(ids[2])["detail"]).encode()
        self.secrets["signature of a transfer"] = "taskMarker-8Ee4"
        return ids[0]

    def _refused(self, lookout: Lookout) -> None:
        """Registrations that are not admitted, by a token that is good, one that is forged and one that is no token."""
        join, proof = (
            next(secret for name, secret in lookout.tokens().items() if name.startswith(kind))
            for kind in ("join", "proof")
        )
        vm = {"vm": f"{CANARY}-vm", "incarnation": "stolen", "proof": proof}
        answers = b""
        for token in (join, join[:-2] + "xx", self.house.token, "cdj1." + CANARY):
            for path in ("/v1/agent/register", "/v1/boot"):
                body = vm if path.endswith("register") else {"vm": vm["vm"], "phase": "x", "failed": True, "log": "x"}
                reply = self._ask("POST", path, token, json=body)
                assert reply.status_code in (401, 403, 404, 409), reply.text
                answers += reply.content
        self.places["refused registrations"] = answers

    def _ask(self, method: str, path: str, token: str, **more: Any) -> httpx.Response:
        if self._http is None:
            self._http = httpx.Client(base_url=self.house.url, verify=self.house.verify, timeout=60, trust_env=False)
        return self._http.request(method, path, headers={"Authorization": f"Bearer {token}".strip()}, **more)

    def _routes(self, task: int) -> None:
        """Every route, with no token, wrong ones, the right one, and nonsense as its body."""
        instance = self.house.instances(past=True)[0]["id"]
        for method, template in routes():
            path = template.replace("{path:path}", "{path}").format_map(
                {"task": task, "instance": instance, "pool": CANARY, "verb": "hold", "path": "out", "plan": 1}
            )
            if path == "/v1/shutdown":
                continue  # it is stopped by a signal, below
            answers = []
            for token in ("", "x" * 40, self.house.token[:-1], FIXED["join key"], self.house.token):
                for body in (b"", b"{", json.dumps({"tasks": [{"command": token}], "x": token}).encode()):
                    if token == self.house.token and body == b"" and method != "GET":
                        continue  # an empty body may be a command
                    if token and "logs" in path and method == "GET" and body:
                        continue
                    answers.append(self._ask(method, path, token, content=body).content)
            if path != "/v1/agent.pyz":
                self.places[f"answers of {method} {template}"] = b"\n".join(answers)
        for path in ("/v1/metrics", "/v1/events", f"/v1/instances/{instance}/explain", f"/v1/tasks/{task}/explain"):
            self.places[f"GET {path}"] = self.house.ask("GET", path, params={}).content

    def _commands(self, task: int) -> None:
        """Every command, in words and as JSON, with and without what it needs."""
        instance = self.house.instances(past=True)[0]["id"]
        arguments = {
            "run": ["true"], "submit": [CANARY], "task": [str(task)], "cancel": ["99"], "priority": [str(task), "1"],
            "logs": [str(task)], "hold": [instance], "drain": [instance], "resume": [instance], "kill": [instance],
            "explain": [instance], "target": [CANARY, "0"], "backup": [str(self.folder / "backup.sqlite")],
            "restore": [str(self.folder / "backup.sqlite")], "adopt": ["--store", CANARY], "cost": ["--by", "pool"],
            "reap": ["--deployment", CANARY], "instances": ["--past"], "config show": ["--effective"],
            "stop": ["--launches", "--reason", CANARY], "cloud-init render": ["--pool", CANARY],
            "install": ["--print"],  # without it this machine would be a control VM
            "budget show": [f"pool:{CANARY}"], "budget set": ["all", "day", "5"], "breakers reset": ["--all"],
            "outputs": [str(task), "--overwrite", "--into", str(self.folder / "brought")], "replay": ["1"],
        }  # fmt: skip
        for words in commands():
            if words in UNTYPED:
                continue
            line, more = [*words.split(), "--config", str(self.house.config)], arguments.get(words, [])
            said = typed([*line, *more]) + typed([*line, "--json", *more]) + typed([*words.split(), "--config", "/no"])
            self.places[f"`{words}`"] = said
        assert b"nothing" in typed(["stop", "--off", "--config", str(self.house.config), "--json"])
        self.places["events"] = self.house.ask("GET", "/v1/events").content
        explained = typed(["explain", str(task), "--json", "--config", str(self.house.config)])
        self.places["`explain` of a task"] = explained
        elsewhere = {"CLOUD_DISPATCH_URL": f"https://bob:{CLIENT}@h/{CANARY}"}
        with environment({**elsewhere, "CLOUD_DISPATCH_TOKEN": "x"}):
            self.places["a client's bad URL"] = typed(["tasks"])

    def _failing_boot(self) -> None:
        """A VM whose boot says all that it knows, and fails."""
        (self.folder / "fail").touch()
        typed(["budget", "reconcile", "--yes", "--config", str(self.house.config)])  # `adopt` was typed
        self.house.submit({"command": ["true"]})

        def failed() -> list[Any]:
            return [row for row in self.house.instances(past=True) if row["cause"] == "boot-failed"]

        (row, *_) = self.house.until(failed, 30, "a boot has failed")
        assert "exit code 42" in row["reason"]
        path = f"/v1/events?instance={row['id']}"
        self.house.until(lambda: b"boot-log" in self.house.ask("GET", path).content, 10, "its log is an event")
        self.places["events of a failed boot"] = self.house.ask("GET", path).content
        self.places["`explain` of a failed boot"] = typed(["explain", row["id"], "--config", str(self.house.config)])

    def _crash(self, task: int) -> None:
        """An error that nobody foresaw, with its traceback in the log: a socket where a log should be."""
        log = next(path for path in (self.state / "logs").glob(f"*/{task}.*.log"))
        log.unlink()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(log))
        reply = self.house.ask("GET", f"/v1/tasks/{task}/logs")
        assert reply.status_code == 500
        log.unlink()
        assert "Traceback" in self.house.log.read_text()
        self.places["an internal error"] = reply.content

    def _bad_configurations(self) -> None:
        """Commands with a configuration that is wrong beside its secrets, or whose database does not answer."""
        for name in ("bad", "pg", "crash"):
            said = b""
            for words in ("config check", "config show", "db check", "backup x"):
                line = [*words.split(), "--config", str(self.folder / f"{name}.toml")]
                said += typed(line) + (typed([*line, "--json"]))
            up = [*self.house.command("up")[:-1], str(self.folder / f"{name}.toml")]
            with environment({"CLOUD_DISPATCH_DEBUG": "1"}):
                done = subprocess.run(up, capture_output=True, timeout=60, check=False)
            assert done.returncode
            self.places[f"{name} configuration"] = said + done.stdout + done.stderr
        assert b"Traceback" in self.places["crash configuration"]
        assert b"got a table" in self.places["bad configuration"]
        assert b"127.0.0.1:1" in self.places["pg configuration"]

    def _left_behind(self) -> None:
        self.places["dispatcher's log"] = self.house.log.read_bytes()
        self.places["backup"] = (self.folder / "backup.sqlite").read_bytes()
        with sqlite3.connect(self.folder / "backup.sqlite") as copy:
            self.places["dump"] = "\n".join(copy.iterdump()).encode()
            packed = copy.execute("SELECT snapshot FROM plans").fetchall()
            self.places["inflated"] = b"\n".join(zlib.decompress(snapshot) for (snapshot,) in packed)
        copy.close()
        self.places |= {f"state:{name}": body for name, body in files_below(self.state).items()}

    def strays(self) -> list[Leak]:
        """Secrets that are not at home."""
        return [leak for leak in leaks(self.places, self.secrets) if not any(home.of(leak) for home in HOMES)]


def empty(places: Mapping[str, bytes]) -> list[str]:
    """The places, besides files, of which there is nothing to be searched."""
    return [place for place, body in places.items() if not place.startswith(FILES) and not body.strip()]


def routes() -> list[tuple[str, str]]:
    """Method and path of every route, as the reference lists them."""
    operator = re.findall(r"^### `([A-Z]+) (/v1/[^`]+)`", (REFERENCE / "rest-api.md").read_text(), re.MULTILINE)
    worker = re.findall(r"^\| `([A-Z]+) (/v1/[^?`]+)", (REFERENCE / "worker-protocol.md").read_text(), re.MULTILINE)
    return operator + worker


def commands() -> Iterator[str]:
    """Every command, by its words."""

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[str]:
        inner: Mapping[str, Any] = getattr(command, "commands", {})
        if not inner:
            yield " ".join(words)
        for name, one in inner.items():
            yield from walk(one, (*words, name))

    return walk(program(), ())


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    made = Evidence(tmp_path_factory.mktemp("secrets"))
    try:
        made.collect()
        yield made
    finally:
        if made._http is not None:
            made._http.close()
        made.house.clean_up()


def test_no_secret_is_anywhere_but_at_home(evidence: Evidence) -> None:
    """Logs, `ps`, user data, consoles, the database and its copies, error messages, every answer and every output."""
    assert evidence.strays() == []


def test_the_search_finds_what_is_in_each_place(evidence: Evidence) -> None:
    """The pool's name went through all of them: where it is not found, nothing was searched, or nothing collected."""
    found = {leak.place for leak in leaks(evidence.places, {"canary": CANARY})}
    assert CARRY_THE_CANARY - found == set()
    assert empty(evidence.places) == []


def test_a_place_where_nothing_was_collected_is_told(evidence: Evidence) -> None:
    """Each of them that is no file of somebody's: those may be empty."""
    collected = [place for place in evidence.places if not place.startswith(FILES)]
    assert len(collected) > 40
    for place in collected:
        assert empty({**evidence.places, place: b" \n"}) == [place]


def test_a_secret_that_is_at_home_is_found_there_and_closed_to_others(evidence: Evidence) -> None:
    """No exception is for a place where the secret is not, and what holds one has mode 0600."""
    found = leaks(evidence.places, evidence.secrets)
    assert [home for home in HOMES if not any(home.of(leak) for leak in found)] == []
    homes = {leak.place.removeprefix("state:") for leak in found if leak.place.startswith("state:")}
    for name in homes:
        assert stat.S_IMODE((evidence.state / name).stat().st_mode) == 0o600, name
    for name in {leak.place.removeprefix("vm:") for leak in found if leak.place.startswith("vm:")}:
        assert evidence.modes[name] == {0o600}, name


def test_every_route_and_command_was_tried(evidence: Evidence) -> None:
    """The reference and the program name them; what is left out says why."""
    tried = set(evidence.places)
    assert {words for words in commands() if f"`{words}`" not in tried} == set(UNTYPED)
    unanswered = {route for route in map(" ".join, routes()) if f"answers of {route}" not in tried}
    assert unanswered == {"POST /v1/shutdown", "GET /v1/agent.pyz"}


@pytest.mark.parametrize("form", ["clear", "base64", "hex", "URL", "JSON"])
@pytest.mark.parametrize("secret", ['aws/Marker+4kQ9=x&y"z', "operatorMarker_5Rk-2LpQ8vTz", "pgpass Marker/6Tt:1"])
def test_a_planted_leak_is_found_in_every_form_and_place(evidence: Evidence, secret: str, form: str) -> None:
    """At the end of any place, between other bytes: the judge names the place, the secret and a form."""
    for text in forms(secret)[form]:
        for place in evidence.places:
            planted = {place: evidence.places[place][-4096:] + b"\0" + text + b"\n"}
            assert [(leak.place, leak.secret) for leak in leaks(planted, {"it": secret})] == [(place, "it")]
