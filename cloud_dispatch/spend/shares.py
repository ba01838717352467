"""Whose money it was: what a VM has cost, split by day of UTC, by project and user, and by attempt. Pure.

Each day of the VM gets its part of the amount by the time billed on it. What ran on a day takes of that by time, times
the part of the machine that it asked for: as `work` if its outcome counted, else as `retry`. The rest of the day is
`idle`: the boot, the time without a task, the part of the machine that nobody asked for. It goes to those who ran on
the day, as much as they used; on a day without anybody to those who ran on any; and to nobody where nothing ever ran.

Every split is of integers by largest remainders, so that the shares of a VM sum to its amount to the micro-dollar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from cloud_dispatch.domain.money import Amount, split
from cloud_dispatch.domain.payer import NOBODY, Payer
from cloud_dispatch.domain.shape import Machine, Shape
from cloud_dispatch.spend.parts import divided
from cloud_dispatch.spend.windows import DAY_MS, Span, Window, spans

#: The weight of an attempt that has the machine to itself.
WHOLE = 1_000_000
K = TypeVar("K")


class Use(NamedTuple):
    """Attempts of one payer on one VM that weigh the same and began and ended on the same days of UTC (since 1970).

    `counted`: their outcome did. `head_ms` and `tail_ms`: the sums of how far into its first day each began, and into
    its last day each ended. Attempts are added up like this by the database; one alone is a use of one.
    """

    payer: Payer
    counted: bool
    weight: int
    first_day: int
    last_day: int
    head_ms: int
    tail_ms: int
    attempts: int = 1

    def before(self, day: int) -> int:
        """Milliseconds used before `day` began, weighed. Each attempt counts one more, on its last day: it began and
        ended within a millisecond, and no attempt is free of charge."""
        if day <= self.first_day:
            return 0
        if day > self.last_day:
            days = self.last_day - self.first_day
            return self.weight * max(
                days * DAY_MS * self.attempts + self.tail_ms - self.head_ms + self.attempts, self.attempts
            )
        return self.weight * max((day - self.first_day) * DAY_MS * self.attempts - self.head_ms, 0)


@dataclass(frozen=True, slots=True)
class Share:
    """What one payer pays of a VM for one day, which began at `day_ms`: micro-dollars, and the time behind them,
    weighed: of attempts whose outcome counted, and of the others."""

    day_ms: int
    payer: Payer
    work: int
    retry: int
    idle: int
    work_time: int = 0
    retry_time: int = 0

    @property
    def whole(self) -> int:
        return self.work + self.retry + self.idle


class Piece(NamedTuple):
    """What one attempt (None: attempts that are not known any more, or nobody's) pays for one day."""

    key: Any
    day_ms: int
    payer: Payer
    work: int
    retry: int
    idle: int


def weight_of(machine: Machine, shape: Shape) -> int:
    """Which part of `machine` a task of `shape` asks for, in millionths: the mean of its parts of what is divided, so
    that what fits on the machine together never asks for more than all of it. One that is exclusive has it all."""
    if shape.exclusive:
        return WHOLE
    parts = [min(asked * WHOLE // there, WHOLE) for asked, there in divided(shape.resources, machine.capacity)]
    return max(sum(parts) // len(parts), 1) if parts else WHOLE


def use_of(payer: Payer, counted: bool, weight: int, from_ms: int, until_ms: int) -> Use:
    """One attempt that ran from `from_ms` until `until_ms` (epoch milliseconds)."""
    first, last = from_ms // DAY_MS, until_ms // DAY_MS
    return Use(payer, counted, weight, first, last, from_ms % DAY_MS, until_ms % DAY_MS)


def shares_of(amount: Amount, from_ms: int, until_ms: int, uses: Iterable[Use]) -> list[Share]:
    """The shares in `amount` of a VM that was billed from `from_ms` until `until_ms`, in order of day and payer; at
    least one. What ran outside of that time, as clocks differ, counts on the first or the last day."""
    days = _days(from_ms, until_ms)
    of_days = split(amount, [day.overlap_ms(from_ms, until_ms) for day in days])
    times: list[dict[Payer, list[int]]] = [{} for _ in days]
    ever: dict[Payer, int] = {}
    for use in uses:
        for place, time in _by_day(days, use):
            times[place].setdefault(use.payer, [0, 0])[0 if use.counted else 1] += time
            ever[use.payer] = ever.get(use.payer, 0) + time
    shares: list[Share] = []
    for day, money, ran in zip(days, of_days, times, strict=True):
        shares += _of_day(day, money, day.overlap_ms(from_ms, until_ms), ran, ever or {NOBODY: 1})
    return [share for share in shares if share.whole or share.work_time or share.retry_time] or shares[:1]


def pieces_of(shares: Sequence[Share], from_ms: int, until_ms: int, attempts: Iterable[tuple[K, Use]]) -> list[Piece]:
    """What each attempt pays of the `shares` of its VM, which was billed from `from_ms` until `until_ms`. `attempts`
    need not be all that ran: what others used, as the shares say, is theirs (None). Pieces sum to the shares exactly,
    and do not depend on the order of the attempts; keys must differ and have an order."""
    days = _days(from_ms, until_ms)
    places = {day.start_ms: place for place, day in enumerate(days)}
    ran: dict[tuple[Payer, int], dict[K, tuple[int, int]]] = {}
    for key, use in sorted(attempts, key=_key):
        for place, time in _by_day(days, use):
            ran.setdefault((use.payer, place), {})[key] = (time, 0) if use.counted else (0, time)
    ever: dict[Payer, int] = {}
    for share in shares:
        ever[share.payer] = ever.get(share.payer, 0) + share.work_time + share.retry_time
    pieces: list[Piece] = []
    for share in shares:
        on_day = ran.get((share.payer, places.get(share.day_ms, 0)), {})
        whole = share.work_time + share.retry_time
        idlers = on_day if whole else _on_all(share.payer, ran)
        work = _portions(share.work, {key: used[0] for key, used in on_day.items()}, share.work_time)
        retry = _portions(share.retry, {key: used[1] for key, used in on_day.items()}, share.retry_time)
        idle = _portions(share.idle, {key: sum(used) for key, used in idlers.items()}, whole or ever[share.payer])
        for each in (*idlers, None):
            money = (work.get(each, 0), retry.get(each, 0), idle.get(each, 0))
            if any(money):
                pieces.append(Piece(each, share.day_ms, share.payer, *money))
    return pieces


def _on_all(payer: Payer, ran: Mapping[tuple[Payer, int], Mapping[K, tuple[int, int]]]) -> dict[K, tuple[int, int]]:
    """Of all days together what the attempts of `payer` ran."""
    summed: dict[K, tuple[int, int]] = {}
    for (who, _), on_day in ran.items():
        if who == payer:
            for key, (work, retry) in on_day.items():
                known = summed.get(key, (0, 0))
                summed[key] = (known[0] + work, known[1] + retry)
    return summed


def _key(attempt: tuple[Any, Use]) -> Any:
    return attempt[0]


def _days(from_ms: int, until_ms: int) -> list[Span]:
    return list(spans(Window.DAY, from_ms, max(until_ms, from_ms)))


def _by_day(days: Sequence[Span], use: Use) -> list[tuple[int, int]]:
    """The time of a use by the place of its day; what lies before or after the days is on the first or the last."""
    first, end = days[0].start_ms // DAY_MS, len(days) - 1
    low, high = min(max(use.first_day - first, 0), end), min(max(use.last_day - first, 0), end)
    if low == high:
        return [(low, use.before(use.last_day + 1))]
    found, done = [], 0
    for place in range(low, high + 1):
        until = use.before(first + place + 1 if place < high else use.last_day + 1)
        if until > done:
            found.append((place, until - done))
            done = until
    return found


def _of_day(
    day: Span, money: Amount, billed_ms: int, ran: dict[Payer, list[int]], ever: dict[Payer, int]
) -> list[Share]:
    payers = sorted(ran or ever)
    if not ran:
        of_idle = split(money, [ever[payer] for payer in payers])
        return [Share(day.start_ms, payer, 0, 0, idle) for payer, idle in zip(payers, of_idle, strict=True)]
    used = [time for payer in payers for time in ran[payer]]
    *parts, idle = split(money, [*used, max(billed_ms * WHOLE - sum(used), 0)])
    of_idle = split(idle, [sum(ran[payer]) for payer in payers])
    return [
        Share(day.start_ms, payer, parts[2 * place], parts[2 * place + 1], of_idle[place], *ran[payer])
        for place, payer in enumerate(payers)
    ]


def _portions(money: int, times: dict[K, int], whole: int) -> dict[K | None, int]:
    """`money` by time; what is left of `whole` is that of others (None)."""
    known = sum(times.values())
    if not money or not known:
        return {None: money}
    parts = split(Amount(money), [*times.values(), max(whole - known, 0)])
    return dict(zip((*times, None), parts, strict=True))
