"""Which tasks are of one kind."""

from __future__ import annotations

import msgspec
import pytest

from cloud_dispatch.api.kinds import kind_of
from cloud_dispatch.domain.task import TaskSpec


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({"argv": ["./fit", "17"], "project": "lab", "user": "ann"}, "./fit of lab/ann"),
        ({"argv": ["./fit", "18"]}, "./fit"),
        ({"shell": "python3 train.py --seed 3", "user": "ann"}, "python3 of ann"),
        ({"argv": ["./fit", "17"], "project": "lab", "array_id": "17", "array_index": 3}, "array 17"),
        ({"argv": ["x" * 500]}, "x" * 80),
        ({"shell": "  "}, ""),
        ({"shell": " SEED=17 ./fit 3"}, "./fit"),
        ({"shell": 'TOKEN=\'a b\' B="c \\" d" C=e\\ f ./fit'}, "./fit"),
        ({"shell": "TOKEN='never closed ./fit"}, ""),
        ({"shell": "TOKEN=only"}, ""),
    ],
)
def test_a_kind_is_an_array_or_a_program_and_whose_it_is(spec: dict[str, object], kind: str) -> None:
    assert kind_of(msgspec.json.encode(spec)) == kind


def test_it_reads_fields_that_specifications_have() -> None:
    assert {"argv", "shell", "project", "user", "array_id"} <= set(TaskSpec.__dataclass_fields__)
