"""The keys of a profile: what is refused at once, that they travel, and what the plugin says of itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from cloud_dispatch.agent.identity import Config
from cloud_dispatch.provider.spi import HardEnd, Host
from cloud_dispatch.wire.codec import decode
from cloud_dispatch_gcp import PROOF, plugin
from cloud_dispatch_gcp.driver import traits
from cloud_dispatch_gcp.settings import GcpSettings
from tests.agent.test_notices import documented
from tests.providers.gcp.scenes import ACCOUNT, settings

WRONG: dict[str, dict[str, Any]] = {
    "sign": {"reaper_sign": "own/reaper/sign"},
    "sign of a bucket": {"reaper_sign": "gs://own"},
    "no project": {"project": ""},
    "project": {"project": "My Project"},
    "no regions": {"regions": []},
    "region": {"regions": ["us-central1-a"]},
    "zone of another region": {"zones": ["europe-west1-b"]},
    "zone": {"zones": ["a"]},
    "url": {"endpoint_url": "http://user@host"},
    "url with a path": {"endpoint_url": "http://host/v1"},
    "no types": {"instance_types": []},
    "pattern": {"instance_types": ["n2 standard"]},
    "accelerator": {"accelerators": {"n1-*": "nvidia-tesla-t4"}},
    "no accelerators": {"accelerators": {"n1-*": "nvidia-tesla-t4:0"}},
    "no images": {"images": {}},
    "image": {"images": {"x86_64": "debian-12"}},
    "architecture": {"images": {"aarch64": "projects/p/global/images/x"}},
    "network": {"network": "default"},
    "subnet of another region": {"subnets": {"europe-west1": "default"}},
    "network tag": {"network_tags": ["Batch"]},
    "account": {"service_account": "worker"},
    "scope": {"scopes": ["cloud-platform"]},
    "no scopes": {"scopes": []},
    "impersonate": {"impersonate": "me"},
    "small root": {"root_size": "5GiB"},
    "disk type": {"disk_type": "pd-extreme"},
    "local ssds": {"local_ssds": 25},
    "price": {"prices": {"n2-standard-2": 0.097}},
    "label in capitals": {"labels": {"Team": "x"}},
    "label with a dot": {"labels": {"team": "a.b"}},
    "our label": {"labels": {"cloud-dispatch-pool": "x"}},
    "google's label": {"labels": {"goog-x": "x"}},
    "unknown key": {"region": "us-central1"},
    "switch": {"spot": "yes"},
    "poll": {"operation_poll": "1ms"},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**wrong)


@pytest.mark.parametrize("project", ["lab-123456", "example.com:lab-123456"])
def test_projects_of_every_kind(project: str) -> None:
    assert settings(project=project).project == project


def test_settings_travel_to_another_process() -> None:
    """As JSON, and give the same again."""
    said = settings(
        subnets={"us-central1": "projects/host-project/regions/us-central1/subnetworks/workers"},
        prices={"n2-standard-2": "0.05"}, credentials_file="/etc/key.json", impersonate=ACCOUNT,
        service_account=ACCOUNT, accelerators={"n1-*": "nvidia-tesla-t4:2"}, root_size="50GiB", operation_poll="5s",
        reaper_sign="gs://own/reaper/sign",
    )  # fmt: skip
    assert GcpSettings.model_validate(said.model_dump(mode="json")) == said


def test_the_plugin_says_where_it_runs_and_how_a_vm_proves_itself() -> None:
    """One question, made out to the batch; drivers live in a process."""
    assert (plugin.host, plugin.hard_end) == (Host.PROCESS, HardEnd.FIXED)
    (step,) = plugin.template_variables()["proof"]
    assert step == dict(PROOF[0])
    assert step["url"].endswith("/default/identity?audience={audience}&format=full")
    assert step["headers"] == {"Metadata-Flavor": "Google"}


def test_notices_are_what_the_docs_say_and_agents_understand() -> None:
    """Both as the how-to has them: the preemption; and an advice where a host's maintenance would end the VM."""
    read = decode(Config, json.dumps({"notices": plugin.template_variables()["notices"]}).encode()).notices
    assert read == documented()["GCE"]
    assert (read[1].answer, read[1].advice) == ("TERMINATE_ON_HOST_MAINTENANCE", True)


def test_notes_say_what_is_lacking() -> None:
    end, account = plugin.notes(settings())
    assert "service_account" in account
    assert "reap --overdue" in end
    assert plugin.notes(settings(service_account=ACCOUNT)) == (end,)


def test_where_vms_are_listed_is_the_project_in_its_regions() -> None:
    """A region may come; one that goes takes its zones out of the listing. `zones` only says where launches go."""
    one = settings(regions=["us-east1", "us-west1"], zones=["us-west1-a"])
    assert (traits(one).place, traits(one).zones) == ((("project", one.project),), ("us-east1-", "us-west1-"))
