"""Boots: what they say of themselves, and those that failed. Owns what is kept of one (its own log or its console, and
that the same offering is not tried at once), and how people hear of breakers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.errors import Conflict, NotFound
from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState
from cloud_dispatch.domain.masking import masked
from cloud_dispatch.ports.fleet import BootWord
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.spend.breaker import Kind

CONSOLE_LINES = 100
CONSOLE_BYTES = 8_192
#: So much of its end is looked at for secrets, which may begin before what is kept: all that a driver may give of it.
CONSOLE_READ = 65_536
CONSOLE_TIMEOUT_S = 10
#: What of it is attached to a breaker's event.
TAIL_LINES = 20
TAIL_BYTES = 2_048
EVENTS_LOOKED_AT = 100
#: The events that hold what a failed boot left.
_KEPT = ("instance.console", "instance.boot-log")


def speaker(slots: Sequence[Instance], vm: str) -> Instance:
    """Which of a batch's instances a VM is that says so itself, before it has registered. Only what the provider has
    said counts: one whose launch is not answered yet has to wait."""
    known = [row for row in slots if row.vm and row.vm == vm]
    if not vm and len(slots) == 1 and slots[0].vm:  # a VM that can't learn its own id, and nobody else can be meant
        known = list(slots)
    if not known:
        raise NotFound("no instance of this batch is known to be this VM", place="vm", hint="try again in a moment")
    if known[0].state is not InstanceState.BOOTING:
        raise Conflict(f"instance {known[0].id} is {known[0].state}: its boot is over")
    return known[0]


async def hear(context: Context, row: Instance, word: BootWord) -> None:
    """Keep what a booting VM says; a failure fails its instance and counts against what it was made from."""
    if not word.failed:
        context.note("instance.boot", instance=row.id, detail=f"phase {word.phase}")
        return
    log = _end_of(readable(word.log))
    last = log.splitlines()[-1] if log else "it left no log"
    reason = f"boot phase {word.phase} failed (exit code {word.exit_code}): {last}"
    failed = await context.apply(
        row.id, InstanceEvent.FAIL, cause="boot-failed", reason=reason, expect=frozenset({row.state})
    )
    if failed is None:
        raise Conflict(f"instance {row.id} has changed meanwhile: its boot is over")
    context.note("instance.boot-log", instance=row.id, detail=f"phase {word.phase}\n{log}".strip())
    count(context, row, reason)


def readable(text: str) -> str:
    """`text` without what can't be printed: a log must not be able to play with the terminal that shows it."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text.replace("\r\n", "\n"))


def give_up(context: Context, row: Instance, cause: str, reason: str) -> None:
    """Fail `row`, which never registered, beside the loop; its console is asked for first: it goes with the VM."""
    key = f"boot-failed:{row.id}"
    if context.calls.under_way(key):
        return
    count(context, row, reason)
    context.calls.start(key, _fail(context, row, cause, reason), row.profile)


def count(context: Context, row: Instance, reason: str) -> None:
    """A failed boot against what `row` was made as, so that the same is not tried at once."""
    offering = context.offering_of(row)
    if offering is not None:
        now = context.clock.now()
        context.failures.boot_failed(offering, reason, now, now - row.intended_ms)


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
    return _end_of(text)


def _end_of(text: str) -> str:
    return "\n".join(masked(text[-CONSOLE_READ:])[-CONSOLE_BYTES:].strip().splitlines()[-CONSOLE_LINES:])


async def tell_of_breakers(context: Context) -> None:
    """An event for each breaker that has opened or closed, with the end of the console of the last boot that failed."""
    await context.breakers.learn()
    for recipe, breaker, opened in context.breakers.turned():
        if not opened:
            context.note("breaker.closed", detail=f"{recipe.name}: launches go on")
            continue
        wait = format_duration(breaker.until_ms - breaker.opened_ms)
        console = await _console_known(context, breaker.last) if recipe.kind is Kind.BOOT else ""
        said = f"; the console of {breaker.last} ends with:\n{console}" if console else ""
        detail = f"{recipe.name} for {wait}: {context.breakers.describe(recipe, breaker)}{said}"
        context.note("breaker.opened", instance=breaker.last, detail=detail)


async def _console_known(context: Context, instance: InstanceId) -> str:
    """The last lines of its console, or of its boot's own log, as they were kept when it was given up."""
    stored = await context.store.events(instance=instance, limit=EVENTS_LOOKED_AT)
    events = [*reversed(context.pending_events), *stored]
    found = (e.detail for e in events if e.instance == instance and e.action in _KEPT)
    return "\n".join(next(found, "").splitlines()[-TAIL_LINES:])[-TAIL_BYTES:]
