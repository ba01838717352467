"""Run by `test_metadata` in a network of its own, where a metadata service answers at its real address.

`python -m tests.agent.metadata_scene JSON` with `folder`, `zipapp`, `users` and `rules` (a script that keeps tasks away
from it, or ""): says what a task and the agent's user get of it, as JSON.
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
ASK = (
    "import urllib.request as r, urllib.error as e\n"
    "opener = r.build_opener(r.ProxyHandler({}))\n"
    "try:\n"
    f"    print(opener.open('http://{ADDRESS}/latest/meta-data', timeout=3).read().decode())\n"
    "except e.URLError as error:\n"
    "    print('none:', error.reason)\n"
)


class Metadata(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"credentials of the VM"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def main(folder: Path, zipapp: Path, rules: str, users: dict[str, str]) -> dict[str, str]:
    for words in ("link set lo up", f"addr add {ADDRESS}/32 dev lo"):
        subprocess.run(["ip", *words.split()], check=True)
    server = ThreadingHTTPServer((ADDRESS, 80), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if rules:
        subprocess.run(["/bin/sh", rules], check=True, cwd=folder)
    with StubDispatcher(quick_policy()) as stub:
        agent = RunningAgent(folder, zipapp, stub.url, **users)
        try:
            task = stub.submit("python3", "-c", ASK)
            stub.result(task)
            said = stub.logs[1].decode().strip()
        finally:
            agent.stop()
    own = subprocess.run(
        [python_for_all(), "-c", ASK], user=int(users["agent_user"]), capture_output=True, text=True, check=False
    )
    return {"task": said, "agent": own.stdout.strip()}


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(main(Path(told["folder"]), Path(told["zipapp"]), told["rules"], told["users"])))
