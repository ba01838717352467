"""The reaper's rule: ends exactly what is ours, whole and past its end; and wrong rules are told from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import BatchId, PoolName, VmId
from cloud_dispatch.domain.reaper import Tagged, overdue, unreadable

NOW = 1_700_000_000_000
FACTS = tags.VmTags("lab", "store-1", PoolName("p"), BatchId("abc"), 5, NOW)
VM = VmId("v")
Rule = Callable[[Iterable[Tagged], int, str], list[VmId]]


def worn(deployment: str = "lab", ends_ms: int = NOW) -> dict[str, str]:
    return replace(FACTS, deployment=deployment, ends_ms=ends_ms).encode()


def without(key: str) -> dict[str, str]:
    return {name: value for name, value in worn().items() if name != key}


#: What a VM wears, the deployment that is asked for, and whether it ends at NOW.
CASES: dict[str, tuple[Mapping[str, str], str, bool]] = {
    "the end is now": (worn(), "lab", True),
    "the end was long ago": (worn(ends_ms=1), "lab", True),
    "the end is a millisecond away": (worn(ends_ms=NOW + 1), "lab", False),
    "no end": (worn(ends_ms=0), "lab", False),
    "an end before the epoch": (worn(ends_ms=-5), "lab", False),
    "another deployment": (worn("other"), "lab", False),
    "a deployment that begins alike": (worn("lab-2"), "lab", False),
    "any of ours": (worn("other"), "", True),
    "any of ours, of no deployment": (worn(""), "", False),
    "no tags": ({}, "", False),
    "somebody else's tags": ({"Name": "database", "ends-at": "1"}, "", False),
    "nothing but the end": ({tags.ENDS_AT: "1"}, "", False),
    "an end in words": ({**worn(), tags.ENDS_AT: "yesterday"}, "lab", False),
    "an empty end": ({**worn(), tags.ENDS_AT: ""}, "lab", False),
    "an end with a fraction": ({**worn(), tags.ENDS_AT: "1.5"}, "lab", False),
    "another schema": ({**worn(), tags.SCHEMA_KEY: "2"}, "lab", False),
    "held by an operator": ({**worn(), tags.BEHAVIOUR: "hold"}, "lab", True),
    **{f"without {key}": (without(key), "", False) for key in worn() if key != tags.BEHAVIOUR},
}


@pytest.mark.parametrize(("given_tags", "deployment", "ends"), CASES.values(), ids=CASES)
def test_a_vm_ends_by_its_tags_and_the_time(given_tags: Mapping[str, str], deployment: str, ends: bool) -> None:
    """At its end and after it, and only if its tags are ours, whole, readable and of the deployment asked for."""
    assert overdue([(VM, given_tags)], NOW, deployment) == ([VM] if ends else [])


def test_what_can_not_be_read_is_reported_and_not_ended() -> None:
    """A VM that says it is ours and can't be read is nobody's to end but an operator's: he has to be told."""
    vms = [
        (VmId("words"), {**worn(), tags.ENDS_AT: "yesterday"}),
        (VmId("half"), without(tags.BATCH)),
        (VmId("whole"), worn()),
        (VmId("foreign"), {"Name": "database"}),
        (VmId("other"), {**worn("other"), tags.RATE: "much"}),
    ]
    assert unreadable(vms, "lab") == ["words", "half"]
    assert unreadable(vms) == ["words", "half", "other"]
    assert overdue(vms, NOW, "lab") == ["whole"]


#: Fleets near the edges of the rule: ends around NOW, two deployments, and tags that somebody has damaged.
ENDS = st.sampled_from([-1, 0, 1, NOW - 1, NOW, NOW + 1, 2 * NOW])
DAMAGE = st.sampled_from(["", "", "", *worn()])
FLEETS = st.lists(
    st.builds(
        lambda deployment, ends, damaged, value: (
            {**worn(deployment, ends), **({damaged: value} if damaged else {})}
            if value or not damaged
            else {key: text for key, text in worn(deployment, ends).items() if key != damaged}
        ),
        st.sampled_from(["lab", "other", ""]), ENDS, DAMAGE, st.sampled_from(["", "x", "1", "lab", str(NOW)]),
    ),
    max_size=6,
).map(lambda fleet: [(VmId(f"v{n}"), given_tags) for n, given_tags in enumerate(fleet)])  # fmt: skip
ASKED = st.sampled_from(["lab", "other", ""])
SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)


