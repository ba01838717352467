"""`offers`: by the dispatcher's view, and by the providers' own where none answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.cli.exitcodes import NOT_FOUND, OK, USAGE

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
    assert (done.code, done.err) == (OK, "")
    assert dispatcher.offers_asked == [
        {"cpus_milli": "8000", "memory": str(2**35), "disk": "0", "gpus": "1", "gpu_type": "a100", "market": "spot",
         "limit": "20"},
    ]  # fmt: skip
    assert "Nothing is launched now: by holidays" in done.out
    assert "no offerings are known of aws: it can't say what it offers" in done.out
