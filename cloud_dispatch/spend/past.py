"""VMs that are gone, the newest of them, by what they were made from. Owns the bound on what breakers remember. What is
remembered of spot VMs is beside it (`spot`)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from cloud_dispatch.spend.breaker import Departed, History, Kind, News, Recipe, moment, news_of
from cloud_dispatch.spend.spot_past import SpotPast

#: Older ones are forgotten.
MOST = 10_000


class _Known:
    """A history that news come to and go from: they come about as they happened, so that little is moved."""

    def __init__(self, news: Iterable[News]) -> None:
        self._failures: list[News] = []
        self._successes: list[int] = []
        self.history = History(self._failures, self._successes)
        for one in news:
            self.add(one)

    def add(self, news: News) -> None:
        if news.success:
            insort(self._successes, news.at_ms)
        else:
            insort(self._failures, news, key=moment)

    def forget(self, news: News) -> None:
        if news.success:
            del self._successes[bisect_left(self._successes, news.at_ms)]
        else:
            del self._failures[self._failures.index(news, bisect_left(self._failures, news.at_ms, key=moment))]


class Past:
    """Of what nothing has failed nothing is looked for: in a healthy deployment this costs nothing."""

    def __init__(self, departed: Iterable[Departed] = ()) -> None:
        self._gone: deque[Departed] = deque()
        self._failures: dict[Recipe, int] = {}
        self._failed_ms: dict[Recipe, int] = {}
        self._known: dict[Recipe, _Known] = {}
        self.spot = SpotPast()
        for one in departed:
            self.add(one)

    def __len__(self) -> int:
        return len(self._gone)

    def add(self, gone: Departed) -> None:
        """One more is gone, after all others."""
        self._gone.append(gone)
        for kind, news in news_of(gone):
            recipe = gone.recipe(kind)
            if recipe in self._known:
                self._known[recipe].add(news)
            if not news.success:
                self._failures[recipe] = self._failures.get(recipe, 0) + 1
                self._failed_ms[recipe] = max(self._failed_ms.get(recipe, 0), news.at_ms)
        if len(self._gone) > MOST:
            self._forget(self._gone.popleft())

    def _forget(self, gone: Departed) -> None:
        """The oldest one."""
        for kind, news in news_of(gone):
            recipe = gone.recipe(kind)
            if recipe in self._known:
                self._known[recipe].forget(news)
            if not news.success:
                self._failures[recipe] -= 1
                if not self._failures[recipe]:
                    del self._failures[recipe], self._failed_ms[recipe]
                    self._known.pop(recipe, None)

    @property
    def failing(self) -> Mapping[Recipe, int]:
        """The recipes of which something has failed, however long ago, each with the moment of the last failure."""
        return self._failed_ms

    def of(self, recipe: Recipe) -> History:
        """What has become of VMs of this recipe. Not to be kept: it changes as VMs go."""
        known = self._known.get(recipe)
        if known is None:
            mine = (one for one in self._gone if _is_of(one, recipe))
            known = _Known(news for one in mine for kind, news in news_of(one) if kind is recipe.kind)
            self._known[recipe] = known
        return known.history

    def all(self) -> Sequence[Departed]:
        """Everything that is remembered, in order."""
        return tuple(self._gone)


def _is_of(gone: Departed, recipe: Recipe) -> bool:
    return (
        gone.template == recipe.template
        and gone.zone == recipe.zone
        and gone.image == recipe.image
        and gone.profile == recipe.profile
        and (recipe.kind is Kind.BOOT or gone.pool == recipe.pool)
    )
