"""What could be rented now, for people and JSON. Owns the answer's form, and that money is asked of the cheapest only:
each question is an account of what is left, and there may be thousands of offerings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cloud_dispatch.domain.ids import BatchId, ProfileName
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner.offers import Excluded, Offer, Ranking
from cloud_dispatch.planner.snapshot import Snapshot
from cloud_dispatch.ports.executor import give_way
from cloud_dispatch.reconcile import picture
from cloud_dispatch.reconcile.context import Context, Question
from cloud_dispatch.reconcile.launch import slots_of
from cloud_dispatch.reconcile.spend import Spending, lag_ms

#: Why money keeps an offering from a pool, "" where it does not.
Refusal = Callable[[Pool, Offering], str]
UNPRICED = "a limit covers it, and what it can cost at most is not known"
#: So many questions about money take two milliseconds.
JUDGED_AT_ONCE = 20


async def live(context: Context, spending: Spending, shape: Shape, limit: int) -> dict[str, Any]:
    """By all that the dispatcher knows now; changes nothing."""
    snapshot = picture.take(context, ())
    ranking, rest = await context.planning.run(_ranked, snapshot, shape)
    views = context.profiles.items()
    unknown = [(name, problem) for name, view in views if (problem := view.problems.get(Question.QUOTAS, ""))]
    return await answer(snapshot, ranking, rest, await _by_money(context, spending), limit, unknown)


def shape_of(asked: Mapping[str, Any]) -> Shape:
    """What a task would ask for, by the names of the route's query; amounts in millicpus and bytes."""
    amounts = Resources(asked["cpus_milli"], asked["memory"], asked["disk"], asked["gpus"])
    labels = tuple((name, asked[name]) for name in ("arch", "market") if asked[name])
    return Shape(amounts, gpu_type=asked["gpu_type"], labels=labels, pool=asked["pool"])


def _ranked(snapshot: Snapshot, shape: Shape) -> tuple[Ranking, list[Excluded]]:
    ranking = Ranking(snapshot, shape)
    return ranking, ranking.excluded()


async def _by_money(context: Context, spending: Spending) -> Refusal:
    left, heads = await spending.left(), spending.heads()

    def refusal(pool: Pool, offering: Offering) -> str:
        if left is None:
            return ""
        now, lag = context.clock.now(), lag_ms(context.settings, offering.profile)
        ends = spending.ends_of(pool, offering, now, heads)
        (one,) = slots_of(BatchId("none"), pool, offering, 1, now, ends.ends_ms, lag)
        if one.max_rate is None and spending.covers(one):
            return UNPRICED
        return spending.refusal(left, one, ends, offering)

    return refusal


async def answer(
    snapshot: Snapshot, ranking: Ranking, rest: Sequence[Excluded], refusal: Refusal, limit: int,
    unknown: Sequence[tuple[ProfileName, str]],
) -> dict[str, Any]:  # fmt: skip
    """The cheapest `limit` that could be rented, and the rest by its reasons. `unknown`: profiles whose quotas
    could not be asked, and why."""
    offers: list[dict[str, Any]] = []
    reasons: dict[str, list[Offering]] = {}
    judged = 0
    for one in ranking.offers:
        if len(offers) >= limit:
            break
        judged += 1
        if not judged % JUDGED_AT_ONCE:
            await give_way()
        said = {pool.name: refusal(pool, one.offering) for pool in one.pools}
        pools = [name for name, why in said.items() if not why]
        if pools:
            offers.append(_row(one, pools))
        else:
            reasons.setdefault("; ".join(dict.fromkeys(said.values())), []).append(one.offering)
    for excluded in rest:
        reasons.setdefault(excluded.why, []).append(excluded.offering)
    problems = dict(snapshot.problems)
    return {
        "offers": offers,
        "more": len(ranking.offers) - judged,
        "excluded": [{"reason": why, "offerings": [one.key for one in those]} for why, those in reasons.items()],
        "unseen": [{"profile": name, "problem": problems.get(name, "")} for name in ranking.unseen],
        "quotas_unknown": [{"profile": name, "problem": problem} for name, problem in unknown],
        "stopped": str(snapshot.stop) if snapshot.stop.launches else "",
    }


def _row(one: Offer, pools: Sequence[str]) -> dict[str, Any]:
    offering = one.offering
    return {
        "offering": offering.key,
        "profile": offering.profile,
        "type": offering.type.name,
        "zone": offering.zone,
        "market": str(offering.market),
        "pools": list(pools),
        "cpus_milli": offering.type.capacity.cpus_milli,
        "memory": offering.type.capacity.memory,
        "gpus": offering.type.capacity.gpus,
        "gpu_type": offering.type.gpu_type,
        "rate_nano": offering.rate,
        "highest_rate_nano": offering.highest_rate,
        "extra_rate_nano": offering.extra_rate,
        "estimated": offering.estimated,
        "priced_ms": offering.priced_ms,
    }
