"""The Azure driver's keys of a profile: what they take, and that no secret fits in."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from cloud_dispatch_azure import doubts, plugin
from cloud_dispatch_azure.driver import traits
from cloud_dispatch_azure.settings import AzureSettings
from tests.fakes.arm import settings as fake
from tests.providers.azure import scenes

REAPER = (
    f"/subscriptions/{fake.SUBSCRIPTION}/resourceGroups/own/providers/"
    "Microsoft.ManagedIdentity/userAssignedIdentities/reaper"
)


def test_their_json_gives_the_same_settings_again() -> None:
    made = scenes.settings(
        identity_certificates=scenes.trusted(), root_size="64GiB", scratch=["1TiB"], prices={scenes.SIZE: "0.096"},
        reaper=True, reaper_period="2m", reaper_sign=REAPER, zones=["1", "2"],
    )  # fmt: skip
    assert AzureSettings.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    "wrong",
    [
        {"subscription": "mine"}, {"region": "East US"}, {"subnet": ""}, {"subnet": "vms"}, {"resource_group": "a/b"},
        {"zones": ["westeurope-1"]}, {"zones": ["0"]}, {"sizes": []}, {"images": {"x86_64": "ubuntu"}},
        {"images": {"riscv": "a:b:c:d"}}, {"disk_type": "Ultra"}, {"root_size": "512MiB"}, {"scratch": ["1MiB"]},
        {"endpoint_url": "http://plain"}, {"identity_certificates": "no such file"}, {"secret": "x"},
        {"client_secret": "x"}, {"tags": {"cloud-dispatch-pool": "x"}}, {"tags": {"a/b": "x"}},
        {"tags": {"a": "x" * 257}}, {"tags": {f"t{number}": "x" for number in range(41)}}, {"ssh_key": "password"},
        {"admin_user": "Root User"}, {"credential": "password"}, {"spot": "yes"},
        {"credential": "environment", "client": "0" * 8 + "-0000-0000-0000-" + "0" * 12},
        {"credential": "managed", "tenant": fake.TENANT},
        {"ephemeral": True, "eviction": "deallocate"}, {"reaper": True, "reaper_sign": "reaper"},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        scenes.settings(**wrong)


def test_the_missing_reaper_is_said_loudly() -> None:
    """There is no ceiling without it, as a guest that shuts itself down bills on; with it, where somebody looks for its
    signs of life, nothing is said."""
    notes = plugin.notes(scenes.settings())
    assert any("no ceiling" in note and note.startswith("reaper:") for note in notes)
    able = scenes.settings(reaper=True, reaper_sign=REAPER, identity_certificates=scenes.trusted())
    assert doubts.of_settings(able) == []
    assert [about for about, _ in doubts.of_settings(able.model_copy(update={"reaper_sign": ""}))] == ["reaper"]
    with pytest.raises(ValidationError, match="expected reaper = true"):
        scenes.settings(reaper_sign=REAPER)


def test_the_plugin_tells_vms_where_they_learn_who_they_are_and_that_they_go() -> None:
    said = plugin.template_variables()
    (step,) = said["proof"]
    assert "nonce={nonce}" in step["url"]
    assert step["headers"] == {"Metadata": "true"}
    (source,) = said["notices"]
    assert source["match"] == {"EventType": "Preempt", "Resources": "{vm}"}


def test_where_vms_are_listed_is_the_group_in_its_region() -> None:
    """However the names are spelt: Azure takes them all for the same."""
    one = scenes.settings(resource_group="Lab", zones=["1"])
    assert dict(traits(one).place) == {
        "subscription": one.subscription.lower(), "resource_group": "lab", "region": one.region,
    }  # fmt: skip
    other = scenes.settings(resource_group="lAB", subscription=one.subscription.upper())
    assert traits(other).place == traits(one).place
