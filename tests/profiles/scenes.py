"""The examples of `profiles/` against the fake clouds: their files, what they could rent there, and plans for work."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloud_dispatch import meaning
from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.config import Config, Raw, TomlFile, load
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner.plan import Launch, Plan
from cloud_dispatch.planner.planner import plan
from cloud_dispatch.planner.snapshot import DemandItem, Snapshot
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.priced import Priced
from cloud_dispatch.provider.spi import ProfileContext, Provider

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "profiles"
CLOUDS = ("aws", "azure", "gcp")
NAMES = ("air-gapped", "cpu-burst", "gpu-training", "memory-heavy", "mixed", "multi-account", "spot-only")
MINUTE = 60_000


@dataclass(frozen=True)
class Elsewhere:
    """An example as it stands, but for the places that its profiles ask."""

    path: Path
    places: Mapping[str, Any]

    def read(self) -> Raw:
        values = tomllib.loads(self.path.read_text(encoding="utf-8"))
        profiles = {name: {**profile, **self.places} for name, profile in values["profiles"].items()}
        return Raw({**values, "profiles": profiles}, str(self.path), self.path.parent)


def example(cloud: str, name: str, places: Mapping[str, Any] | None = None) -> Config:
    path = FOLDER / cloud / f"{name}.toml"
    return load(Elsewhere(path, places) if places else TomlFile(path), registry.plugin)


def drivers(config: Config, folder: Path, now: int) -> dict[ProfileName, Provider]:
    """The real ones, here and not in processes of their own, at the prices that count."""
    made: dict[ProfileName, Provider] = {}
    for name, section in config.profiles.items():
        context = ProfileContext(ProfileName(name), section.settings, folder / name, now=lambda: now)
        driver = registry.plugin(section.driver).create(context)
        made[context.profile] = Priced(driver, config.own_prices(name), folder / name, context.now, Inline())
    return made


def offerings(config: Config, folder: Path, now: int) -> tuple[Offering, ...]:
    """What the profiles could rent, asked of whoever their settings name."""

    async def ask() -> list[Offering]:
        providers = drivers(config, folder, now)
        try:
            return [one for provider in providers.values() for one in await provider.offerings()]
        finally:
            for provider in providers.values():
                await provider.close()

    types = config.profile_types()
    return tuple(one for one in asyncio.run(ask()) if types[one.profile].admits(one.type.name))


@dataclass(frozen=True)
class Scene:
    """An example with what it could rent at `now`."""

    config: Config
    offerings: Sequence[Offering]
    now: int
    cache: dict[str, Any] = field(default_factory=dict)

    def plan(self, *demand: DemandItem, **more: Any) -> Plan:
        """What the planner does with `demand` where nothing runs yet."""
        config = self.config
        snapshot = Snapshot(
            now_ms=self.now, demand=demand, targets=(), supply=(), pools=config.pools(), caps=config.caps(),
            offerings=tuple(self.offerings), profile_caps=tuple(config.profile_caps().items()),
            driver_caps=meaning.driver_caps(config), **more,
        )  # fmt: skip
        return plan(snapshot)


def launches(found: Plan) -> list[Launch]:
    return [action for action in found.actions if isinstance(action, Launch)]


def work(count: int, cpus: float, memory: float, minutes: int, **shape: Any) -> DemandItem:
    """`count` tasks of `cpus` and GiB of `memory` that take so long."""
    amounts = Resources(int(cpus * 1000), int(memory * GIB), 0, shape.pop("gpus", 0))
    return DemandItem(Shape(amounts, **shape), count, expected_ms=minutes * MINUTE, head_expected_ms=minutes * MINUTE)