@SETTINGS
@given(FLEETS, ASKED, st.sampled_from([0, NOW - 1, NOW, NOW + 1]))
def test_the_rule_ends_what_is_ours_and_past_its_end_and_nothing_else(
    fleet: list[Tagged], asked: str, now: int
) -> None:
    """For any fleet: the ended carry whole tags of the deployment and an end that has come; the others lack one."""
    ended = overdue(fleet, now, asked)
    assert ended == [vm for vm, _ in fleet if vm in set(ended)]
    for vm, given_tags in fleet:
        facts = tags.decode(given_tags)
        due = facts is not None and facts.deployment != "" and asked in ("", facts.deployment)
        assert (vm in ended) == (due and facts is not None and facts.ends_ms > 0 and now >= facts.ends_ms)
    assert not set(ended) & set(unreadable(fleet, asked))


@SETTINGS
@given(FLEETS, ASKED, st.integers(0, 2 * NOW), st.integers(0, NOW))
def test_time_only_adds_to_what_is_ended(fleet: list[Tagged], asked: str, now: int, later: int) -> None:
    """What is past its end stays so; and a VM's verdict does not depend on which others there are."""
    assert set(overdue(fleet, now, asked)) <= set(overdue(fleet, now + later, asked))
    assert overdue(fleet, now, asked) == [vm for each in fleet for vm in overdue([each], now, asked)]


def _other_deployments(vms: Iterable[Tagged], now: int, deployment: str) -> list[VmId]:
    return overdue(vms, now)


def _too_late(vms: Iterable[Tagged], now: int, deployment: str) -> list[VmId]:
    return overdue(vms, now - 1, deployment)


def _too_early(vms: Iterable[Tagged], now: int, deployment: str) -> list[VmId]:
    return overdue(vms, now + 1, deployment)


def _zero_is_an_end(vms: Iterable[Tagged], now: int, deployment: str) -> list[VmId]:
    return overdue([(vm, {**w, **({tags.ENDS_AT: "1"} if w.get(tags.ENDS_AT) == "0" else {})}) for vm, w in vms],
                   now, deployment)  # fmt: skip


def _any_end_will_do(vms: Iterable[Tagged], now: int, deployment: str) -> list[VmId]:
    return [vm for vm, w in vms if w.get(tags.ENDS_AT, "").isdecimal() and 0 < int(w[tags.ENDS_AT]) <= now]


def _unreadable_is_past(vms: Iterable[Tagged], now: int, deployment: str) -> list[VmId]:
    vms = list(vms)
    return [*overdue(vms, now, deployment), *unreadable(vms, deployment)]


def _begins_alike(vms: Iterable[Tagged], now: int, deployment: str) -> list[VmId]:
    return overdue([(vm, w) for vm, w in vms if w.get(tags.DEPLOYMENT, "").startswith(deployment)], now)


def _nobody_ends(vms: Iterable[Tagged], now: int, deployment: str) -> list[VmId]:
    return []


@pytest.mark.parametrize(
    "wrong",
    [_other_deployments, _too_late, _too_early, _zero_is_an_end, _any_end_will_do, _unreadable_is_past, _begins_alike,
     _nobody_ends],
)  # fmt: skip
def test_a_wrong_rule_is_found_by_the_cases(wrong: Rule) -> None:
    """Each mistake that a rule could have gives a wrong answer to some case above: the cases can fail."""
    found = [
        name
        for name, (given_tags, deployment, ends) in CASES.items()
        if wrong([(VM, given_tags)], NOW, deployment) != ([VM] if ends else [])
    ]
    assert found, f"no case tells {wrong.__name__} from the rule"
