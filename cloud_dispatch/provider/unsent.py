"""Whether a request surely never left. Owns which errors of the libraries that SDKs send by prove it, by their names: a
driver's errors are told apart without importing any of them.

A connection that was never made, a name that was not found, a server that is not who it says: all of that is known
before the first byte of a request is written. Whatever breaks later, TLS and proxies among it, may break behind a
request that has arrived.
"""

from __future__ import annotations

from collections.abc import Iterator

#: Told before a request is written. A proxy's error is one unless something else in the chain denies it: where a proxy
#: is spoken to in plain words, a connection that ends before the answer is told as one that could not be made.
_BEFORE = frozenset(
    {
        "ConnectTimeout", "ConnectTimeoutError", "EndpointConnectionError", "NameResolutionError",
        "NewConnectionError", "ProxyError", "SSLCertVerificationError",
    }
)  # fmt: skip
#: Told of a connection that there was.
_AFTER = frozenset({"ProtocolError", "ReadTimeout", "ReadTimeoutError"})
_BROKEN = (BrokenPipeError, ConnectionAbortedError, ConnectionResetError)
#: Where libraries keep what they were told, besides Python's own places.
_INSIDE = ("reason", "inner_exception")
#: SDKs wrap what libraries raise, which wrap what they were told: four or five of them, each known by several ways.
_MOST = 32


def never_sent(error: BaseException) -> bool:
    """Whether nothing can have come of the one try of a request that ended by `error`. False wherever that is not sure.

    Of a request that was tried more than once, the last try's error says nothing about the others.
    """
    chain = list(_chain(error))
    if any(isinstance(one, _BROKEN) or _names(one) & _AFTER for one in chain):
        return False
    return any(_names(one) & _BEFORE for one in chain)


def _names(error: BaseException) -> set[str]:
    """Its class's name and those of the classes that it is one of: SDKs derive their own."""
    return {kind.__name__ for kind in type(error).__mro__}


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was made of, each once."""
    found, seen = [error], {id(error)}
    while found and len(seen) <= _MOST:
        one = found.pop(0)
        yield one
        inside = (*one.args, one.__cause__, one.__context__, *(getattr(one, name, None) for name in _INSIDE))
        for other in inside:
            if isinstance(other, BaseException) and id(other) not in seen:
                seen.add(id(other))
                found.append(other)
