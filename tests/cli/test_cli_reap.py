"""`reap` without a dispatcher and without a statestore, over real registries of local VMs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.cli.exitcodes import OK, USAGE
from cloud_dispatch_local.watch import Watch
from tests.providers.local import clock, cloud_config, driver, end_everything, request

pytestmark = pytest.mark.process
LATE, EARLY, ENDLESS, FOREIGN = "b00000000001-0", "b00000000002-0", "b00000000003-0", "b00000000004-0"


@pytest.fixture
async def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four VMs whose dispatcher, watchdog and boot are dead: one is past its end, one is not, one has none, and one of
    another deployment is past it."""

    async def nobody(_: Watch) -> None:
        return

    monkeypatch.setattr(Watch, "stands", nobody)
    monkeypatch.setattr(Watch, "start", lambda _: None)
    monkeypatch.setattr("cloud_dispatch_local.driver.power_on", lambda *_: None)
    root = tmp_path / "vms-of-local"
    provider = driver(root, now=clock)
    for name, ends_ms in ((LATE, clock() - 1), (EARLY, clock() + 600_000), (ENDLESS, 0), (FOREIGN, clock() - 1)):
        asked = await request(provider, cloud_config("sleep 600"), batch=name[:-2], ends_ms=ends_ms)
        await provider.launch(asked)
    file = root / "vms" / FOREIGN / "vm.json"
    file.write_text(file.read_text().replace('deployment": "test"', 'deployment": "other"'))
    return root


@pytest.fixture
def config(registry: Path, tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "config.toml"
    path.write_text(
        '[dispatcher]\ndeployment = "test"\nstate_dir = "state"\n'
        f'[profiles.local]\ndriver = "local"\nroot = "{registry}"\n'
        '[pools.default]\nprofiles = ["local"]\n'
    )
    yield str(path)
    end_everything(registry)


def vms(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "vms").iterdir())


def test_overdue_lists_and_then_ends_what_is_past_its_hard_end(cli: Any, registry: Path, config: str) -> None:
    """Listed first; with --yes ended; what has time left, no end or another deployment stays."""
    listed = cli("reap", "--overdue", "--config", config)
    assert listed.code == OK, listed
    assert LATE in listed.out
    assert "1 VM. Say --yes" in listed.out
    assert vms(registry) == [LATE, EARLY, ENDLESS, FOREIGN]
    ended = cli("reap", "--overdue", "--yes", "--json", "--config", config)
    assert ended.code == OK, ended
    assert [(vm["id"], vm["state"]) for vm in json.loads(ended.out)["vms"]] == [(LATE, "gone")]
    assert vms(registry) == [EARLY, ENDLESS, FOREIGN]
    again = cli("reap", "--overdue", "--yes", "--config", config)
    assert (again.code, "No VM past its hard end" in again.out) == (OK, True)


def test_overdue_takes_another_deployment_when_it_is_named(cli: Any, registry: Path, config: str) -> None:
    """The configured deployment is only what is meant where none is named."""
    ended = cli("reap", "--overdue", "--deployment", "other", "--yes", "--config", config)
    assert ended.code == OK, ended
    assert vms(registry) == [LATE, EARLY, ENDLESS]


def test_a_whole_deployment_ends_only_when_it_is_named(cli: Any, registry: Path, config: str) -> None:
    """Without --overdue the configured deployment is not enough; named, all of it goes."""
    refused = cli("reap", "--yes", "--config", config)
    assert refused.code == USAGE
    assert "--deployment" in refused.err
    assert vms(registry) == [LATE, EARLY, ENDLESS, FOREIGN]
    assert cli("reap", "--deployment", "test", "--yes", "--config", config).code == OK
    assert vms(registry) == [FOREIGN]


def test_overdue_needs_a_deployment_from_somewhere(cli: Any, config: str) -> None:
    """A random deployment stands in the statestore, which is not asked: the command line has to name it."""
    path = Path(config)
    path.write_text(path.read_text().replace('deployment = "test"\n', ""))
    refused = cli("reap", "--overdue", "--yes", "--config", config)
    assert refused.code == USAGE
