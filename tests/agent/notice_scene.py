"""Run by `test_metadata` in a network of its own: a task tries to make its agent believe that the VM is taken back.

`python -m tests.agent.notice_scene JSON` with `folder`, `zipapp`, `users` and `rules` (the script that keeps tasks away
from the metadata service): says what the task got done, what its agent believed, and what it did about a real notice.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.agent.conftest import RunningAgent, quick_policy
from tests.agent.imds import INTERRUPTION, MetadataService
from tests.agent.metadata_scene import ADDRESS
from tests.agent.stub import StubDispatcher

#: Each line of it is a way to a notice that is none; what works is printed.
FAKES = f"""
import os, signal, socket, urllib.request
def stand_in(host):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind((host, 80))
def ask(method, path):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
    opener.open(urllib.request.Request("http://{ADDRESS}" + path, method=method, data=b"x"), timeout=2)
def write(path):
    open(path, "w").write("0")
agent = os.getppid()
for name, way in (
    ("stands in for it", lambda: stand_in("{ADDRESS}")),
    ("listens everywhere", lambda: stand_in("0.0.0.0")),
    ("gets a session", lambda: ask("PUT", "/latest/api/token")),
    ("puts a notice there", lambda: ask("PUT", "{INTERRUPTION}")),
    ("writes a notice", lambda: write("NOTICE")),
    ("writes a configuration", lambda: write("CONFIG")),
    ("signals the supervisor", lambda: os.kill(agent, signal.SIGTERM)),
):
    try:
        way()
        print(name)
    except OSError:
        pass
print("tried all")
"""


def main(folder: Path, zipapp: Path, rules: str, users: dict[str, str]) -> dict[str, object]:
    for words in ("link set lo up", f"addr add {ADDRESS}/32 dev lo"):
        subprocess.run(["ip", *words.split()], check=True)
    subprocess.run(["/bin/sh", rules], check=True, cwd=folder)
    with MetadataService(ADDRESS, 80) as service, StubDispatcher(quick_policy()) as stub:
        notice = folder / "agent" / "notice"
        agent = RunningAgent(folder, zipapp, stub.url, notice_file=str(notice), notices=service.sources(), **users)
        try:
            fakes = FAKES.replace("NOTICE", str(notice)).replace("CONFIG", str(agent.config))
            tried = stub.result(stub.submit("python3", "-c", fakes))
            said = stub.logs[tried.token].decode().split("\n")
            time.sleep(6)  # a round of questions
            believed = stub.syncs[-1].detail
            runs = stub.submit("sleep", "1000")
            stub.wait_started(runs)
            service.said[INTERRUPTION] = '{"action": "terminate"}'
            return {"said": said, "believed": believed, "cause": stub.result(runs).cause}
        finally:
            agent.stop()


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(main(Path(told["folder"]), Path(told["zipapp"]), told["rules"], told["users"])))
