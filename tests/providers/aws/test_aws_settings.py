"""The keys of a profile: what is refused at once, and that they travel."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from cloud_dispatch.agent.identity import Config
from cloud_dispatch.provider.spi import HardEnd, Host
from cloud_dispatch.wire.codec import decode
from cloud_dispatch_aws import PROOF, plugin
from cloud_dispatch_aws.driver import traits
from cloud_dispatch_aws.settings import AwsSettings
from tests.agent.test_notices import documented
from tests.providers.aws.scenes import REGION, settings

WRONG: dict[str, dict[str, Any]] = {
    "no region": {"region": ""},
    "region": {"region": "Frankfurt"},
    "zone of another region": {"zones": ["eu-west-1a"]},
    "zone": {"zones": ["a"]},
    "account": {"account": "12"},
    "url": {"endpoint_url": "http://user@host"},
    "no types": {"instance_types": []},
    "pattern": {"instance_types": ["m5 large"]},
    "no images": {"images": {}},
    "image": {"images": {"x86_64": "debian"}},
    "architecture": {"images": {"aarch64": "ami-1"}},
    "subnet": {"subnets": ["a"]},
    "group": {"security_groups": ["default"]},
    "root size": {"root_size": "100MiB"},
    "scratch": {"scratch": ["20TiB"]},
    "scratches": {"scratch": ["1GiB"] * 9},
    "hops": {"metadata_hops": 65},
    "bid": {"spot_max_percent": 0},
    "price": {"prices": {"m5.large": 0.096}},
    "aws tag": {"tags": {"aws:team": "x"}},
    "our tag": {"tags": {"cloud-dispatch-pool": "x"}},
    "long tag": {"tags": {"team": "x" * 257}},
    "external id": {"external_id": "x"},
    "web identity": {"web_identity_token_file": "/token"},
    "role": {"role_arn": "dispatcher"},
    "certificate": {"identity_certificate": "/nowhere/us-east-1.pem"},
    "unknown key": {"zone": "us-east-1a"},
    "switch": {"reaper": "yes"},
    "sign": {"reaper": True, "reaper_sign": "reaper"},
    "sign of nobody": {"reaper_sign": "/lab/reaper"},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**wrong)


@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1", "us-gov-west-1", "ap-southeast-2", "cn-north-1"])
def test_regions_of_every_partition(region: str) -> None:
    assert settings(region=region).region == region


def test_settings_travel_to_another_process() -> None:
    """As JSON, and give the same again."""
    said = settings(
        subnets=["subnet-1"], prices={"m5.large": "0.05"}, scratch=["100GiB"], reaper=True, reaper_period="30s",
        reaper_sign="/lab/reaper",
        web_identity_token_file="/var/run/token", role_arn="arn:aws:iam::123456789012:role/dispatch",
    )  # fmt: skip
    assert AwsSettings.model_validate(said.model_dump(mode="json")) == said


def test_the_plugin_says_where_it_runs_and_how_a_vm_proves_itself() -> None:
    """A session of the metadata service first, then the signed document with it; drivers live in a process."""
    assert (plugin.host, plugin.hard_end) == (Host.PROCESS, HardEnd.EXTENDABLE)
    assert plugin.template_variables()["proof"] == [dict(step) for step in PROOF]
    assert "{answer}" in PROOF[1]["headers"]["X-aws-ec2-metadata-token"]  # type: ignore[index]
    assert PROOF[1]["url"] == "http://169.254.169.254/latest/dynamic/instance-identity/rsa2048"


def test_notices_are_what_the_docs_say_and_agents_understand() -> None:
    """Both of EC2's kinds, as an agent reads its configuration: the interruption has a time, the advice has none."""
    read = decode(Config, json.dumps({"notices": plugin.template_variables()["notices"]}).encode()).notices
    assert read == documented()["EC2"]
    assert [source.advice for source in read] == [False, True]


def test_where_vms_are_listed_is_told_as_far_as_it_is_known() -> None:
    """A role says whose account it is, and so does `account`; nothing is known of other credentials."""
    role = "arn:aws:iam::111122223333:role/dispatcher"
    assert traits(settings()).place == (("region", REGION),)
    for said in ({"account": "111122223333"}, {"role_arn": role}):
        assert traits(settings(**said)).place == (("region", REGION), ("account", "111122223333"))
    moved = settings(zones=[f"{REGION}a"], named_profile="lab", endpoint_url="http://127.0.0.1:1", tags={"a": "b"})
    assert traits(moved).place == (("region", REGION),)
