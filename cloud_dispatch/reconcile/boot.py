"""Boots that failed. Owns what is kept of one (its console output, and that the same offering is not tried at once),
and how people hear of breakers."""

from __future__ import annotations

import asyncio
import re

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Instance, InstanceEvent
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.spend.breaker import Kind

CONSOLE_LINES = 100
CONSOLE_BYTES = 8_192
CONSOLE_TIMEOUT_S = 10
#: What of it is attached to a breaker's event.
TAIL_LINES = 20
TAIL_BYTES = 2_048
EVENTS_LOOKED_AT = 100
#: Our own tokens, and whatever is called one: a console may show what the VM was given to boot.
_SECRETS = re.compile(
    r"""\bcd[a-z]1\.[\w.-]+|(?<=Bearer )[^\s"']+"""
    r"""|(?i:(?<=token)|(?<=secret)|(?<=password))["']?\s*[:=]\s*["']?[^\s"',}]+"""
)


def give_up(context: Context, row: Instance, cause: str, reason: str) -> None:
    """Fail `row`, which never registered, beside the loop; its console is asked for first: it goes with the VM."""
    key = f"boot-failed:{row.id}"
    if context.calls.under_way(key):
        return
    offering = context.offering_of(row)
    if offering is not None:
        now = context.clock.now()
        context.failures.boot_failed(offering, reason, now, now - row.intended_ms)
    context.calls.start(key, _fail(context, row, cause, reason))


async def _fail(context: Context, row: Instance, cause: str, reason: str) -> None:
    console = await _console(context, row)
    if console:
        context.note("instance.console", instance=row.id, detail=console)
        reason = f"{reason}; its console ends with: {console.splitlines()[-1]}"
    await context.apply(row.id, InstanceEvent.FAIL, cause=cause, reason=reason, expect=frozenset({row.state}))


async def _console(context: Context, row: Instance) -> str:
    """The last lines of the VM's console, "" where there is none to be had."""
    provider = context.settings.providers.get(row.profile)
    if provider is None or not row.vm:
        return ""
    try:
        async with asyncio.timeout(CONSOLE_TIMEOUT_S):
            text = await provider.console(row.vm)
    except (ProviderError, TimeoutError):
        return ""
    return "\n".join(without_secrets(text)[-CONSOLE_BYTES:].strip().splitlines()[-CONSOLE_LINES:])


def without_secrets(text: str) -> str:
    """`text` with tokens, secrets and passwords made unreadable."""
    return _SECRETS.sub("***", text)


async def tell_of_breakers(context: Context) -> None:
    """An event for each breaker that has opened or closed, with the end of the console of the last boot that failed."""
    for recipe, breaker, opened in context.breakers.turned():
        if not opened:
            context.note("breaker.closed", detail=f"{recipe.name}: launches go on")
            continue
        wait = format_duration(breaker.until_ms - breaker.opened_ms)
        console = await _console_known(context, breaker.last) if recipe.kind is Kind.BOOT else ""
        said = f"; the console of {breaker.last} ends with:\n{console}" if console else ""
        detail = f"{recipe.name} for {wait}: {breaker.describe(recipe)}{said}"
        context.note("breaker.opened", instance=breaker.last, detail=detail)


async def _console_known(context: Context, instance: InstanceId) -> str:
    """The last lines of its console as they were kept when it was given up."""
    stored = await context.store.events(instance=instance, limit=EVENTS_LOOKED_AT)
    events = [*reversed(context.pending_events), *stored]
    found = (e.detail for e in events if e.instance == instance and e.action == "instance.console")
    return "\n".join(next(found, "").splitlines()[-TAIL_LINES:])[-TAIL_BYTES:]
