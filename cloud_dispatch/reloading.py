"""A configuration that becomes another while the dispatcher runs. Owns that it is read, checked and followed whole or
not at all, and that whoever asked for it is told what came of it.

What is read anew is judged as at a start, beside the loop; what holds from the start to the end must be as it was.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import structlog

from cloud_dispatch import meaning, ruling
from cloud_dispatch.adapters.certificates import Certificate, chain_of, fingerprint
from cloud_dispatch.adapters.service_manager import READY, ServiceManager, reloading, status
from cloud_dispatch.adapters.tls import Shown, context_of
from cloud_dispatch.assembly import Parts
from cloud_dispatch.config import Config
from cloud_dispatch.domain.errors import Conflict, DispatchError
from cloud_dispatch.domain.ids import ProfileName

log = structlog.get_logger(__name__)
_Renewed = tuple[Certificate, ssl.SSLContext] | str
_NOT_SHOWN = "not the certificate: VMs trust that of the start until the next one (`dispatcher.pin`)"
#: So many settings are named in an event.
MOST_NAMED = 30


class Reloader:
    """`config`: the one in force. `again` reads it from where it came; InvalidInput or NotFound where it is none. It is
    read when `asked` is set; once more where that happens meanwhile. `tls` shows what
    `certificate_of` finds for a configuration."""

    def __init__(
        self, config: Config, again: Callable[[], Config], asked: asyncio.Event, ground: ruling.Ground,
        drivers: ruling.Drivers, parts: Parts, manager: ServiceManager,
        tls: Shown | None = None, certificate_of: Callable[[Config], Certificate | None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.config = config
        self._again = again
        self._ground = ground
        self._drivers = dict(drivers)
        self._parts = parts
        self._manager = manager
        self._asked = asked
        self._tls = tls
        self._certificate_of = certificate_of

    async def run(self) -> None:
        """Read it anew whenever that is asked for, once what was found at the start is dealt with."""
        await self._parts.loop.restored.wait()
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._manager.tell(*reloading(self._ground.clock.monotonic() * 1000))
            try:
                await self._reload()
            finally:
                refused = self._parts.in_force.refused
                said = f"the configuration was refused, that of before holds: {refused}" if refused else "serving"
                self._manager.tell(READY, status(said))

    async def _reload(self) -> None:
        in_force, context = self._parts.in_force, self._parts.context
        try:
            names = await self._follow()
        except Exception as error:
            if not isinstance(error, DispatchError):
                log.exception("configuration.crashed", error=repr(error))
            in_force.refused = _words(error)
            context.note("configuration.refused", detail=in_force.refused, warn=True)
        else:
            in_force.refused = ""
            context.note("configuration.reloaded", detail=_told(names))
        context.wake()

    async def _follow(self) -> list[str]:
        """The names of the settings that are others now."""
        config, made = await self._ground.aside.run(self._again), dict[ProfileName, ruling.Driver]()
        self._check(config)
        renewed = await self._ground.aside.run(self._renewed, config)
        try:
            await self._ground.aside.run(ruling.make_drivers, made, config, self._ground, self._drivers)
            rules = await self._ground.aside.run(ruling.rules_of, config, self._ground, made)
            await self._parts.follow(rules)
        except BaseException:
            for name, driver in made.items():
                if driver is not self._drivers.get(name):
                    await driver.provider.close()
            raise
        names = ruling.changed(self.config, config)
        self.config, self._drivers = config, made
        return names if renewed is None else [self._show(renewed), *names]

    def _renewed(self, config: Config) -> _Renewed | None:
        """What the files of the operator's certificate have now, where that is another one; DispatchError where it is
        of no use. One that the dispatcher has made itself stays: it is made anew by starts alone."""
        told = config.dispatcher
        if self._tls is None or told.certificate is None:
            return None
        there, shown = fingerprint(told.certificate), self._tls.certificate
        if there == shown.fingerprint and chain_of(told.certificate) == shown.chain:
            return None  # also where it has ended: that keeps nothing else from being followed
        if told.pin and there != shown.fingerprint:
            return _NOT_SHOWN
        found = self._certificate_of(config)
        return None if found is None else (found, context_of(found))

    def _show(self, renewed: _Renewed) -> str:
        """Show it from now on, unless VMs trust none but the one of the start; says which of both."""
        assert self._tls is not None
        if isinstance(renewed, str):
            return renewed
        self._tls.become(*renewed)
        return "the certificate"

    def _check(self, config: Config) -> None:
        """Conflict with every setting that would have to hold from the start on."""
        names = ruling.fixed(self.config, config)
        if names:
            message = f"{', '.join(names)} can't change while the dispatcher runs"
            raise Conflict(message, place=config.origin, hint="restart it; nothing of the new configuration holds yet")
        meaning.check_reachable(config)


def _told(names: list[str]) -> str:
    if not names:
        return "no setting is another; the files that it names were read anew"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _words(error: Exception) -> str:
    if not isinstance(error, DispatchError):
        return repr(error)
    return "; ".join(filter(None, (": ".join(filter(None, (error.place, error.message))), error.hint)))
