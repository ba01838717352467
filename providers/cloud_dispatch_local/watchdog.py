"""The watchdog's looks: which VMs of a registry are past their hard end, and their end. Owns what one look does.

It is a hand of its own beside dispatcher, drivers and machines, and asks none of them. Everything that could be in its
way is passed by: a machine that hangs is killed, a registry that somebody holds for ever is not waited for, a record
that can't be written stays unwritten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.reaper import overdue, unreadable
from cloud_dispatch.provider.errors import Transient
from cloud_dispatch_local.ending import kill, remove
from cloud_dispatch_local.folder import Damaged, VmFolder, VmRecord
from cloud_dispatch_local.registry import Registry

#: From one look to the next: how long after its end a VM may be found first.
PERIOD_MS = 1_000
#: How long a watchdog waits for the registry: a launch of many VMs holds it for less, who hangs there for ever.
PATIENCE_S = 1.0
_KILL_ROUNDS = 50
_KILL_WAIT_S = 0.02

Pair = tuple[VmFolder, VmRecord]


class Watchdog:
    """Over one registry. `now` gives milliseconds since the epoch, `say` keeps a line for the operator."""

    def __init__(self, registry: Registry, now: Callable[[], int], say: Callable[[str], None]) -> None:
        self._registry = registry
        self._now = now
        self._say = say
        self._told: set[tuple[str, str]] = set()

    async def look(self) -> bool:
        """End what is past its hard end; whether anything is left that has one. What could not be ended now, since it
        does not die or the registry is held, is for the next look."""
        pairs, unread = self._read()
        for vm in unreadable((VmId(record.id), record.tags) for _, record in pairs):
            self._tell(vm, "its tags can't be read, so it has no hard end here")
        late = set(overdue(((VmId(record.id), record.tags) for _, record in pairs), self._now()))
        gone = await self._end([folder for folder, record in pairs if record.id in late]) if late else frozenset()
        return unread or any(record.ends_ms and record.id not in gone for _, record in pairs)

    async def relieved(self, leave: Callable[[], None]) -> bool:
        """Leave, unless there is something to watch. Drivers make VMs under the lock that is held here, and look for
        their watchdog there: none is made between the last look and the leaving."""
        try:
            async with self._registry.locked():
                pairs, unread = self._read()
                if unread or any(record.ends_ms for _, record in pairs):
                    return False
                leave()
                return True
        except Transient:
            return False  # somebody has the registry, and may be making a VM there

    def _read(self) -> tuple[list[Pair], bool]:
        """The VMs of the registry, and whether there are some that can't be read now."""
        pairs, unread = [], False
        for folder in self._registry.folders():
            try:
                record = folder.vm()
            except Damaged as error:
                self._tell(folder.path.name, "not watched", error)
                unread = True
                continue
            if record is not None:
                pairs.append((folder, record))
        return pairs, unread

    async def _end(self, late: Sequence[VmFolder]) -> frozenset[str]:
        """Mark these VMs as asked to end, kill all that lives of them, and remove them; the ids of those that went."""
        ending = {folder.path: record for folder, record in await self._mark(late)}
        left = set(ending)
        for _ in range(_KILL_ROUNDS):
            left -= {folder.path for folder in kill(VmFolder(path) for path in left)}
            if not left:
                break
            await asyncio.sleep(_KILL_WAIT_S)
        for path in left:
            self._tell(ending[path].id, "past its hard end, but some of its processes do not die of SIGKILL")
        dead = [record for path, record in ending.items() if path not in left]
        try:
            await remove(self._registry, (record.id for record in dead))
        except Transient:
            return frozenset()  # the next look removes them
        for record in dead:
            self._say(f"{record.id}: ended, {self._now() - record.ends_ms} ms past its hard end")
        return frozenset(record.id for record in dead)

    async def _mark(self, late: Sequence[VmFolder]) -> list[Pair]:
        """Those that are still past their end, asked to end as a driver's terminate asks. Judged once more under the
        lock that ends are moved under: one that was moved in time is heeded."""
        try:
            async with self._registry.locked():
                pairs = self._still(late)
                for folder, record in pairs:
                    if not record.terminate_ms:
                        folder.save_vm(replace(record, terminate_ms=self._now()))
                return pairs
        except (Transient, OSError) as error:
            # Whoever holds the registry hangs, or the disk is full. That keeps nobody's machine running.
            self._tell("registry", "VMs are ended without a note there", error)
            return self._still(late)

    def _still(self, late: Iterable[VmFolder]) -> list[Pair]:
        pairs = []
        for folder in late:
            try:
                record = folder.vm()
            except Damaged:
                continue
            if record is not None and overdue([(VmId(record.id), record.tags)], self._now()):
                pairs.append((folder, record))
        return pairs

    def _tell(self, who: str, what: str, why: object = "") -> None:
        """Say it once, however many looks find it again."""
        if (who, what) not in self._told:
            self._told.add((who, what))
            self._say(f"{who}: {what}" + (f": {why}" if why else ""))
