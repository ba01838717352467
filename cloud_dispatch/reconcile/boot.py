"""Boots that failed. Owns what is kept of one: its console output, and that the same offering is not tried at once."""

from __future__ import annotations

import asyncio

from cloud_dispatch.domain.instance import Instance, InstanceEvent
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.reconcile.context import Context

CONSOLE_LINES = 100
CONSOLE_BYTES = 8_192
CONSOLE_TIMEOUT_S = 10


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
    return "\n".join(text[-CONSOLE_BYTES:].strip().splitlines()[-CONSOLE_LINES:])
