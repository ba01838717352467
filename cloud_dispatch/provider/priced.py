"""A wrapper that puts right what offerings cost. Owns the file in which the prices that were told are kept.

They are in the profile's folder of the state, `prices.json`, whole or as they were before. One that can't be read
counts as none: the prices are asked for again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pricing import OwnPrice
from cloud_dispatch.ports.executor import Executor, give_way
from cloud_dispatch.provider.funnel import Call, Wrapper
from cloud_dispatch.provider.pricebook import Source, Told, plain, priced, read
from cloud_dispatch.provider.spi import Provider

FILE = "prices.json"
#: So many take two milliseconds.
PRICED_AT_ONCE = 150


class Priced(Wrapper):
    """`driver`, whose offerings cost what counts. What `prices` tells is kept, unless it is nothing."""

    def __init__(
        self, driver: Provider, own: Sequence[OwnPrice], folder: Path, now: Callable[[], int], files: Executor
    ) -> None:
        super().__init__(driver)
        self._own = tuple(own)
        self._file = folder / FILE
        self._now = now
        self._files = files
        self.told = load(self._file)

    async def call(self, name: Call, *args: Any) -> Any:
        if name is Call.OFFERINGS:
            await self._look()
        told = self.told  # what is told meanwhile is not news to the driver's answer
        result = await self.pass_on(name, *args)
        if name is Call.OFFERINGS:
            return tuple(offering for offering, _ in await self._sourced(result, told))
        if name is Call.PRICES and result:
            told = Told(self._now(), tuple(result))
            await self._files.run(save, self._file, told)
            self.told = told
        return result

    async def _look(self) -> None:
        """An operator's `prices refresh` may have been here."""
        kept = await self._files.run(load, self._file)
        if kept.told_ms > self.told.told_ms:
            self.told = kept

    async def _sourced(self, offerings: Sequence[Offering], told: Told) -> list[tuple[Offering, Source]]:
        """In pieces: there may be ten thousand."""
        now, bids = self._now(), self.traits.spot_bid
        covering: dict[tuple[str, Market], list[OwnPrice]] = {}
        found: list[tuple[Offering, Source]] = []
        for number, offering in enumerate(offerings):
            if number % PRICED_AT_ONCE == PRICED_AT_ONCE - 1:
                await give_way()
            kind = (offering.type.name, offering.market)
            own = covering.get(kind)
            if own is None:
                own = covering[kind] = [one for one in self._own if one.covers(*kind)]
            found.append(priced(offering, own, told, now, bids=bids))
        return found

    async def sourced(self) -> list[tuple[Offering, Source]]:
        """The offerings at the prices that count, each with who says its price."""
        return await self._sourced(await self.pass_on(Call.OFFERINGS), self.told)

    async def asked(self) -> Told:
        """What the price service says now, not kept."""
        return Told(self._now(), tuple(await self.pass_on(Call.PRICES)))


def load(file: Path) -> Told:
    """What is kept there."""
    with contextlib.suppress(OSError, ValueError):
        return read(json.loads(file.read_text(encoding="utf-8")))
    return Told()


def save(file: Path, told: Told) -> None:
    """Keep it, in place of what was: whole or not at all."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.{os.getpid()}.new")
    with open(fresh, "w", encoding="utf-8") as out:
        json.dump(plain(told), out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(fresh, file)
