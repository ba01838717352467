"""A configuration of one local profile, and studies of it."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cloud_dispatch.config import Config, Embedded, load
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch.simulation.study.engine import Answer, answer
from cloud_dispatch.simulation.study.offers import offers
from cloud_dispatch.simulation.study.question import Study, Wishes, study
from cloud_dispatch.simulation.workload.items import WorkItem, Workload

NOW = 1_700_000_000_000
#: 3.6 dollars an hour are a thousand micro-dollars a second.
CONFIG = """
[dispatcher]
state_dir = "{folder}"
{dispatcher}
[profiles.here]
driver = "local"
{profile}
[profiles.here.catalogue."vm.2"]
cpus = 2
memory = "4GiB"
price = "3.6"
[pools.default]
profiles = ["here"]
caps = {{instances = {cap}}}
{pool}
[pools.default.end]
idle = "20s"
{more}
"""
ONE = Shape(Resources(1000, GIB))
HERE = ProfileName("here")


def config(
    tmp_path: Path, *, cap: int = 2, profile: str = "", pool: str = "", dispatcher: str = "", more: str = ""
) -> Config:
    text = CONFIG.format(folder=tmp_path, cap=cap, profile=profile, pool=pool, dispatcher=dispatcher, more=more)
    return load(Embedded(tomllib.loads(text), "a test"), plugin)


def asked(settings: Config, items: Sequence[WorkItem], **wishes: Any) -> Study:
    found = asyncio.run(offers(settings, NOW))
    return study(settings, found, Workload(tuple(items), "work", ("work was assumed",)), Wishes(**wishes))


def answered(settings: Config, *items: WorkItem, **wishes: Any) -> Answer:
    return answer(asked(settings, items, **wishes).scenario)
