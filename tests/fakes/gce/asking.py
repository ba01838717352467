"""Words that the tests of the fake Compute Engine share."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from tests.fakes.gce.fake import FakeGce
from tests.fakes.gce.settings import PROJECT, ZONE

IMAGE = "projects/debian-cloud/global/images/family/debian-12"


def body(name: str = "one", kind: str = "e2-medium", zone: str = ZONE, **more: Any) -> dict[str, Any]:
    """A request for a common VM."""
    return {
        "name": name,
        "machineType": f"zones/{zone}/machineTypes/{kind}",
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": IMAGE}}],
        "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]}],
        **more,
    }


SPOT = {"scheduling": {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}}


class Asker:
    """Asks over plain HTTP: for what the SDK would not send or would parse away."""

    def __init__(self, fake: FakeGce, project: str = PROJECT) -> None:
        self._fake, self._root = fake, f"{fake.url}/compute/v1/projects/{project}/"
        self.token = fake.tokens.new(fake.settings.caller, fake.timers.now)

    def __call__(self, verb: str, path: str, said: Any = None) -> tuple[int, Any]:
        """Status and document. `path` is below the project, or a whole one that begins with /."""
        url = f"{self._fake.url}{path}" if path.startswith("/") else (self._root + path).rstrip("/")
        data = json.dumps(said).encode() if said is not None else b"" if verb == "POST" else None
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=verb), timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def insert(self, name: str = "one", kind: str = "e2-medium", zone: str = ZONE, query: str = "", **more: Any) -> Any:
        """The operation of an insert that goes well."""
        status, answer = self("POST", f"zones/{zone}/instances{query}", body(name, kind, zone, **more))
        assert status == 200, answer
        return answer

    def refusal(self, verb: str, path: str, said: Any = None) -> tuple[int, str]:
        """Status and reason with which a request is refused."""
        status, answer = self(verb, path, said)
        assert status >= 400, answer
        return status, answer["error"]["errors"][0]["reason"]

    def names(self, path: str = f"zones/{ZONE}/instances") -> dict[str, str]:
        """Status by name, of all pages of a listing."""
        found: dict[str, str] = {}
        token = ""
        while True:
            status, page = self("GET", f"{path}{'&' if '?' in path else '?'}pageToken={token}")
            assert status == 200, page
            items = page.get("items", [])
            if isinstance(items, dict):
                items = [one for scope in items.values() for one in scope.get("instances", [])]
            found |= {one["name"]: one["status"] for one in items}
            token = page.get("nextPageToken", "")
            if not token:
                return found
