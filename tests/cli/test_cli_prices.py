"""`prices show|refresh|diff` and `quota`: what providers ask and let one have, without a dispatcher."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch import drivers
from cloud_dispatch.cli.exitcodes import NOT_FOUND, OK, UNAVAILABLE
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import CredentialsRejected, Scope
from cloud_dispatch.provider.spi import Price, Quota, QuotaUnit, Traits
from cloud_dispatch_local.driver import LocalProvider

CONFIG = """
[dispatcher]
state_dir = "state"
deployment = "lab"
[profiles.one]
driver = "local"
pricing = {"small" = "0.5", "*" = "-10%"}
[profiles.one.catalogue.small]
cpus = 1
memory = "1GiB"
price = "0.10"
[profiles.one.catalogue.large]
cpus = 2
memory = "2GiB"
price = "0.20"
[profiles.two]
driver = "local"
[pools.default]
profiles = ["one", "two"]
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "config.toml").write_text(CONFIG)
    return str(tmp_path / "config.toml")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> list[Price]:
    """Local drivers with a price service that says this, and a quota."""
    says = [Price("large", "", Market.ON_DEMAND, Rate(300_000_000))]

    class Served(LocalProvider):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.traits = Traits(prices=True, quotas=True)

        async def prices(self) -> Sequence[Price]:
            return says

        async def quotas(self) -> Sequence[Quota]:
            scope = Scope(family="standard", market="spot")
            return [
                Quota("L-1", scope, QuotaUnit.VCPUS, 64, 60), Quota("L-2", Scope(), QuotaUnit.INSTANCES, None, 3),
            ]  # fmt: skip

    monkeypatch.setattr("cloud_dispatch_local.driver.LocalProvider", Served)
    return says


def shown(cli: Any, config: str, *more: str) -> dict[str, tuple[int, str]]:
    done = cli("prices", "show", "--config", config, "--profile", "one", "--json", *more)
    (found,) = json.loads(done.out)["profiles"]
    return {row["type"]: (row["rate_nano"], row["source"]) for row in found["prices"]}


def test_prices_are_shown_with_who_says_them(cli: Any, config: str) -> None:
    """The operator's own before the driver's; of the types that match."""
    assert shown(cli, config) == {"small": (500_000_000, "operator"), "large": (180_000_000, "operator")}
    assert list(shown(cli, config, "--types", "s*")) == ["small"]
    done = cli("prices", "show", "--config", config)
    assert (done.code, "$0.50/h" in done.out, "operator" in done.out) == (OK, True, True)
    done = cli("prices", "show", "--config", config, "--types", "none*")
    assert (done.code, done.out) == (OK, "Nothing is offered that matches.\n")


def test_what_is_refreshed_is_kept_and_differences_are_shown(cli: Any, config: str, service: list[Price]) -> None:
    """`diff` only looks. What is kept counts, less the discount, where it is newer than the driver's price."""
    done = cli("prices", "diff", "--config", config, "--profile", "one")
    assert (done.code, "1 price differs (nothing is kept)" in done.out) == (OK, True)
    assert "1 price differs" in cli("prices", "diff", "--config", config, "--profile", "one").out
    done = cli("prices", "refresh", "--config", config)
    assert (done.code, done.out.count("1 price is kept")) == (OK, 2)
    assert (Path(config).parent / "state/providers/one/prices.json").exists()
    assert "0 prices differ (kept 20" in cli("prices", "diff", "--config", config, "--profile", "one").out
    service[0] = Price("large", "", Market.ON_DEMAND, Rate(250_000_000))
    found = json.loads(cli("prices", "diff", "--config", config, "--profile", "one", "--json").out)
    assert found["profiles"][0]["changes"] == [
        {"type": "large", "place": "", "market": "on-demand", "before_nano": 300_000_000, "after_nano": 250_000_000}
    ]


def test_a_driver_without_a_price_service_or_quotas_says_so(
    cli: Any, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in ("refresh", "diff"):
        done = cli("prices", command, "--config", config, "--profile", "two")
        assert (done.code, done.out) == (OK, "profiles.two: its driver has no price service\n")
    assert "max_vms" in cli("quota", "--config", config, "--profile", "two").out
    monkeypatch.setattr("cloud_dispatch_local.driver.Traits", lambda **said: Traits())
    done = cli("quota", "--config", config, "--profile", "two")
    assert (done.code, done.out) == (OK, "profiles.two: its driver tells no quotas\n")


def test_quotas_are_shown_with_what_is_left(cli: Any, config: str, service: list[Price]) -> None:
    """What is not told is unknown, and not unlimited."""
    done = cli("quota", "--config", config, "--profile", "one")
    assert done.code == OK
    assert [line.split()[-3:] for line in done.out.splitlines() if "L-" in line] == [
        ["60", "64", "4"], ["3", "unknown", "unknown"],
    ]  # fmt: skip
    (told,) = json.loads(cli("quota", "--config", config, "--profile", "one", "--json").out)["profiles"]
    assert [one["left"] for one in told["quotas"]] == [4, None]


def test_one_that_can_not_be_asked_is_told_beside_what_the_others_say(
    cli: Any, config: str, service: list[Price], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an exit code: what is not there is not silently missing."""
    asked = drivers.Priced.call

    async def call(self: Any, name: Any, *args: Any) -> Any:
        if name == "prices" and "two" in str(self._file):
            raise CredentialsRejected("you may not")
        return await asked(self, name, *args)

    monkeypatch.setattr(drivers.Priced, "call", call)
    done = cli("prices", "refresh", "--config", config)
    assert (done.code, "profiles.one: 1 price is kept" in done.out) == (UNAVAILABLE, True)
    assert "profiles.two: CredentialsRejected: you may not" in done.err
    assert "profiles.two" not in done.out


def test_a_profile_that_is_not_there_is_named(cli: Any, config: str) -> None:
    done = cli("prices", "show", "--config", config, "--profile", "tow")
    assert (done.code, "profiles: one, two" in done.err) == (NOT_FOUND, True)
