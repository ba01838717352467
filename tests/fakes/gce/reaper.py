"""The function in a project that ends VMs past their `ends-at` label, as it is shipped, by the fake's clock. Stood in
for are who calls it, and the metadata service that gives it its token. It knows the labels alone."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.reapers import rounds
from cloud_dispatch.reapers.gcp import Api, Gce
from tests.fakes.gce.fake import FakeGce
from tests.fakes.gce.settings import PROJECT

TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"


class FunctionMetadata:
    """`with FunctionMetadata(fake) as host:` the metadata service of a function, as strict as Google's."""

    def __init__(self, fake: FakeGce, life_s: int = 3_600) -> None:
        said, self.asked = self, 0

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                good = self.headers["Metadata-Flavor"] == "Google" and self.path == TOKEN
                said.asked += good
                with fake.lock:
                    token = fake.tokens.new(fake.settings.caller, fake.timers.now)
                told = {"access_token": token, "expires_in": life_s, "token_type": "Bearer"}
                self.send_response(200 if good else 403)
                self.end_headers()
                self.wfile.write(json.dumps(told).encode() if good else b"")

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metadata", daemon=True)

    @property
    def host(self) -> str:
        """As `GCE_METADATA_HOST` names it."""
        return f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FunctionMetadata:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class ProjectReaper:
    """`with ProjectReaper(fake, 200):` it looks each 200 ms; without a period whenever `look` is called."""

    def __init__(self, fake: FakeGce, period_ms: int = 0, *, deployment: str) -> None:
        self._fake, self._period_ms, self._deployment = fake, period_ms, deployment
        self._gce = Gce(Api(fake.url, PROJECT, self._token), deployment)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="reaper", daemon=True)
        #: What it has ended, in that order, as drivers call VMs.
        self.ended: list[VmId] = []
        self.errors: list[Exception] = []

    def look(self) -> list[VmId]:
        """Once: end what is past its end, and say what that was."""
        found = rounds.look(self._gce, self._fake.clock.now(), self._deployment)
        if found.failed or found.problem:
            raise rounds.Unfinished(str(found))
        ended = [VmId(path.removeprefix("zones/").replace("/instances/", "/")) for path in found.ended]
        self.ended += [vm for vm in ended if vm not in self.ended]
        return ended

    def _token(self) -> str:
        with self._fake.lock:
            return self._fake.tokens.new(self._fake.settings.caller, self._fake.timers.now)

    def _live(self) -> None:
        while not self._over.wait(self._period_ms / 1000):
            try:
                self.look()
            except Exception as error:
                self.errors.append(error)  # the next look makes up for it

    def __enter__(self) -> ProjectReaper:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self._over.set()
        self._thread.join(10)
