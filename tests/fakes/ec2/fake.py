"""A fake EC2 that listens, in a thread of the test's own process."""

from __future__ import annotations

from functools import cache
from types import TracebackType
from typing import Any

from tests.fakes.clock import Clock
from tests.fakes.control import PATH, answered
from tests.fakes.ec2.cloud import Cloud
from tests.fakes.ec2.commands import commands
from tests.fakes.ec2.gateway import Gateway
from tests.fakes.ec2.settings import KEY, REGION, Settings
from tests.fakes.server import Reply, Request, Server


@cache
def _session() -> Any:
    """One for all tests: it keeps the models that it has read, which takes a second each."""
    import boto3

    return boto3.session.Session()


class FakeEc2(Cloud):
    """`with FakeEc2() as aws: aws.client("ec2")...`; leaving fails on what the fake has not, and on its bugs."""

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None, *, port: int = 0) -> None:
        super().__init__(settings, clock)
        self._commands, self._gateway = commands(self), Gateway(self)
        self._server = Server(self._receive, port=port, tick=self.tick)

    @property
    def url(self) -> str:
        """For `endpoint_url` of every service."""
        return self._server.url

    def start(self) -> FakeEc2:
        """Listen."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Hang up and end the thread."""
        self._server.stop()

    def _receive(self, request: Request) -> Reply:
        return answered(request, self._commands) if request.target == PATH else self._gateway.handle(request)

    def check(self) -> None:
        """Fail where a request asked for what the fake has not, or met a bug of it."""
        wrong = [*(f"not modelled: {what}" for what in self.unmodelled), *(f"bug: {bug}" for bug in self.bugs)]
        if wrong:
            raise AssertionError("; ".join(wrong))

    def client(self, service: str = "ec2", *, region: str = REGION, **more: Any) -> Any:
        """A boto3 client that is told nothing of retries but to make none."""
        from botocore.config import Config

        config = Config(retries={"total_max_attempts": 1}, max_pool_connections=64).merge(more.pop("config", Config()))
        credentials = {"aws_access_key_id": KEY.id, "aws_secret_access_key": KEY.secret}
        return _session().client(
            service, region_name=region, endpoint_url=self.url, config=config, **{**credentials, **more}
        )  # fmt: skip

    def __enter__(self) -> FakeEc2:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.stop()
        if kind is None:
            self.check()
