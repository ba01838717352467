"""The dispatcher's HTTP app without sockets. Owns how an exchange becomes a call of its routes; they are the real ones.

A sync goes to the route that the real server's short way uses, everything else through ASGI.
"""

from __future__ import annotations

import asyncio
from typing import Any

from cloud_dispatch.api.app import Api
from cloud_dispatch.api.http import ClientGone, describe_failure
from cloud_dispatch.simulation.network import Exchange
from cloud_dispatch.wire.messages import SYNC_PATH


async def answer(app: Api, exchange: Exchange) -> None:
    """Answer `exchange`; nothing is said to a client that has gone."""
    if exchange.path != SYNC_PATH:
        status, body = await _over_asgi(app, exchange)
    else:
        try:
            body = await app.worker.sync_answer(exchange.authorization, exchange.body, exchange.departure)
            status = 200
        except ClientGone:
            return
        except Exception as error:
            status, body, _ = describe_failure(error, exchange.path)
    exchange.respond(status, body)


async def _over_asgi(app: Api, exchange: Exchange) -> tuple[int, bytes]:
    scope = {
        "type": "http",
        "method": exchange.method,
        "path": exchange.path,
        "query_string": exchange.query.encode(),
        "headers": [(b"authorization", exchange.authorization)],
        "client": (exchange.vm.id, 0),
    }
    sent: list[Any] = []
    unread = [exchange.body]

    async def receive() -> dict[str, Any]:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        gone = asyncio.Event()
        exchange.departure(gone.set)
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    if not sent:
        return 499, b""  # the route found that the client has gone
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])
