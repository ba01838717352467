"""What the how-to shows is what the driver takes, and its VMs boot from what the dispatcher renders."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint

from cloud_dispatch.cloudinit.render import render
from cloud_dispatch.config import Embedded, load
from cloud_dispatch.provider.registry import GROUP, LoadedPlugin
from cloud_dispatch_gcp import plugin, translate
from cloud_dispatch_gcp.settings import GcpSettings
from tests.docs.pages import DOCS, blocks

LOADED = LoadedPlugin(plugin, EntryPoint("gcp", "cloud_dispatch_gcp:plugin", GROUP))


def test_the_configuration_of_the_page_is_good() -> None:
    """Its VMs cost money: the profile has a cap and a limit."""
    (body,) = blocks(DOCS / "how-to" / "use-gcp.md", "toml")
    config = load(Embedded(tomllib.loads(body), "the page"), lambda name: {"gcp": LOADED}[name])
    own = config.profiles["iowa"].settings
    assert isinstance(own, GcpSettings)
    assert own.service_account
    assert LOADED.bills


def test_a_vms_document_has_the_steps_to_its_proof_and_fits() -> None:
    variables = {"url": "https://d", "join_token": "join", "agent_sha256": "ab", "pool": "p"}
    text = render("agent", {**variables, **plugin.template_variables()})
    assert "service-accounts/default/identity" in text
    assert len(text.encode()) <= translate.MAX_USER_DATA
