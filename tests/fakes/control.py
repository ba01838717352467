"""The back door of a fake that runs as a process of its own: POST /_control with a JSON document, JSON comes back."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.fakes.server import Reply, Request

PATH = "/_control"
_ROOT = Path(__file__).parent.parent.parent
Command = Callable[[Mapping[str, Any]], Any]
#: What stands for the number in a request that is carried out many times.
NUMBER = "{number}"


def answered(request: Request, commands: Mapping[str, Command]) -> Reply:
    """Do what the document says: {"do": name of a command, ...}."""
    try:
        document = json.loads(request.body)
        result = commands[document.pop("do")](document)
    except Exception as error:
        body = json.dumps({"error": f"{type(error).__name__}: {error}"}).encode()
        return Reply(400, body, "application/json")
    return Reply(200, json.dumps(result).encode(), "application/json")


def filling(receive: Callable[[Request], Reply], token: Callable[[], str]) -> Command:
    """A command that carries out the same request `count` times, its number (from `first` on) where the target or the
    body says NUMBER: thousands of VMs without an SDK and a wire. One that is refused is an error."""

    def fill(document: Mapping[str, Any]) -> int:
        body, headers = json.dumps(document["body"]), {"authorization": f"Bearer {token()}"}
        for number in range(document.get("first", 0), document.get("first", 0) + document["count"]):
            target, said = (text.replace(NUMBER, str(number)) for text in (document["target"], body))
            reply = receive(Request(document["method"], target, headers, said.encode()))
            if reply.status >= 400:
                raise ValueError(f"number {number} was refused: {reply.body.decode()}")
        return int(document["count"])

    return fill


@dataclass(frozen=True, slots=True)
class Remote:
    """A fake in another process."""

    url: str
    pid: int = 0

    def do(self, command: str, **more: Any) -> Any:
        """Have it do something; a refusal raises."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=30)
        try:
            connection.request("POST", PATH, json.dumps({"do": command, **more}))
            answer = connection.getresponse()
            document = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(document["error"])
        return document


@contextmanager
def running(module: str, *arguments: str) -> Iterator[Remote]:
    """The fake of this module as a process, until the block is left."""
    command: Sequence[str] = (sys.executable, "-m", module, "--port", "0", *arguments)
    process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"{module} did not start")
        yield Remote(url, process.pid)
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()
