from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.boot.qemu import QemuGuests
from tests.boot.site import PATIENCE_S, QUICK, MakeSite, Measured, Site
from tests.fakes.ec2 import Settings
from tests.fakes.ec2.settings import KEY
from tests.fakes.guests.sources import Source
from tests.providers.aws import scenes
from tests.system.aws import ENDING_MS, PENDING_MS, TYPES, WatchedEc2
from tools import boot_image

FIGURES = Measured()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/boot/" in item.path.as_posix():
            item.add_marker(pytest.mark.boot)
            item.add_marker(pytest.mark.timeout(4 * PATIENCE_S))


@pytest.fixture(scope="session")
def image() -> boot_image.Image:
    """What all VMs boot. CI says that it must be had."""
    problem = boot_image.cannot()
    if problem:
        pytest.skip(problem)
    return boot_image.image()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedEc2]:
    """A fake EC2 whose VMs take as long to end as computers do."""
    for name, value in {**scenes.CREDENTIALS, "AWS_ACCESS_KEY_ID": KEY.id, "AWS_SECRET_ACCESS_KEY": KEY.secret}.items():
        monkeypatch.setenv(name, value)
    settings = Settings(types=TYPES, pending_ms=PENDING_MS, shutting_down_ms=ENDING_MS)
    with WatchedEc2(settings, patience_s=PATIENCE_S) as made:
        yield made


@pytest.fixture
def make_site(tmp_path: Path, fake: WatchedEc2, image: boot_image.Image) -> MakeSite:
    """`make_site(source)`: a deployment of one VM at a time, which learns from there what to boot."""

    def make(source: Source) -> Site:
        made = Site(tmp_path, fake, cap=1, hosted=partial(QemuGuests, image=image, source=source))
        for before, after in QUICK.items():
            made.configure(before, after)
        return made

    return make


@pytest.fixture
def measured() -> Measured:
    """Takes figures; they are told at the end of the run."""
    return FIGURES


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for figure in FIGURES.figures:
        terminalreporter.write_line(figure)
