"""The network between VMs and the dispatcher. Owns delay, loss and cuts of every request and answer; reads neither.

A request that was sent may arrive although its sender has gone; one that is lost is simply never heard of again, and
its sender has to lose patience by itself. The dispatcher's side is a `Server`: one an incarnation, none while it is
down. What reaches a VM runs in that VM's context, so that it never belongs to the dispatcher's tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, Protocol

from msgspec import Struct

from cloud_dispatch.simulation.loop import VirtualLoop
from cloud_dispatch.simulation.ports import SimClock, Streams, TrueVm

#: What a sender hears: status and body of the answer, or None and why there is none.
Heard = Callable[[int | None, bytes], None]
#: A TCP connection to where nobody listens fails after so long, at the sender.
_REFUSED_MS = 1


class Server(Protocol):
    """One incarnation of the dispatcher, as the network sees it."""

    def serve(self, exchange: Exchange) -> None:
        """Begin to answer; `exchange.respond` with the answer. Called once an exchange, never after it is down."""


class Weather(Protocol):
    """The faults of the network that hold now."""

    @property
    def holding(self) -> Sequence[object]:
        """All faults that hold now; while there are none, the others say nothing."""

    def loss_percent(self) -> int: ...

    def extra_ms(self) -> int: ...

    def partitioned(self) -> bool: ...


class Exchange(Struct, eq=False):
    """One request and its answer."""

    network: Network
    vm: TrueVm
    sender: Context
    method: str
    path: str
    query: str
    authorization: bytes
    body: bytes
    heard: Heard | None
    departed: bool = False
    gone: Callable[[], object] | None = None
    over: bool = False

    def abandon(self) -> None:
        """The sender closes the connection: it hears nothing any more, and the server will notice."""
        if self.heard is not None:
            self.heard = None
            self.network.later(None, self._depart)

    def departure(self, gone: Callable[[], object]) -> Callable[[], object]:
        """Have `gone` called when the sender has gone, as the server sees it; returns what takes that back."""
        self.gone = gone
        if self.departed:
            gone()
        return self._stay

    def _stay(self) -> None:
        self.gone = None

    def respond(self, status: int, body: bytes) -> None:
        """The server's answer, on its way back from here on."""
        if not self.over:
            self.over = True
            self.network.closed(self)
            if self.heard is not None and self.network.passes(self.vm):
                self.network.later(self.sender, self._deliver, status, body)

    def reset(self, why: bytes) -> None:
        """The connection breaks at the server's side."""
        if not self.over:
            self.over = True
            if self.heard is not None and self.network.passes(self.vm):
                self.network.later(self.sender, self._deliver, None, why)

    def _depart(self) -> None:
        self.departed = True
        if self.gone is not None:
            self.gone()

    def _deliver(self, status: int | None, body: bytes) -> None:
        heard, self.heard = self.heard, None
        if heard is not None and not self.network.is_cut(self.vm):
            heard(status, body)


class Network:
    """All exchanges of a run. `latency_ms` is the median one way; each delay is drawn on its own."""

    def __init__(self, loop: VirtualLoop, clock: SimClock, streams: Streams, weather: Weather, latency_ms: int) -> None:
        self._loop = loop
        self._clock = clock
        self._delays = streams.stream("network", "delay")
        self._losses = streams.stream("network", "loss")
        self._weather = weather
        self._spread_ms = 2 * latency_ms or 1
        self._server: Server | None = None
        self._open: dict[Exchange, None] = {}
        self._nobody = Context()

    def listen(self, server: Server) -> None:
        """From here on `server` answers."""
        self._server = server

    def fall_silent(self) -> None:
        """Nobody answers any more; every connection breaks."""
        self._server = None
        broken, self._open = self._open, {}
        for exchange in broken:
            exchange.reset(b"connection reset")

    def send(
        self, vm: TrueVm, sender: Context, method: str, path: str, authorization: bytes, body: bytes, heard: Heard,
        query: str = "",
    ) -> Exchange:  # fmt: skip
        """Send a request of `vm`; `heard` is called in the context `sender`, at most once."""
        exchange = Exchange(self, vm, sender, method, path, query, authorization, body, heard)
        if self.passes(vm):
            self.later(None, self._arrive, exchange)
        return exchange

    def _arrive(self, exchange: Exchange) -> None:
        if self.is_cut(exchange.vm):
            return
        if self._server is None:
            if exchange.heard is not None:
                refused_ms = self._loop.now_ms + _REFUSED_MS
                self._loop.post(refused_ms, exchange.sender, exchange._deliver, None, b"connection refused")
            return
        self._open[exchange] = None
        self._server.serve(exchange)
        if exchange.heard is None:
            self.later(None, exchange._depart)

    def closed(self, exchange: Exchange) -> None:
        self._open.pop(exchange, None)

    def later(self, context: Context | None, callback: Callable[..., None], *args: Any) -> None:
        """After one way's delay, in `context` (None: nobody's)."""
        delay = 1 + self._delays.below(self._spread_ms)
        if self._weather.holding and (extra := self._weather.extra_ms()):
            delay += self._delays.below(2 * extra)
        self._loop.post(self._loop.now_ms + delay, context or self._nobody, callback, *args)

    def passes(self, vm: TrueVm) -> bool:
        """Whether what is sent now gets through."""
        if self._weather.holding:
            percent = self._weather.loss_percent()
            if percent and self._losses.below(100) < percent:
                return False
        return not self.is_cut(vm)

    def is_cut(self, vm: TrueVm) -> bool:
        """Whether nothing passes between `vm` and the dispatcher now."""
        if vm.cut_off_until_ms and vm.cut_off_until_ms > self._clock.now():
            return True
        return bool(self._weather.holding) and self._weather.partitioned()
