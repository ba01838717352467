"""Run by `test_metadata` in a network of its own, where a metadata service answers at its real address, and what
Azure's hosts have besides at theirs.

`python -m tests.agent.metadata_scene JSON` with `folder`, `zipapp`, `users` and `rules` (a script that keeps tasks away
from them, or ""): says what a task, the agent's user and root get of each port, as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cloud_dispatch.agent.privileges import python_for_all
from tests.agent.conftest import RunningAgent, quick_policy
from tests.agent.stub import StubDispatcher

ADDRESS = "169.254.169.254"
#: Azure's: ports 80 and 32526 are the host's, 53 is the resolver of names.
WIRE_SERVER = "168.63.129.16"
PLACES = [(ADDRESS, 80), (WIRE_SERVER, 80), (WIRE_SERVER, 32526), (WIRE_SERVER, 53)]
ASK = f"""
import json, urllib.request as r, urllib.error as e
opener, said = r.build_opener(r.ProxyHandler({{}})), {{}}
for place in {[f"{address}:{port}" for address, port in PLACES]}:
    try:
        said[place] = opener.open("http://" + place + "/latest/meta-data", timeout=3).read().decode()
    except e.URLError:
        said[place] = "none"
print(json.dumps(said))
"""


class Metadata(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"credentials of the VM"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def main(folder: Path, zipapp: Path, rules: str, users: dict[str, str]) -> dict[str, dict[str, str]]:
    for words in ("link set lo up", f"addr add {ADDRESS}/32 dev lo", f"addr add {WIRE_SERVER}/32 dev lo"):
        subprocess.run(["ip", *words.split()], check=True)
    for place in PLACES:
        threading.Thread(target=ThreadingHTTPServer(place, Metadata).serve_forever, daemon=True).start()
    if rules:
        subprocess.run(["/bin/sh", rules], check=True, cwd=folder)
    with StubDispatcher(quick_policy()) as stub:
        agent = RunningAgent(folder, zipapp, stub.url, **users)
        try:
            task = stub.submit("python3", "-c", ASK)
            stub.result(task)
            said = stub.logs[1].decode()
        finally:
            agent.stop()
    return {"task": json.loads(said), "agent": got(int(users["agent_user"])), "root": got(0)}


def got(user: int) -> dict[str, str]:
    done = subprocess.run([python_for_all(), "-c", ASK], user=user, capture_output=True, text=True, check=True)
    said: dict[str, str] = json.loads(done.stdout)
    return said


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(main(Path(told["folder"]), Path(told["zipapp"]), told["rules"], told["users"])))
