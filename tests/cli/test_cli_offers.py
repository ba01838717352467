"""`offers`: by the dispatcher's view, and by the providers' own where none answers."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.cli.exitcodes import NOT_FOUND, OK, UNAVAILABLE, USAGE
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.provider.errors import CredentialsRejected, Scope
from cloud_dispatch.provider.spi import Quota, QuotaUnit
from cloud_dispatch.reconcile.spend import PRICE_GOOD_MS
from cloud_dispatch_local.driver import LocalProvider

CONFIG = """
[dispatcher]
state_dir = "state"
listen = "127.0.0.1:9"
deployment = "lab"
[caps]
vcpus = 3
[profiles.one]
driver = "local"
budget.day = "100"
[profiles.one.catalogue.small]
cpus = 1
memory = "1GiB"
price = "0.10"
[profiles.one.catalogue.large]
cpus = 2
memory = "2GiB"
price = "0.20"
[profiles.one.catalogue.huge]
cpus = 4
memory = "4GiB"
price = "0.05"
[pools.default]
profiles = ["one"]
types.deny = ["small"]
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "config.toml").write_text(CONFIG)
    return str(tmp_path / "config.toml")


def test_without_a_dispatcher_the_providers_are_asked(cli: Any, config: str) -> None:
    """And that memory and spending are not counted is said, on stderr."""
    done = cli("offers", "--config", config, "--json")
    assert (done.code, "no dispatcher answers" in done.err) == (OK, True)
    found = json.loads(done.out)
    assert [one["type"] for one in found["offers"]] == ["large"]
    assert {one["reason"] for one in found["excluded"]} == {
        "cap of everything reached (vcpus 0 of 3, another 4 wanted)", "pool default does not allow type small",
    }  # fmt: skip
    done = cli("offers", "--config", config, "--cpus", "2")
    assert (done.code, "$0.20/h" in done.out, "does not allow type small" in done.out) == (OK, True, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--gpu", "a100:1"), "asks for 1 gpu, has 0"),
        (("--gpu", "2"), "asks for 2 gpu, has 0"),
        (("--memory", "64GiB"), "asks for 64GiB memory, has 2GiB"),
        (("--arch", "sparc"), "asks for label arch=sparc"),
        (("--market", "spot"), "asks for label market=spot"),
    ],
)
def test_what_nothing_can_run_is_told_with_why(cli: Any, config: str, words: tuple[str, ...], why: str) -> None:
    done = cli("offers", "--config", config, *words)
    assert (done.code, "Nothing could be rented now." in done.out) == (OK, True)
    assert why in done.out


def test_wrong_words_are_named(cli: Any, config: str) -> None:
    done = cli("offers", "--config", config, "--pool", "none")
    assert (done.code, "pools: default" in done.err) == (NOT_FOUND, True)
    for words in (("--gpu", "a100:x"), ("--cpus", "many"), ("--memory", "much")):
        assert cli("offers", "--config", config, *words).code == USAGE


def test_a_dispatcher_that_runs_is_asked_for_its_view(cli: Any, dispatcher: Any) -> None:
    """In amounts; what is stopped and what is not known is said, and no provider is asked beside it."""
    done = cli("offers", "--cpus", "8", "--memory", "32GiB", "--gpu", "A100:1", "--market", "spot")
    assert done.code == UNAVAILABLE
    assert dispatcher.offers_asked == [
        {"cpus_milli": "8000", "memory": str(2**35), "disk": "0", "gpus": "1", "gpu_type": "a100", "market": "spot",
         "limit": "20"},
    ]  # fmt: skip
    assert "Nothing is launched now: by holidays" in done.out
    assert done.err == "profiles.aws: no offerings are known: it can't say what it offers\n"


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the account behind local drivers says: an error, quotas or another, and how old its prices are."""
    says: dict[str, Any] = {"offerings": None, "quotas": (), "priced_ms": time.time_ns() // 1_000_000}

    class Account(LocalProvider):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            self.traits = replace(self.traits, quotas=True)

        async def offerings(self) -> Sequence[Offering]:
            if says["offerings"]:
                raise says["offerings"]
            return tuple(replace(one, priced_ms=says["priced_ms"]) for one in await super().offerings())

        async def quotas(self) -> Sequence[Quota]:
            if isinstance(says["quotas"], Exception):
                raise says["quotas"]
            return tuple(says["quotas"])

    monkeypatch.setattr("cloud_dispatch_local.driver.LocalProvider", Account)
    return says


def offered(cli: Any, config: str) -> tuple[list[str], dict[str, Any], Any]:
    """Types that could be rented, the whole answer, and the run."""
    done = cli("offers", "--config", config, "--json")
    found = json.loads(done.out)
    return [one["type"] for one in found["offers"]], found, done


def test_without_a_dispatcher_quotas_count(cli: Any, config: str, cloud: dict[str, Any]) -> None:
    """And where they can't be asked that is told: nothing is excluded by what nobody knows."""
    assert offered(cli, config)[0] == ["large"]
    cloud["quotas"] = [Quota("L-1", Scope(), QuotaUnit.INSTANCES, 1, 1)]
    types, found, done = offered(cli, config)
    assert (types, done.code) == ([], OK)
    assert any(one["reason"].startswith("quota L-1 of profile one has no room") for one in found["excluded"])
    cloud["quotas"] = CredentialsRejected("you may not list quotas", code="AccessDenied")
    types, found, done = offered(cli, config)
    assert (types, done.code) == (["large"], OK)
    assert found["quotas_unknown"][0]["profile"] == "one"
    assert "profiles.one: quotas are not known" in done.err
    assert "you may not list quotas (AccessDenied)" in done.err


def test_a_profile_that_can_not_say_what_it_offers_is_no_good_answer(
    cli: Any, config: str, cloud: dict[str, Any]
) -> None:
    """Why, and the exit code of what may be better later: a script must not take it for "nothing fits"."""
    cloud["offerings"] = CredentialsRejected("no credentials were found")
    types, found, done = offered(cli, config)
    assert (types, done.code) == ([], UNAVAILABLE)
    assert found["unseen"] == [{"profile": "one", "problem": "CredentialsRejected: no credentials were found"}]
    assert "profiles.one: no offerings are known: CredentialsRejected: no credentials were found" in done.err


def test_without_a_dispatcher_old_prices_under_a_limit_do_not_count(
    cli: Any, config: str, cloud: dict[str, Any]
) -> None:
    cloud["priced_ms"] -= PRICE_GOOD_MS + 60_000
    types, found, _ = offered(cli, config)
    assert types == []
    assert any("a limit covers it, and the price of one/large" in one["reason"] for one in found["excluded"])
    Path(config).write_text(CONFIG.replace('budget.day = "100"\n', ""))
    assert offered(cli, config)[0] == ["large"]
