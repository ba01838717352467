"""VMs that are gone, the newest of them, by what they were made from. Owns the bound on what breakers remember."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence, Set

from cloud_dispatch.spend.breaker import Departed, Kind, News, Recipe, news_of

#: Older ones are forgotten.
MOST = 10_000


class Past:
    """Of what nothing has failed nothing is looked for: in a healthy deployment this costs nothing."""

    def __init__(self, departed: Iterable[Departed] = ()) -> None:
        self._gone: deque[Departed] = deque()
        self._failures: dict[Recipe, int] = {}
        self._known: dict[Recipe, list[News]] = {}
        for one in departed:
            self.add(one)

    def add(self, gone: Departed) -> None:
        """One more is gone, after all others."""
        self._known.clear()
        self._gone.append(gone)
        self._count(gone, 1)
        if len(self._gone) > MOST:
            self._count(self._gone.popleft(), -1)

    @property
    def failing(self) -> Set[Recipe]:
        """The recipes of which something has failed, however long ago."""
        return self._failures.keys()

    def of(self, recipe: Recipe) -> Sequence[News]:
        """What has become of VMs of this recipe."""
        known = self._known.get(recipe)
        if known is None:
            mine = (one for one in self._gone if _is_of(one, recipe))
            known = self._known[recipe] = [
                news for one in mine for kind, news in news_of(one) if kind is recipe.kind
            ]  # fmt: skip
        return known

    def all(self) -> Sequence[Departed]:
        """Everything that is remembered, in order."""
        return tuple(self._gone)

    def _count(self, gone: Departed, step: int) -> None:
        for kind, news in news_of(gone):
            if not news.success:
                recipe = gone.recipe(kind)
                count = self._failures.get(recipe, 0) + step
                if count:
                    self._failures[recipe] = count
                else:
                    del self._failures[recipe]


def _is_of(gone: Departed, recipe: Recipe) -> bool:
    return (
        gone.template == recipe.template
        and gone.zone == recipe.zone
        and gone.image == recipe.image
        and gone.profile == recipe.profile
        and (recipe.kind is Kind.BOOT or gone.pool == recipe.pool)
    )
