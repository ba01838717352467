"""Drivers that are wrong about tags, beside those of `broken`; loading them adds them to its list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.errors import Transient
from cloud_dispatch.provider.spi import Vm
from tests.providers.broken import PLANTED, Planted, breaks
from tests.providers.memory import TOKENS, MemoryProvider, Record

__all__ = ["PLANTED", "Planted", "breaks"]


@breaks("test_tags_are_whole_and_can_be_changed")
class ReplacesAllTags(MemoryProvider):
    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        for record in self.among(vms):
            record.tags = dict(tags)
        return frozenset()


@breaks("test_tags_of_one_batch_are_told_apart")
class TagsTheBatch(MemoryProvider):
    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        batches = {record.request.batch for record in self.among(vms)}
        for record in self.cloud.living():
            if record.request.batch in batches:
                record.tags.update(tags)
        return frozenset()


@breaks("test_vms_are_tagged_together", TOKENS)
class TagsTheFirst(MemoryProvider):
    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        return await super().tag(vms[:1], tags)


@breaks("test_vms_are_tagged_together", TOKENS)
class TagsEverybody(MemoryProvider):
    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        for record in self.cloud.living():
            record.tags.update(tags)
        return await super().tag(vms, tags)


@breaks("test_a_vm_that_is_not_there_keeps_no_other_from_its_tags", TOKENS)
class StopsWhereOneIsMissing(MemoryProvider):
    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        for position, vm in enumerate(vms):
            if vm not in self.cloud.records:
                return frozenset(vms[position:])
            await super().tag([vm], tags)
        return frozenset()


@breaks("test_a_vm_that_is_not_there_keeps_no_other_from_its_tags", TOKENS)
class RaisesWhereOneIsMissing(MemoryProvider):
    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        for vm in vms:
            self.find(vm)
        return await super().tag(vms, tags)


@breaks("test_more_vms_than_a_call_may_name_are_refused")
@breaks("test_more_vms_than_a_call_may_name_are_refused", TOKENS)
class TakesAnyNumber(MemoryProvider):
    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        missing = [await super(TakesAnyNumber, self).tag([vm], tags) for vm in vms]
        return frozenset().union(*missing)


@breaks("test_a_value_comes_back_as_it_went")
class BendsValues(MemoryProvider):
    def show(self, record: Record) -> Vm:
        vm = super().show(record)
        return replace(vm, tags={key: value.lower().replace(".", "-")[:60] for key, value in vm.tags.items()})


@breaks("test_tags_of_no_vm_are_not_found")
class TagsNothing(MemoryProvider):
    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        await super().tag(vms, tags)
        return frozenset()


@breaks("test_a_failed_tag_changes_nothing")
class SaysNothingOfFailedTags(MemoryProvider):
    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        try:
            return await super().tag(vms, tags)
        except Transient:
            return frozenset()
