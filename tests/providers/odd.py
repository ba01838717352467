"""A driver for the tests of hosts: it answers with its process id, waits, blocks, fails and dies when asked to."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog
from pydantic import BaseModel

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.provider.errors import QuotaExceeded, Scope, VmNotFound
from cloud_dispatch.provider.lacking import Lacking
from cloud_dispatch.provider.spi import (
    Host,
    LaunchRequest,
    LaunchResult,
    Listing,
    ProfileContext,
    Provider,
    Traits,
    Vm,
)


class OddSettings(BaseModel):
    """`making`: what happens when the driver is made."""

    making: str = ""


class Odd(Lacking):
    traits = Traits(max_batch=7)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def offerings(self) -> Sequence[Offering]:
        return ()

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        await asyncio.sleep(60)
        return LaunchResult(())

    async def list(self, deployment: str) -> Listing:
        return Listing(())

    async def get(self, vm: VmId) -> Vm:
        if vm == "quota":
            raise QuotaExceeded("too many", code="Q", scope=Scope(region="r"), retry_after_ms=5)
        if vm == "logs":
            structlog.get_logger().warning("odd.logs")
        if vm == "bug":
            raise KeyError("a bug")
        if vm == "block":
            (self.folder / "begun").touch()
            time.sleep(60)
        if vm == "slow":
            await self._sleep()
        raise VmNotFound(vm)

    async def terminate(self, vm: VmId) -> None:
        await self._sleep()

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        return frozenset()

    async def console(self, vm: VmId) -> str:
        return str(gc.get_threshold()[0]) if vm == "collector" else str(os.getpid())

    async def close(self) -> None:
        (self.folder / "closed").touch()

    async def _sleep(self) -> None:
        (self.folder / "begun").touch()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            (self.folder / "cancelled").touch()
            raise


class OddPlugin:
    name = "odd"
    settings = OddSettings
    host = Host.PROCESS

    def create(self, context: ProfileContext) -> Provider:
        match context.settings.making:
            case "import":
                importlib.import_module("no_such_sdk")
            case "crash":
                raise ValueError("no luck")
            case "exit":
                os._exit(3)
        return Odd(context.state_dir)

    def template_variables(self) -> Mapping[str, str]:
        return {}


plugin = OddPlugin()
