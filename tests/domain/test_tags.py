"""Tags: complete, read back as written, and nothing is taken for ours that is not whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, instance_id, slot_of
from cloud_dispatch.domain.instance import Behaviour

FACTS = tags.VmTags("lab", "store-1", PoolName("p"), BatchId("abc"), 5, 1234, Behaviour.HOLD)


def test_tags_come_back_as_written() -> None:
    """Encode, decode: the same facts."""
    assert tags.decode(FACTS.encode()) == FACTS
    bound = replace(FACTS, slot=7)
    assert tags.decode(bound.encode()) == bound


def test_incomplete_or_foreign_tags_are_not_ours() -> None:
    """A VM whose tags lack anything, or are of another schema, is left alone."""
    whole = FACTS.encode()
    assert tags.decode({}) is None
    for key in whole:
        if key != tags.BEHAVIOUR:
            assert tags.decode({k: v for k, v in whole.items() if k != key}) is None
    assert tags.decode({**whole, tags.SCHEMA_KEY: "2"}) is None
    assert tags.decode({**whole, tags.RATE: "a lot"}) is None


def test_numbers_that_nobody_can_keep_are_no_facts() -> None:
    """Others of the account may have written them: a price that nothing has is unknown, and the rest is not whole."""
    for rate in (2**63, 10**16, -2):
        found = tags.decode({**FACTS.encode(), tags.RATE: str(rate)})
        assert found == replace(FACTS, rate=-1)
    assert tags.decode({**FACTS.encode(), tags.ENDS_AT: str(2**63)}) is None
    assert tags.decode({**FACTS.encode(), tags.SLOT: str(-(2**70))}) is None


def test_instance_ids_name_batch_and_slot() -> None:
    """Both ways."""
    assert slot_of(instance_id(BatchId("abc"), 7)) == ("abc", 7)
    with pytest.raises(ValueError, match="BATCH-SLOT"):
        slot_of(InstanceId("abc"))
