"""The dispatcher as `up` runs it, and somebody on its loop who watches:
``python -m bench.watched_dispatcher CONFIG INSTANCES``.

Says after how many seconds its first listing was matched. After a line on its standard input it looks how late its loop
wakes it up, until that many instances have their VMs, durably; then it says when that was, how late, and what was asked
of the driver (in ``launches.json`` beside the configuration, as the driver words it for boto3).

Moments are of `perf_counter`, which is the same for all processes of a machine.
"""

import asyncio
import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.fake_ec2 import IMAGE, ROOT_DEVICE
from bench.wakeups import TICK_S, lateness
from cloud_dispatch import assembly, bootstrap, drivers
from cloud_dispatch.config import TomlFile, load
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.funnel import Call, Wrapper
from cloud_dispatch.provider.sending import sent
from cloud_dispatch.provider.spi import LaunchRequest, Provider
from cloud_dispatch.reconcile.context import Context

#: Every so many ticks it is looked whether all VMs are there.
LOOK = 5
_PROFILE = ProfileName("aws")


class Witness(Wrapper):
    """A driver whose launches are remembered."""

    def __init__(self, driver: Provider) -> None:
        super().__init__(driver)
        self.launches: list[LaunchRequest] = []

    async def call(self, name: Call, *args: Any) -> Any:
        """As ever."""
        if name is Call.LAUNCH:
            self.launches += args
        return await self.pass_on(name, *args)


class Watch:
    """Who watches one dispatcher."""

    def __init__(self, config: Path, instances: int) -> None:
        self._config = config
        self._instances = instances
        self._witness: Witness | None = None
        self._task: asyncio.Task[None] | None = None
        self._began = time.perf_counter()

    def install(self) -> None:
        """Have the composition root tell us what it made."""
        hosted, assemble = drivers.hosted, bootstrap.assemble  # type: ignore[attr-defined]

        def witnessed(*args: Any) -> Provider:
            self._witness = Witness(hosted(*args))
            return self._witness

        def watched(*args: Any, **more: Any) -> assembly.Parts:
            parts = assemble(*args, **more)
            self._task = asyncio.get_running_loop().create_task(self._run(parts.context))
            return parts

        drivers.hosted, bootstrap.assemble = witnessed, watched  # type: ignore[attr-defined]

    async def _run(self, context: Context) -> None:
        while not self._listed(context):
            await asyncio.sleep(TICK_S)
        at = time.perf_counter()
        await context.planned.wait()
        doubts = len(context.in_doubt) + len(context.absences)
        rows = context.store.instances()
        _say({"seconds": at - self._began, "instances": len(rows), "doubts": doubts})
        loop = asyncio.get_running_loop()
        if await loop.run_in_executor(None, sys.stdin.readline):
            woken = await self._until_launched(context)
            _say({"launched": woken[-1], "late": lateness(woken), **self._told()})

    def _listed(self, context: Context) -> bool:
        """Whether the clock may run: it is known what there is."""
        view = context.profiles.get(_PROFILE)
        return view is not None and view.listed_ms is not None

    def _told(self) -> dict[str, Any]:
        """What else there is to say of the launches."""
        return {"calls": self._write_launches()}

    async def _until_launched(self, context: Context) -> list[float]:
        woken = [time.perf_counter()]
        while len(woken) % LOOK or not self._all_there(context):
            await asyncio.sleep(TICK_S)
            woken.append(time.perf_counter())
        return woken

    def _all_there(self, context: Context) -> bool:
        rows = context.store.instances()
        return len(rows) >= self._instances and all(row.vm for row in rows.values())

    def _write_launches(self) -> int:
        """What the driver gave boto3, but for the tokens: these would give the same VMs again."""
        from cloud_dispatch_aws import translate
        from cloud_dispatch_aws.images import Image

        assert self._witness is not None
        settings = load(TomlFile(self._config), registry.plugin).profiles[_PROFILE].settings
        asked = []
        for request in self._witness.launches:
            user_data = sent(request.user_data, self._witness.traits)
            parameters = translate.launch(
                request, settings, user_data, Image(IMAGE, ROOT_DEVICE, "x86_64"), burstable=False
            )
            parameters["UserData"] = base64.b64encode(user_data).decode()  # bytes are nothing for JSON
            asked.append({**parameters, "ClientToken": f"bare-{request.batch}"})
        (self._config.parent / "launches.json").write_text(json.dumps(asked))
        return len(asked)


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def main(config: Path, instances: int) -> int:
    """Run the dispatcher until it is told to stop."""
    watch = Watch(config, instances)
    watch.install()
    return bootstrap.serve(load(TomlFile(config), registry.plugin))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
