"""In whose name Google is asked, as keys come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.provider.errors import CredentialsRejected
from cloud_dispatch_gcp import prices
from cloud_dispatch_gcp.calls import Calls
from cloud_dispatch_gcp.errors import Asked
from tests.fakes.gce import FakeGce
from tests.fakes.google.oauth import key_of, pem_of
from tests.providers.gcp import scenes
from tests.providers.giving_up import Slow, given_up


@pytest.fixture
def calls(told: dict[str, Any]) -> Iterator[Calls]:
    made = Calls(scenes.settings(**told), "gcp")
    yield made
    made.close()


async def by_client(calls: Calls) -> Any:
    return await calls.once(Asked("projects.get"), "Projects", "get")


async def by_pages(calls: Calls) -> Any:
    return await calls.pages(Asked("zones.list"), "Zones", "list")


async def by_request(calls: Calls) -> Any:
    return await calls.rest(Asked("skus.list"), prices.HOST, prices.PATH)


@pytest.mark.parametrize("ask", [by_client, by_pages, by_request])
async def test_a_key_that_was_replaced_is_read(fake: FakeGce, calls: Calls, told: dict[str, Any], ask: Any) -> None:
    """Revoked, and a good one in its file: whoever asks next is heard, with no restart."""
    path = Path(told["credentials_file"])
    good = path.read_text()
    path.write_text(json.dumps({**fake.key, "private_key": pem_of(key_of("revoked"))}))
    refused = await asyncio.gather(*(ask(calls) for _ in range(4)), return_exceptions=True)
    assert {type(one) for one in refused} == {CredentialsRejected}
    path.write_text(good)
    assert await ask(calls)


async def test_a_key_that_is_revoked_meanwhile_is_read_anew(fake: FakeGce, calls: Calls, told: dict[str, Any]) -> None:
    """What asked with it before does not go on with it."""
    assert await by_client(calls)
    with fake.lock:
        fake.tokens.revoked.add(fake.settings.caller)
    with pytest.raises(CredentialsRejected):
        await by_client(calls)
    second = {**fake.key, "client_email": "second@fake-project.iam.gserviceaccount.com"}
    Path(told["credentials_file"]).write_text(json.dumps(second))
    assert await calls.who() == second["client_email"]


async def test_a_change_that_was_given_up_while_its_token_was_renewed_is_never_sent(
    fake: FakeGce, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slots may have been given back by then: proof of absence begins with the end of the call."""
    credentials, slow = calls._signed_by().credentials, Slow()
    sign = credentials.before_request

    def late(*given: Any) -> None:
        slow()
        sign(*given)

    monkeypatch.setattr(credentials, "before_request", late)
    asked = Asked("instances.delete", changes=True, vm=True)
    delete = calls.once(asked, "Instances", "delete_unary", zone="us-central1-a", instance="none")
    await given_up(delete, slow, calls._threads)
    assert set(fake.calls) == {"token"}
