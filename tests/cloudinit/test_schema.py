"""cloud-init's own schema accepts what VMs get. Never skipped: `make setup` brings cloud-init."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch import userdata
from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.api.auth import Tokens
from cloud_dispatch.cloudinit import assets, multipart, schema
from cloud_dispatch.cloudinit.variables import DEFAULTS
from cloud_dispatch.config import TomlFile, load
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import BatchId, ProfileName
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.spi import Traits

pytestmark = pytest.mark.tools
PROXY = '[pools.p.boot]\nproxy = {http = "http://p:1", https = "http://p:2", no = "10.0.0.0/8"}\n'
OWN = '[pools.p.boot]\nscripts = ["a.sh"]\ncloud_config = ["b.yaml", "c.yaml"]\n'
GPU = '[pools.p.boot]\nnvidia = true\nnvidia_packages = ["nvidia-driver"]\n'
ALLOWED = "[pools.p.boot]\nmetadata = true\n"
MOUNTS = """
[[pools.p.boot.mounts]]
kind = "nfs"
source = "10.0.0.2:/e"
path = "/data"
[[pools.p.boot.mounts]]
kind = "block"
source = "/dev/vdb"
path = "/big"
format = true
[[pools.p.boot.mounts]]
kind = "tmpfs"
path = "/scratch"
size = "1GiB"
"""
FRAGMENTS = {
    "none": "", "proxy": PROXY, "own": OWN, "nvidia": GPU, "mounts": MOUNTS, "metadata allowed": ALLOWED,
    "everything": f"{MOUNTS}{PROXY}{OWN}{GPU}{ALLOWED}".replace("[pools.p.boot]\n", "").replace(
        MOUNTS, "[pools.p.boot]\n"
    ) + MOUNTS,
}  # fmt: skip
#: A driver that says nothing of its own, as a cloud's may, and each that exists.
PROVIDERS = ("silent", *registry.names())
#: What a profile of it can't do without.
NEEDED = {
    "aws": 'region = "eu-central-1"\nguest_enforced = true\ncaps = {instances = 1}\nbudget = {month = "$1"}\n',
    "azure": 'subscription = "0a1b2c3d-0000-4000-8000-000000000001"\nregion = "westeurope"\nresource_group = "lab"\n'
    'subnet = "/subscriptions/0a1b2c3d-0000-4000-8000-000000000001/resourceGroups/lab/providers/'
    'Microsoft.Network/virtualNetworks/lab/subnets/vms"\nguest_enforced = true\n'
    'caps = {instances = 1}\nbudget = {month = "$1"}\n',
    "gcp": 'project = "some-lab"\nregions = ["europe-west1"]\ncaps = {instances = 1}\nbudget = {month = "$1"}\n',
}  # fmt: skip


def room(provider: str, settings: Any) -> Traits:
    """How much user data it takes by its own word; the least for one that makes nothing of the sort."""
    if provider not in NEEDED:
        return Traits()
    told: Traits = importlib.import_module(f"cloud_dispatch_{provider}.driver").traits(settings)
    return told


@pytest.fixture(scope="module")
def cloud_init() -> str:
    found = schema.program()
    assert found, "there is no cloud-init: `make setup` brings it, and says why if it can't"
    return found


class Silent:
    """A driver whose VMs are machines of their own, and which says no more than where notices are."""

    bills, keeps_ends = False, True
    settings = registry.plugin("local").settings

    def template_variables(self) -> dict[str, Any]:
        return {"notices": [{"steps": [{"url": "http://169.254.169.254/notice"}]}]}


def user_data(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    template: str,
    fragments: str,
    traits: Traits | None = None,
    spot: bool = True,
) -> str:
    """What a launch of a pool with `fragments` would get, by the function that launches use."""
    (folder / "a.sh").write_text("#!/bin/sh\n\techo 'ä' \"$x\"\n")
    (folder / "b.yaml").write_text("#cloud-config\npackages: [jq]\nruncmd: [[echo, ä]]\n")
    (folder / "c.yaml").write_text("#cloud-config\ntimezone: Europe/Berlin\n")
    (folder / "config.toml").write_text(
        f'[dispatcher]\nstate_dir = "state"\nadvertise = "https://10.0.0.1:7717"\n[profiles.x]\ndriver = "{provider}"\n'
        f"{NEEDED.get(provider, '')}"
        f'[pools.p]\nprofiles = ["x"]\ntemplate = "{template}"\nlabels = {{team = "a b"}}\n{fragments}'
    )
    known: Any = lambda driver: Silent() if driver == "silent" else registry_plugin(driver)  # noqa: E731
    registry_plugin = registry.plugin
    monkeypatch.setattr(registry, "plugin", known)
    config = load(TomlFile(folder / "config.toml"), known)
    tokens = Tokens.open(folder / "state", SystemEntropy())
    trusted = userdata.Trusted("ab" * 32, "cd" * 32)
    traits = traits or room(provider, config.profiles[ProfileName("x")].settings)
    make = userdata.maker(config, {ProfileName("x"): traits}, tokens, trusted, SystemClock())
    monkeypatch.setattr(registry, "plugin", registry_plugin)
    with monkeypatch.context() as patch:
        patch.setattr(registry, "plugin", None)  # a launch is no time to look for what is installed
        return make(config.pools()[0], BatchId("b00000000001"), 16, ProfileName("x"), 10**13, spot)


@pytest.mark.parametrize("spot", [True, False])
def test_only_spot_vms_are_told_where_notices_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spot: bool) -> None:
    """By the market that their launch is of."""
    found = user_data(tmp_path, monkeypatch, "silent", "agent", "", spot=spot)
    assert ("http://169.254.169.254/notice" in found) == spot


@pytest.mark.parametrize(
    ("boot", "early"), [("", True), ("early = false", False), ('cloud_config = ["b.yaml"]', False)]
)
def test_an_agent_starts_early_where_nothing_of_the_pools_own_is_waited_for(
    boot: str, early: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool's own documents may ask for things that cloud-init does in its last stages."""
    found = user_data(tmp_path, monkeypatch, "silent", "agent", f"[pools.p.boot]\n{boot}\n")
    assert ("bootcmd" in found) is early


