"""What providers are asked again and again: what they have and offer, what is left of quotas, prices, and whether
the hand that ends VMs beside the cloud is alive. Owns when they are asked, and that no pass waits for one that does
not answer.

Each question runs beside the loop, one of a kind at a time for a profile. A pass waits a moment for those that it has
asked, since most answer at once, and takes what is in; what comes later wakes the next one. A profile that can't say
what it offers is listed all the same, and the other way round. Quotas, prices and hands are good to know: no pass waits
for them at all.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.ids import InstanceId, ProfileName
from cloud_dispatch.domain.pool import TypeFilter
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.provider import hand
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Listing
from cloud_dispatch.reconcile.context import Context, ProfileView, Question
from cloud_dispatch.reconcile.spend import stale_price

log = structlog.get_logger(__name__)
#: How long offerings (types and prices) are good for, milliseconds.
OFFERINGS_TTL_MS = 600_000
#: How often quotas are asked for; sooner where one has refused a launch or holds work, and no more often than that.
QUOTAS_MS, DOUBTED_QUOTAS_MS = 300_000, 30_000
#: How often price services are asked. It may be many pages, so that this may take longer than other calls.
PRICES_MS = 86_400_000
PRICES_TIMEOUT_MS = 600_000
#: How often it is asked whether a hand has left a sign of life.
HAND_MS = 60_000
#: A question that failed is asked again after so long, and a profile with VMs in doubt is listed as often.
AGAIN_MS = 2_000
_AGAIN_MS = {Question.QUOTAS: 60_000, Question.PRICES: 3_600_000, Question.HAND: HAND_MS}
#: For so long a pass waits for what it has asked.
PATIENCE_MS = 1_000
_FAILED = {
    Question.LIST: "can't be listed",
    Question.OFFERINGS: "can't say what it offers",
    Question.QUOTAS: "can't say what is left of its quotas",
    Question.PRICES: "can't be asked for its prices",
    Question.HAND: "can't be asked whether its reaper is alive",
}
#: Those that passes wait for.
_WAITED = frozenset({Question.LIST, Question.OFFERINGS})


@dataclass(frozen=True, slots=True)
class Listed:
    """A listing that was begun at `started_ms` of the monotonic clock, when there were these rows."""

    listing: Listing
    started_ms: int
    rows: frozenset[InstanceId]


class Asking:
    def __init__(self, context: Context) -> None:
        self._c = context
        self._listed: dict[ProfileName, Listed] = {}
        #: When a question may be asked again that failed.
        self._again_ms: dict[str, int] = {}
        #: Questions for whose answers no pass waits any more.
        self._late: set[str] = set()
        self._due = {
            Question.LIST: self._list_is_due,
            Question.OFFERINGS: self._offerings_are_due,
            Question.QUOTAS: self._quotas_are_due,
            Question.PRICES: self._prices_are_due,
            Question.HAND: self._hand_is_due,
        }
        self._questions = {
            Question.LIST: self._list,
            Question.OFFERINGS: self._offer,
            Question.QUOTAS: self._ask_quotas,
            Question.PRICES: self._ask_prices,
            Question.HAND: self._ask_hand,
        }

    async def listings(self) -> dict[ProfileName, Listed]:
        """Ask whom it is time to ask; the listings that have come since the last time."""
        asked: dict[str, asyncio.Future[None]] = {}
        for profile in self._c.settings.providers:
            view = self._c.view(profile)
            for question, due in self._due.items():
                key = f"{question}:{profile}"
                again = self._c.clock.monotonic() >= self._again_ms.get(key, 0)
                if due(profile, view) and again and not self._c.calls.under_way(key):
                    answered = asyncio.get_running_loop().create_future()
                    if question in _WAITED:
                        asked[key] = answered
                    # turns of their own: whatever is launched and ended, VMs are still looked after
                    self._c.calls.start(key, self._ask(question, profile, view, answered), f"ask:{profile}")
        if asked:
            await asyncio.wait(asked.values(), timeout=PATIENCE_MS / 1000)
            self._late |= {key for key, answered in asked.items() if not answered.done()}
        found, self._listed = self._listed, {}
        return found

    async def _ask(
        self, question: Question, profile: ProfileName, view: ProfileView, answered: asyncio.Future[None]
    ) -> None:
        """One question; a bug of one driver must not keep the others' VMs from being looked after."""
        key, most_ms = f"{question}:{profile}", self._most_ms(question)
        problem = ""
        try:
            async with asyncio.timeout(most_ms / 1000):
                await self._questions[question](profile, view)
            self._again_ms.pop(key, None)
        except Exception as error:
            if not isinstance(error, (ProviderError, TimeoutError)):
                log.exception("provider.bug", profile=profile)
            problem = f"profile {profile} {_FAILED[question]}: {_words(error, most_ms)}"
            self._again_ms[key] = self._c.clock.monotonic() + _AGAIN_MS.get(question, AGAIN_MS)
        finally:
            if not answered.done():
                answered.set_result(None)
        before, view.problems[question] = view.problems.get(question, ""), problem
        if bool(problem) != bool(before):
            self._tell(question, profile, problem)
        if key in self._late:
            self._late.discard(key)
            self._c.wake(hurry=True)

    def _tell(self, question: Question, profile: ProfileName, problem: str) -> None:
        again = f"profile {profile} answers again"
        match question, bool(problem):
            case Question.LIST, True:
                self._c.note("provider.silent", detail=problem, warn=True)
            case Question.LIST, False:
                self._c.note("provider.answers", detail=again)
            case Question.OFFERINGS, True:
                self._c.note("provider.no-offerings", detail=problem, warn=True)
            case Question.OFFERINGS, False:
                self._c.note("provider.offers", detail=again)
            case Question.QUOTAS, True:
                self._c.note("provider.no-quotas", detail=problem, warn=True)
            case Question.QUOTAS, False:
                self._c.note("provider.quotas", detail=again)
            case Question.PRICES, True:
                self._c.note("provider.no-prices", detail=problem, warn=True)
            case Question.HAND, True:
                self._c.note("provider.no-signs", detail=problem, warn=True)
            case Question.HAND, False:
                self._c.note("provider.signs", detail=again)
            case _:
                self._c.note("provider.prices", detail=again)

    def _most_ms(self, question: Question) -> int:
        """How long its answer may take."""
        usual_ms = self._c.settings.timing.call_timeout_ms
        return max(usual_ms, PRICES_TIMEOUT_MS) if question is Question.PRICES else usual_ms

    # -- what it has
    def _list_is_due(self, profile: ProfileName, view: ProfileView) -> bool:
        if profile in self._listed:
            return False
        if view.listed_ms is None or view.problem:
            return True
        interval = self._c.settings.timing.list_interval_ms
        if self._wants_proof(profile):
            interval = min(interval, AGAIN_MS)
        return self._c.clock.monotonic() - view.listed_ms >= interval

    def _wants_proof(self, profile: ProfileName) -> bool:
        rows = self._c.store.instances()
        return any(rows[i].profile == profile for i in (*self._c.in_doubt, *self._c.absences) if i in rows)

    async def _list(self, profile: ProfileName, view: ProfileView) -> None:
        started, rows = self._c.clock.monotonic(), frozenset(self._c.store.instances())
        listing = await self._c.settings.providers[profile].list(self._c.settings.deployment)
        self._listed[profile] = Listed(listing, started, rows)

    # -- what it offers
    def _offerings_are_due(self, profile: ProfileName, view: ProfileView) -> bool:
        return view.offered_ms is None or self._c.clock.monotonic() - view.offered_ms > OFFERINGS_TTL_MS

    async def _offer(self, profile: ProfileName, view: ProfileView) -> None:
        started, prices_ms = self._c.clock.monotonic(), view.prices_ms
        admits = self._c.settings.profile_types.get(profile, TypeFilter()).admits
        offered = await self._c.settings.providers[profile].offerings()
        view.offerings = tuple(one for one in offered if admits(one.type.name))
        view.offered_ms = started if view.prices_ms == prices_ms else None  # prices that were told since are not in it
        self._heed_prices(profile, view)

    def _heed_prices(self, profile: ProfileName, view: ProfileView) -> None:
        """Say once that a limit keeps launches from offerings whose prices are too old: the tasks' own reasons tell
        whoever waits, not whoever can change it."""
        now = self._c.clock.now()
        old = [why for one in view.offerings if one.rate is not None and (why := stale_price(one, now))]
        if old and self._c.store.limits() and not view.old_prices:
            count = f"{len(old)} of {len(view.offerings)} offerings"
            detail = f"profile {profile}: under a limit nothing is launched on {count}; {old[0]}"
            self._c.note("provider.prices-old", detail=detail, warn=True)
        view.old_prices = bool(old and self._c.store.limits())

    # -- what is left of quotas
    def _quotas_are_due(self, profile: ProfileName, view: ProfileView) -> bool:
        if not self._c.settings.providers[profile].traits.quotas:
            return False
        if view.quotas_ms is None:
            return True
        since_ms = self._c.clock.monotonic() - view.quotas_ms
        hold_work = self._quotas_hold_work()
        if since_ms >= (DOUBTED_QUOTAS_MS if view.quotas_doubted or hold_work else QUOTAS_MS):
            return True
        return hold_work and since_ms >= AGAIN_MS and self._ours(profile) < view.quotas_rows

    def _quotas_hold_work(self) -> bool:
        """Whether tasks wait for one: what has ended since the last answer, ours or not, may have made room."""
        return self._c.last is not None and any(Obstacle.QUOTA in one.obstacles for one in self._c.last[1].waiting)

    def _ours(self, profile: ProfileName) -> int:
        return sum(row.profile == profile for row in self._c.store.instances().values())

    async def _ask_quotas(self, profile: ProfileName, view: ProfileView) -> None:
        started, doubted, view.quotas_doubted = self._c.clock.monotonic(), view.quotas_doubted, False
        rows, asked_ms = self._ours(profile), self._c.clock.now()
        try:
            view.quotas = tuple(await self._c.settings.providers[profile].quotas())
        except BaseException:
            view.quotas_doubted |= doubted
            raise
        view.quotas_ms, view.quotas_rows, view.quotas_asked_ms = started, rows, asked_ms

    # -- what it costs
    def _prices_are_due(self, profile: ProfileName, view: ProfileView) -> bool:
        """Not before it has said what it offers: its launches wait for that."""
        if view.offered_ms is None or not self._c.settings.providers[profile].traits.prices:
            return False
        known_ms = self._c.settings.prices_ms.get(profile, 0) if view.prices_ms is None else view.prices_ms
        return not 0 <= self._c.clock.now() - known_ms < PRICES_MS

    async def _ask_prices(self, profile: ProfileName, view: ProfileView) -> None:
        """What is told counts with the next offerings (`provider.priced`), which are asked for at once."""
        started = self._c.clock.now()
        await self._c.settings.providers[profile].prices()
        view.prices_ms, view.offered_ms = started, None

    # -- whether the hand beside the cloud is alive
    def _hand_is_due(self, profile: ProfileName, view: ProfileView) -> bool:
        if not self._c.settings.providers[profile].traits.hand_period_ms:
            return False
        return view.heard_ms is None or self._c.clock.monotonic() - view.heard_ms >= HAND_MS

    async def _ask_hand(self, profile: ProfileName, view: ProfileView) -> None:
        """A question that fails leaves what was heard before, which grows old."""
        provider, started = self._c.settings.providers[profile], self._c.clock.monotonic()
        try:
            view.heard = await provider.heard(self._c.settings.deployment)
            view.heard_ms = started
        finally:
            known = view.heard
            why = "" if known is None else hand.silence(known, provider.traits, self._c.clock.now())
            self._heed_hand(profile, view, f"profile {profile}: its reaper is not alive: {why}" if why else "")

    def _heed_hand(self, profile: ProfileName, view: ProfileView, silence: str) -> None:
        """Say once that hard ends may be kept by nobody but this dispatcher, and once that they are again."""
        before, view.silence = view.silence, silence
        if silence and not before:
            self._c.note("reaper.silent", detail=silence, warn=True)
        elif before and not silence:
            self._c.note("reaper.heard", detail=f"profile {profile}: its reaper is alive again")


def _words(error: Exception, most_ms: int) -> str:
    """What went wrong, for whoever has to put it right."""
    return (
        f"no answer within {format_duration(most_ms)}"
        if isinstance(error, TimeoutError)
        else f"{type(error).__name__}: {error}"
    )
