"""What the how-to shows is what the driver takes, and its VMs boot from what the dispatcher renders."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from cloud_dispatch.cloudinit.render import render
from cloud_dispatch.config import Embedded, load
from cloud_dispatch.domain.errors import DispatchError
from cloud_dispatch.provider.registry import GROUP, LoadedPlugin
from cloud_dispatch_aws import plugin, translate
from cloud_dispatch_aws.settings import AwsSettings
from tests.docs.pages import DOCS, blocks
from tests.providers.aws import scenes

LOADED = LoadedPlugin(plugin, EntryPoint("aws", "cloud_dispatch_aws:plugin", GROUP))


def test_the_configuration_of_the_page_is_good(tmp_path: Path) -> None:
    """Its VMs cost money: the profile has a cap and a limit. A certificate that is not there is a problem at once."""
    (body,) = blocks(DOCS / "how-to" / "use-aws.md", "toml")
    with pytest.raises(DispatchError, match="identity_certificate"):
        load(Embedded(tomllib.loads(body), "the page"), lambda name: {"aws": LOADED}[name])
    file = tmp_path / "us-east-1.pem"
    file.write_text(scenes.certificate())
    body = body.replace("/etc/cloud-dispatch/us-east-1.pem", str(file))
    config = load(Embedded(tomllib.loads(body), "the page"), lambda name: {"aws": LOADED}[name])
    own = config.profiles["east"].settings
    assert isinstance(own, AwsSettings)
    assert own.reaper
    assert LOADED.bills


def test_a_vms_document_has_the_steps_to_its_proof_and_fits() -> None:
    """With all that a driver adds, and without being gzipped even."""
    variables = {"url": "https://d", "join_token": "join", "agent_sha256": "ab", "pool": "p"}
    text = render("agent", {**variables, **plugin.template_variables()})
    assert "instance-identity/rsa2048" in text
    assert len(text.encode()) <= translate.MAX_USER_DATA
