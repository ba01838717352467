"""Drivers that are wrong about what goes wrong. Loading them adds them to the list of the other `broken` ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.provider.errors import CredentialsRejected, ProviderError, Scope, Transient, VmNotFound
from cloud_dispatch.provider.spi import (
    HardEnd,
    LaunchRequest,
    LaunchResult,
    Leftover,
    Listing,
    Operation,
    Price,
    Quota,
    Vm,
)
from tests.providers.broken_identity import PLANTED, Planted, breaks
from tests.providers.memory import NAMED, Fault, MemoryProvider

__all__ = ["PLANTED", "Planted", "breaks"]

#: Every call that a driver can have.
ALL = replace(NAMED, hard_end=HardEnd.EXTENDABLE)
SAYS_BY_WHAT = "test_a_call_that_failed_says_by_what"


class Misnames(MemoryProvider):
    """Raises something else than it should, of each call."""

    def misnamed(self, error: ProviderError) -> Exception:
        return error

    @asynccontextmanager
    async def guard(self, call: str, offering: Offering | None = None) -> AsyncIterator[Fault]:
        try:
            async with super().guard(call, offering) as fault:
                yield fault
        except ProviderError as error:
            raise self.misnamed(error) from error


@breaks(SAYS_BY_WHAT, ALL)
class LosesRetryAfter(Misnames):
    def misnamed(self, error: ProviderError) -> Exception:
        error.retry_after_ms = 0
        return error


@breaks(SAYS_BY_WHAT, ALL)
class TakesRefusalsForTrouble(Misnames):
    def misnamed(self, error: ProviderError) -> Exception:
        return Transient(error.message) if isinstance(error, CredentialsRejected) else error


@breaks(SAYS_BY_WHAT, ALL)
class RefusesOneZone(Misnames):
    def misnamed(self, error: ProviderError) -> Exception:
        if isinstance(error, CredentialsRejected):
            error.scope = Scope(zone="z")
        return error


@breaks(SAYS_BY_WHAT, ALL)
class LetsTheSdkSpeak(Misnames):
    def misnamed(self, error: ProviderError) -> Exception:
        return ConnectionResetError(error.message)


@breaks(SAYS_BY_WHAT, ALL)
class SaysNothingOfTrouble(MemoryProvider):
    """Of each call that fails: it has been made, or there is nothing."""

    async def offerings(self) -> Sequence[Offering]:
        try:
            return await super().offerings()
        except CredentialsRejected:
            return ()

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        try:
            return await super().launch(request)
        except CredentialsRejected as error:
            return LaunchResult((), error)

    async def resume(self, operation: Operation) -> LaunchResult:
        try:
            return await super().resume(operation)
        except CredentialsRejected as error:
            return LaunchResult((), error)

    async def list(self, deployment: str) -> Listing:
        try:
            return await super().list(deployment)
        except CredentialsRejected:
            return Listing(())

    async def get(self, vm: VmId) -> Vm:
        try:
            return await super().get(vm)
        except CredentialsRejected as error:
            raise VmNotFound(vm) from error

    async def terminate(self, vm: VmId) -> None:
        try:
            await super().terminate(vm)
        except CredentialsRejected:
            return

    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        try:
            return await super().extend(vms, ends_ms)
        except CredentialsRejected:
            return frozenset(vms)

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        try:
            return await super().tag(vms, tags)
        except CredentialsRejected:
            return frozenset(vms)

    async def console(self, vm: VmId) -> str:
        try:
            return await super().console(vm)
        except CredentialsRejected:
            return ""

    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        try:
            return await super().leftovers(deployment)
        except CredentialsRejected:
            return ()

    async def quotas(self) -> Sequence[Quota]:
        try:
            return await super().quotas()
        except CredentialsRejected:
            return ()

    async def prices(self) -> Sequence[Price]:
        try:
            return await super().prices()
        except CredentialsRejected:
            return ()
