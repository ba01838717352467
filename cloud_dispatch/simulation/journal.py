"""The event log of a run: virtual milliseconds, who, what. Owns its form and its digest; decides nothing.

Two runs are the same run if their journals are equal to the byte. A bounded journal keeps its last lines only; its
digest covers all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from typing import Protocol

#: So many lines are digested at once: one at a time costs as much as to write them.
_DIGESTED_AT_ONCE = 256


class _Time(Protocol):
    @property
    def now_ms(self) -> int: ...


class Journal:
    """Lines `MILLISECONDS WHO WHAT`. `keep` None keeps all of them. `hidden` is a text that differs from run to run,
    the name of a temporary folder: it is not written."""

    def __init__(self, time: _Time, keep: int | None = None, hidden: str = "") -> None:
        self._time = time
        self._hidden = hidden
        self._lines: deque[str] = deque(maxlen=keep)
        self._digest = blake2b(digest_size=16)
        self._undigested: list[str] = []
        self.count = 0
        self._stamped_ms, self._stamp = -1, ""

    def write(self, who: str, what: str) -> None:
        """Something happened now. `what` is on one line; line breaks in it are shown as such."""
        now_ms = self._time.now_ms
        if now_ms != self._stamped_ms:  # things happen several at a time
            self._stamped_ms, self._stamp = now_ms, f"{now_ms:>9}"
        line = f"{self._stamp} {who} {what}"
        if "\n" in line:
            line = line.replace("\n", "\\n")
        if self._hidden and self._hidden in line:
            line = line.replace(self._hidden, "")
        self._lines.append(line)
        self._undigested.append(line)
        if len(self._undigested) >= _DIGESTED_AT_ONCE:
            self._digest_rest()
        self.count += 1

    def _digest_rest(self) -> None:
        self._digest.update("".join(self._undigested).encode())
        self._undigested.clear()

    @property
    def digest(self) -> str:
        """Of all lines, kept or not; hex."""
        self._digest_rest()
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def text(self) -> str:
        """The lines that were kept."""
        return "".join(f"{line}\n" for line in self._lines)
