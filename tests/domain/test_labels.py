"""Tags as labels: everything comes back, what Google would refuse is never sent, and others' labels stay."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain import labels
from cloud_dispatch.domain.ids import BatchId, PoolName
from cloud_dispatch.domain.tags import POOL, PREFIX, VmTags

TAGS = VmTags("lab", "store-1", PoolName("default"), BatchId("b1"), 97_118_000, 1_795_000_000_000).encode()
LABEL = re.compile(r"[a-z0-9_-]{0,63}")


@given(st.text(max_size=35))
def test_any_value_comes_back_as_it_went(value: str) -> None:
    made = labels.of_tags({POOL: value})
    assert all(LABEL.fullmatch(part) for part in made.values())
    assert all(re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key) for key in made)
    assert labels.to_tags(made) == {POOL: value}


@given(st.text(max_size=30), st.text(max_size=30))
def test_two_values_are_never_one_label(first: str, second: str) -> None:
    """A filter for one deployment must not find another's VMs."""
    assert (labels.encoded(first) == labels.encoded(second)) == (first == second)


@given(st.text(max_size=30))
def test_what_was_not_ours_is_not_read_as_ours(text: str) -> None:
    """A label that nobody of us wrote is no tag, or is what we would write for it."""
    value = labels.decoded(text)
    assert value is None or labels.decoded(labels.encoded(value)) == value


def test_ordinary_values_are_readable() -> None:
    assert labels.encoded("gpu-pool") == "gpu-pool"
    assert labels.encoded("Mixed-Case_09.a") == "_mixed-_case__09_1a"


@pytest.mark.parametrize("text", ["_", "_9", "_0", "_0zz", "_0ff", "a_8"])
def test_labels_that_are_no_code_are_left_out(text: str) -> None:
    assert labels.decoded(text) is None
    assert labels.to_tags({POOL: text, "team": "x"}) == {}


def test_a_set_of_tags_fits_and_others_are_kept() -> None:
    """An operator's labels and Google's stay; of a longer value that was there before, nothing does."""
    worn = {**labels.of_tags({**TAGS, POOL: "P" * 60}), "team": "batch", "goog-x": "1"}
    assert f"{POOL}_2" in worn
    changed = labels.merged(worn, {POOL: "q"})
    assert labels.to_tags(changed) == {**TAGS, POOL: "q"}
    assert (changed["team"], changed["goog-x"]) == ("batch", "1")
    assert f"{POOL}_2" not in changed
    assert len(labels.of_tags(TAGS)) <= labels.MOST_LABELS


@pytest.mark.parametrize(
    "tags",
    [{"Upper": "x"}, {"a.b": "x"}, {"a_2": "x"}, {"": "x"}, {"9a": "x"}, {"a": "x" * 600}, {"k" * 62: "x"}],
    ids=str,
)
def test_what_does_not_go_into_labels_is_refused(tags: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"^tag "):
        labels.of_tags(tags)


def test_more_labels_than_a_vm_can_have_are_refused() -> None:
    with pytest.raises(ValueError, match="65 labels"):
        labels.of_tags({f"{PREFIX}{number}": "x" for number in range(65)})


def test_a_filter_names_every_part() -> None:
    assert labels.filter_of(POOL, "a.b") == f'labels.{POOL}="a_1b"'
    assert labels.filter_of(POOL, "x" * 64) == f'labels.{POOL}="{"x" * 63}" AND labels.{POOL}_2="x"'
