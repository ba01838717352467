"""Whether the hand that ends VMs beside their cloud is alive, by the last sign of life that it has left. Pure.

Owns how long a hand may be silent, and in which words it is said that it is: for `config check --online` by the
drivers, and for the dispatcher's loop, which asks them again and again.
"""

from __future__ import annotations

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.sign import read
from cloud_dispatch.provider.spi import Finding, HardEnd, Heard, Level, Traits

#: So many periods, and so long for what a slow round takes, may lie between the beginning of the last round that a hand
#: told of and now. With a period of a minute that is thirteen.
PERIODS, ROUND_MS = 3, 600_000
#: Further ahead than this no clock is.
CLOCKS_MS = 120_000
ABOUT = "reaper"
_NEVER = "it has left no sign of life: it is not there, is not called, or all of its rounds have failed"
UNHEARD = (
    "nobody looks whether it is there and alive: reaper_sign says where it leaves its signs of life. A reaper that was "
    "never deployed, or that fails, ends nothing"
)


def heard(text: str, deployment: str, place: str) -> Heard:
    """What a sign of life says to the dispatcher of `deployment`, of a profile whose VMs are at `place`, as rounds call
    it. `text` "": there is none."""
    sign = read(text)
    if sign is None:
        return Heard(0, _NEVER)
    if sign.deployment != deployment:
        return Heard(0, f"the sign of life that is there is of the deployment {sign.deployment!r}, not {deployment!r}")
    if place.casefold() not in [one.casefold() for one in sign.places]:
        return Heard(0, f"it looks at {', '.join(sign.places) or 'nothing'}, and not at {place}")
    return Heard(sign.begun_ms)


def patience_ms(traits: Traits) -> int:
    """For how long the hand may be silent."""
    return PERIODS * traits.hand_period_ms + ROUND_MS


def silence(said: Heard, traits: Traits, now_ms: int) -> str:
    """Why the hand can't be taken for alive, "" while it can."""
    if not said.last_ms:
        return said.why or "it was never heard"
    if said.last_ms - now_ms > CLOCKS_MS:
        ahead = _about(said.last_ms - now_ms)
        return f"its last round is {ahead} ahead of this clock: one of the two is wrong"
    age_ms, most_ms = now_ms - said.last_ms, patience_ms(traits)
    if age_ms <= most_ms:
        return ""
    most = format_duration(most_ms)
    return f"its last whole round was {_about(age_ms)} ago, {most} is the most: nobody calls it, or its rounds fail"


def finding(said: Heard, traits: Traits, now_ms: int) -> Finding:
    """For a preflight. Where the cloud itself ends VMs at a time that was set when they were made, the hand is the
    second one."""
    why = silence(said, traits, now_ms)
    if not why:
        return Finding(Level.OK, ABOUT, f"it is alive: its last whole round was {_about(now_ms - said.last_ms)} ago")
    if traits.hard_end is HardEnd.FIXED:
        return Finding(Level.WARNING, ABOUT, f"{why}. What has stopped and is past its end bills on")
    text = f"{why}. Without it only a VM's own timer and the dispatcher end VMs: limits are not kept if both fail"
    return Finding(Level.ERROR, ABOUT, text)


def _about(milliseconds: int) -> str:
    """As exact as anybody wants it: seconds of the first two minutes, minutes of the first two hours, then hours."""
    unit = next((size for size in (3_600_000, 60_000) if milliseconds >= 2 * size), 1000)
    return format_duration(max(milliseconds, 0) // unit * unit)
