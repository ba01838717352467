"""What agents go by that a dispatcher of before this start told them. Owns how long they may still do so.

An agent holds its claims until the end of the lease that the last answer gave it. A dispatcher that starts with shorter
intervals has told nobody yet: by its own reckoning it would put back tasks that agents which can't reach it still run.
So what is in force is a fact of the store, written before the first agent is told, and silence that began before agents
can have been told means nothing until the longer terms are over. Pure, but for the fact's name.
"""

from __future__ import annotations

import msgspec

#: The fact of the store that holds an `Agreed`, as JSON.
FACT = "agreed-silence"


class Agreed(msgspec.Struct, frozen=True, omit_defaults=True):
    """`silence_ms`: after how long agents of this start are given up. `longer_ms`: after how long those were that a
    dispatcher before it told something else, who may go by that until `until_ms`, in epoch milliseconds; 0: none."""

    silence_ms: int
    longer_ms: int = 0
    until_ms: int = 0
    #: Of which copy it knows that the store was made from it.
    restored_ms: int = 0

    def started(self, silence_ms: int, now_ms: int) -> Agreed:
        """What is in force once a dispatcher with `silence_ms` has started at `now_ms`.

        A clock that was ahead at an earlier start makes nobody wait for longer than such terms last; one that was
        behind by more than what is left of them makes them forgotten, if it is set while no dispatcher runs (`moved`).
        """
        terms = [(now_ms + self.silence_ms, self.silence_ms)]
        if self.until_ms > now_ms:
            terms.append((min(self.until_ms, now_ms + self.longer_ms), self.longer_ms))
        until_ms, longer_ms = max(terms)
        longer = until_ms > now_ms + silence_ms
        return Agreed(silence_ms, longer_ms * longer, until_ms * longer, self.restored_ms)

    def left(self, silence_ms: int) -> Agreed:
        """What is in force once a dispatcher's last word to agents was that they are given up after `silence_ms`."""
        return msgspec.structs.replace(self, silence_ms=max(silence_ms, self.silence_ms))

    def copied(self, restored_ms: int, silence_ms: int) -> Agreed:
        """The same for a dispatcher with `silence_ms`, in a store that was made from a copy at the moment `restored_ms`
        (0: never): a copy knows neither whether leases have become longer since, nor with which word the last
        dispatcher stopped, which may have doubled the lease."""
        if restored_ms == self.restored_ms:
            return self
        return msgspec.structs.replace(self.left(2 * max(silence_ms, self.silence_ms)), restored_ms=restored_ms)

    def moved(self, forward_ms: int, now_ms: int) -> Agreed:
        """The same, once the clock was set forward by `forward_ms` and is at `now_ms`."""
        if self.until_ms <= now_ms - forward_ms:
            return self
        return msgspec.structs.replace(self, until_ms=self.until_ms + forward_ms)

    def rest_ms(self, now_ms: int) -> int:
        """How much longer than by the terms of this start agents may go by the longer ones."""
        return max(self.until_ms - now_ms - self.silence_ms, 0)


def read(fact: str | None) -> Agreed | None:
    """The fact's value; None where there is none, or none that can be read."""
    try:
        return None if fact is None else msgspec.json.decode(fact, type=Agreed)
    except msgspec.DecodeError:
        return None


def written(agreed: Agreed) -> str:
    """`agreed` as the fact's value."""
    return msgspec.json.encode(agreed).decode()