@pytest.mark.parametrize("fragments", FRAGMENTS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("template", assets.names())
def test_cloud_init_accepts_every_document(
    template: str, provider: str, fragments: str, cloud_init: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each template with each provider and each fragment, within the smallest limit that a provider has. Where VMs are
    parts of their host, what would set up the host is refused with its place."""
    own = {} if provider == "silent" else registry.plugin(provider).template_variables()
    if not {**DEFAULTS, **own}["whole_machine"] and fragments in ("nvidia", "mounts", "everything"):
        with pytest.raises(InvalidInput, match=r"pools\.p\.boot\.(nvidia|mounts): VMs of profile x are a part of"):
            user_data(tmp_path, monkeypatch, provider, template, FRAGMENTS[fragments])
        return
    found = user_data(tmp_path, monkeypatch, provider, template, FRAGMENTS[fragments], None)
    documents = multipart.cloud_configs(found)
    assert len(documents) == (3 if fragments in ("own", "everything") else 1)
    for document in documents:
        assert schema.complaint(cloud_init, document) == ""


@pytest.mark.parametrize(
    "document",
    ["#cloud-config\nwrite_files: []\n", "#cloud-config\nruncmd: 1\n", "#cloud-config\nwrite_files: [{content: x}]\n"],
)
def test_what_cloud_init_refuses_is_told(document: str, cloud_init: str) -> None:
    """The judge is a real one: it refuses, and says which key it means."""
    assert ("write_files" if "write_files" in document else "runcmd") in schema.complaint(cloud_init, document)


def test_a_judge_that_is_gone_is_no_acceptance() -> None:
    """A program that can't be run has accepted nothing."""
    assert "could not be asked" in schema.complaint("/nowhere/cloud-init", "#cloud-config\n")


def test_a_document_that_could_undo_the_bootstrap_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How documents are merged is ours to say, and what is no YAML is named with its file and line."""
    for text, complaint in (("merge_how: x\n", "merge_how is ours"), ("a: b: c\n", "c.yaml, rendered line 2")):
        own = OWN.replace("b.yaml", "d.yaml")
        (tmp_path / "d.yaml").write_text(f"#cloud-config\n{text}")
        with pytest.raises(InvalidInput, match=complaint.replace("c.yaml", "d.yaml")):
            user_data(tmp_path, monkeypatch, "silent", "agent", own)


SECRET = "pLaNtEd-SeCrEt"


def test_no_secret_but_the_join_token_is_in_user_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the keys, not the operator's token, not the store's password, nothing of the dispatcher's environment; the
    join token once, in a file for root only."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("HTTPS_PROXY", f"http://u:{SECRET}@proxy:1")
    more = f'{FRAGMENTS["everything"]}\n[store]\nurl = "postgresql://u:{SECRET}@db/x"\n'
    found = "\n".join(multipart.cloud_configs(user_data(tmp_path, monkeypatch, "silent", "agent", more)))
    assert SECRET not in found
    kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert {path.name for path in kept} >= {"service.key", "join.key", "operator.token"}
    for path in kept:
        assert path.read_text().strip() not in found
    assert "cds1." not in found
    assert found.count("cdj1.") == 1
    assert found.index("agent.json") < found.index('permissions: "0600"') < found.index("cdj1.")
