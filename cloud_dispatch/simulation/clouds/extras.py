"""Disks, NICs and addresses. Owns which exist, which VM each belongs to, and which belong to none and bill on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloud_dispatch.domain.ids import BatchId
from cloud_dispatch.simulation.clouds.records import ExtraRecord, Record
from cloud_dispatch.simulation.clouds.settings import Extra


class Extras:
    """Of one account. `all` holds every one ever made, in order of creation; `loose` those without a VM, by id."""

    def __init__(self, kinds: Sequence[Extra]) -> None:
        self._kinds = kinds
        self.all: list[ExtraRecord] = []
        self.loose: dict[str, ExtraRecord] = {}
        self._attached: dict[str, ExtraRecord] = {}

    def make(self, kind: Extra, vm: str, batch: BatchId, zone: str, tags: Mapping[str, str], now: int) -> ExtraRecord:
        """A loose one for the VM `vm` that may come; the same one where it exists."""
        name = f"{vm}-{kind.kind}"
        found = self.loose.get(name)
        if found is None:
            found = ExtraRecord(name, kind.kind, zone, dict(tags), batch, kind.rate, now, made_for=vm)
            self.loose[name] = found
            self.all.append(found)
        return found

    def equip(self, record: Record, now: int) -> None:
        """Give a new VM what comes with it: what stands ready under its name, else a new one."""
        for kind in self._kinds:
            extra = self.make(kind, record.id, record.batch, record.zone, record.tags, now)
            extra.theirs = record.theirs
            self._attached[extra.id] = self.loose.pop(extra.id)
            record.extras.append(extra)
            record.came.append(extra)

    def strip(self, record: Record, now: int, *, every: bool, stays: str | None) -> None:
        """The VM is gone: so is what came with it, but for `every` one, or the kind that `stays` ("" for all)."""
        for extra in record.extras:
            del self._attached[extra.id]
            if every or stays in ("", extra.kind):
                self.loose[extra.id] = extra
            else:
                extra.until_ms = now
        record.extras.clear()

    def attach(self, name: str, record: Record) -> None:
        """Give a loose one to this VM, with which it goes from now on."""
        extra = self._attached[name] = self.loose.pop(name)
        record.extras.append(extra)

    def delete(self, name: str, now: int) -> bool:
        """End a loose one; False where a VM has it (success, as every deletion, where there is none)."""
        extra = self.loose.pop(name, None)
        if extra is not None:
            extra.until_ms = now
            return True
        return name not in self._attached
