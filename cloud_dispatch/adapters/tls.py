"""The TLS of a server that goes on while its certificate is replaced. Owns its context, and when its end is told of."""

from __future__ import annotations

import ssl

from cloud_dispatch.adapters.certificates import Certificate
from cloud_dispatch.domain.durations import about
from cloud_dispatch.ports.clock import Clock

DAY_MS = 86_400_000
#: An end is told of for so long before it comes: whoever renews by a program does so earlier.
SOON_MS = 21 * DAY_MS
#: How one of the dispatcher's own is replaced.
_ANEW = "the next start without VMs makes another"


class Shown:
    """The certificate that is shown to whoever connects: one that was found to be of use before."""

    def __init__(self, certificate: Certificate, clock: Clock) -> None:
        self._clock = clock
        self.become(certificate, context_of(certificate))

    def become(self, certificate: Certificate, context: ssl.SSLContext) -> None:
        """From now on it is this one, by its context; connections that there are go on with theirs."""
        self.certificate, self._context = certificate, context

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._context

    def ends_ms(self) -> int:
        """When it does: milliseconds since 1970."""
        return self.certificate.ends_ms

    def troubles(self) -> list[str]:
        """That it ends soon, or has ended, and what else is wrong with it, in words."""
        return [*filter(None, [soon(self.certificate, self._clock.now()), kept(self.certificate)])]


def context_of(certificate: Certificate) -> ssl.SSLContext:
    """One of its own for each certificate: one that has had another would go on showing that of another kind of key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate.certificate, certificate.key)
    return context


def soon(certificate: Certificate, now_ms: int) -> str:
    """That it ends soon, and when, in words; "" where that is far off."""
    left_ms = certificate.ends_ms - now_ms
    if left_ms > SOON_MS:
        return ""
    when = f"ends in {about(left_ms)}" if left_ms > 0 else "has ended"
    then = "replace it, then restart where VMs pin it, and else have the configuration read anew"
    return f"the certificate {certificate.certificate} {when}: {_ANEW if certificate.ca else then}"


def kept(certificate: Certificate) -> str:
    """Why it would have been made anew, had VMs not pinned it, in words; "" where it is as it should be."""
    fault = certificate.fault
    return f"the certificate {certificate.certificate} {fault}, and VMs that live pin it: {_ANEW}" if fault else ""
