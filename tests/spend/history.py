"""A toy world for the arithmetic of limits: commitments are asked for, prolonged and closed, and a meter bills what
really was. Nothing here knows how `Standing` decides."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from cloud_dispatch.domain.money import Amount, Rate, billed_ms, cost
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Commitment
from cloud_dispatch.spend.standing import Account, Standing
from cloud_dispatch.spend.windows import span_at, spans

START_MS = 1_798_750_000_000  # some hours before the end of a year
Admits = Callable[[Standing, Commitment, Commitment | None], bool]


@dataclass
class World:
    """What exists and what was booked; `admits` is the rule under test."""

    budgets: Sequence[Budget]
    admits: Admits
    now_ms: int = START_MS
    living: dict[str, Commitment] = field(default_factory=dict)
    booked: dict[Account, Amount] = field(default_factory=dict)
    #: What really was: rate, start and billed end of everything that ever lived, with its keys.
    bills: list[tuple[Commitment, Rate, int, int]] = field(default_factory=list)
    refused: int = 0

    def standing(self) -> Standing:
        return Standing(self.budgets, self.booked, self.living.values(), self.now_ms)

    def ask(self, wanted: Commitment) -> None:
        if self.admits(self.standing(), wanted, self.living.get(wanted.name)):
            self.living[wanted.name] = wanted
        else:
            self.refused += 1

    def close(self, name: str, chance: Random) -> None:
        """It turns out when and at which price it ran: anything that its commitment allows."""
        promised = self.living.pop(name)
        latest = max(min(promised.begins_by_ms, self.now_ms), promised.from_ms)
        start = chance.choice([promised.from_ms, latest, chance.randint(promised.from_ms, latest)])
        last = min(max(self.now_ms, start), max(promised.until_ms, start))
        end = chance.choice([start, last, chance.randint(start, last)])
        rate = Rate(chance.choice([promised.rate, chance.randint(0, promised.rate)]))
        until = start + billed_ms(end - start, minimum_ms=promised.minimum_ms, increment_ms=promised.increment_ms)
        self.bills.append((promised, rate, start, until))
        for key in promised.keys:
            for window in {budget.window for budget in self.budgets if budget.key == key}:
                for span in spans(window, start, until):
                    account = Account(key, window, span.start_ms)
                    amount = cost(rate, span.overlap_ms(start, until))
                    self.booked[account] = Amount(self.booked.get(account, Amount(0)) + amount)

    def overspent(self) -> list[str]:
        """Windows of budgets in which the meter has more than the limit, everything that lives having lived to the
        last moment at the full price, in each window as late or as early as is worst there."""
        meter: dict[tuple[Budget, int], int] = defaultdict(int)
        worst = [(c, c.rate, c.from_ms, c.billed_until_ms, c.most_ms) for c in self.living.values()]
        bills = [(promised, rate, start, until, until - start) for promised, rate, start, until in self.bills]
        for promised, rate, start, until, most_ms in [*bills, *worst]:
            for budget in self.budgets:
                if budget.key in promised.keys:
                    for span in spans(budget.window, start, until):
                        meter[budget, span.start_ms] += cost(rate, min(span.overlap_ms(start, until), most_ms))
        return [
            f"{budget.name}: {amount} of {budget.limit} in {span_at(budget.window, start)}"
            for (budget, start), amount in meter.items()
            if amount > budget.limit
        ]


def live(world: World, steps: int, seed: int, make: Callable[[Random, str, int], Commitment]) -> None:
    """A random history: time passes, things are asked for, prolonged and closed."""
    chance = Random(seed)
    for number in range(steps):
        world.now_ms += chance.choice([0, 1, 60_000, chance.randint(0, 7_200_000)])
        for name in [name for name, one in world.living.items() if one.until_ms <= world.now_ms]:
            world.close(name, chance)
        names = list(world.living)
        if names and chance.random() < 0.3:
            one = world.living[chance.choice(names)]
            world.ask(replace(one, until_ms=one.until_ms + chance.randint(1, 7_200_000)))
        elif names and chance.random() < 0.3:
            world.close(chance.choice(names), chance)
        else:
            world.ask(make(chance, f"vm-{number}", world.now_ms))
