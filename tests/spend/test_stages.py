from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.spend.budget import Budget, Stage
from cloud_dispatch.spend.commitment import EVERYTHING, Commitment, Key, Scope
from cloud_dispatch.spend.stages import reached
from cloud_dispatch.spend.standing import Account, Standing
from cloud_dispatch.spend.windows import Window, span_at

DOLLAR = 1_000_000
NOW = span_at(Window.DAY, 1_798_750_000_000).start_ms + 2 * HOUR_MS
AWS = Key(Scope.DRIVER, "aws")


def test_what_living_vms_have_cost_until_now_counts_and_what_they_may_still_cost_does_not() -> None:
    """A dollar an hour since three hours ago, of which two are of today, and for ten hours more."""
    vm = Commitment("vm", (EVERYTHING, AWS), Rate(1_000_000_000), NOW - 3 * HOUR_MS, NOW + 10 * HOUR_MS)
    budgets = [
        Budget(EVERYTHING, Window.TOTAL, Amount(100 * DOLLAR)),
        Budget(AWS, Window.DAY, Amount(4 * DOLLAR), 50, 75, 100),
        Budget(Key(Scope.DRIVER, "gcp"), Window.DAY, Amount(4 * DOLLAR)),
    ]
    spent = {Account(AWS, Window.DAY, span_at(Window.DAY, NOW).start_ms): Amount(DOLLAR)}
    found = reached(budgets, Standing(budgets, spent, [vm], NOW), [vm], NOW)
    assert [(one.spent, one.stage) for one in found] == [
        (3 * DOLLAR, Stage.CALM), (3 * DOLLAR, Stage.NO_LAUNCH), (0, Stage.CALM),
    ]  # fmt: skip


def test_a_vm_past_its_end_has_cost_no_more_than_until_then() -> None:
    """It is still asked for, though its hand has ended it; the window is that of the moment."""
    vm = Commitment("vm", (EVERYTHING,), Rate(1_000_000_000), NOW - 2 * HOUR_MS, NOW - HOUR_MS)
    budget = Budget(EVERYTHING, Window.DAY, Amount(100 * DOLLAR))
    (one,) = reached([budget], Standing([budget], {}, [vm], NOW), [vm], NOW)
    assert (one.budget, one.span, one.spent) == (budget, span_at(Window.DAY, NOW), DOLLAR)
