"""Boot documents: every template renders to cloud-config that VMs understand, and every mistake has a place."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloud_dispatch.agent.identity import Config
from cloud_dispatch.agent.privileges import users
from cloud_dispatch.cloudinit import assets
from cloud_dispatch.cloudinit.render import _environment, prepare, render
from cloud_dispatch.cloudinit.variables import DEFAULTS, MEANINGS
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.spi import Traits
from cloud_dispatch.wire.codec import decode
from cloud_dispatch_local.cloudconfig import parse

ODD = "a'b\"c $(x) `y` <é> # {{ z }} \\n: - "
DISPATCHER: dict[str, Any] = {
    "url": "http://10.0.0.1:7717",
    "join_token": "join-" + "x" * 200,
    "agent_sha256": "ab" * 32,
    "pool": "default",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "local": dict(registry.plugin("local").template_variables()),
    "odd": {"join_token": ODD, "labels": {"team": ODD}, "python": "/opt/a b/python3", "base_folder": "/opt/ünï dir"},
    "no service": {"service": "", "agent_user": "1000", "task_uids": "", "end_command": ""},
    "proxies": {"proxies": {"http": "http://p:1/$x", "https": "http://p:2", "no": "localhost,10.0.0.0/8"}},
    "tls": {"url": "https://10.0.0.1:7717", "fingerprint": "cd" * 32, "end_command": "shutdown -h now"},
}


def document(template: str = "agent", **variables: Any) -> Any:
    return yaml.safe_load(render(template, {**DISPATCHER, **variables}))


def written(template: str = "agent", **variables: Any) -> dict[str, str]:
    """The files that the document writes, by their base name."""
    return {Path(file["path"]).name: file["content"] for file in document(template, **variables)["write_files"]}


def test_where_the_proof_is_stands_only_where_there_is_one() -> None:
    """The driver's steps to it, as they are; none for VMs that can't prove who they are."""
    steps = [{"url": "http://169.254.169.254/x?audience=cloud-dispatch-b1", "headers": {"A": "b"}}]
    files = written(proof=steps)
    assert json.loads(files["agent.json"])["proof_steps"] == steps
    ast.parse(files["boot.py"])
    assert "boot.py prove" not in files["bootstrap.sh"]
    assert "boot.py prove" in written(proof=steps, nvidia=True)["bootstrap.sh"]
    assert "prove" not in written()["bootstrap.sh"] + written()["agent.json"]


def test_where_notices_are_stands_only_in_what_spot_vms_get() -> None:
    """Nobody takes others back, and their agents need not ask."""
    sources = [{"steps": [{"url": "http://169.254.169.254/x", "headers": {"A": "{answer}"}}], "field": "time"}]
    config = json.loads(written(notices=sources, spot=True)["agent.json"])
    assert config["notices"] == sources
    assert decode(Config, json.dumps(config).encode()).notices[0].steps[0].headers == {"A": "{answer}"}
    for variables in ({"notices": sources}, {"spot": True}):
        assert "notices" not in json.loads(written(**variables)["agent.json"])


def test_vms_set_agent_and_tasks_apart_unless_told_otherwise() -> None:
    """By users that the agent's supervisor understands; on this host each VM's machine names them instead."""
    told = json.loads(written()["agent.json"])
    found = users("700", told["task_uids"])
    assert told["agent_user"] == "cloud-dispatch"
    assert found is not None
    assert found.last > found.first
    local = json.loads(written(**VARIANTS["local"])["agent.json"])
    assert (local["agent_user"], local["task_uids"]) == ("", "")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("template", assets.names())
def test_every_template_renders_to_cloud_config(template: str, variant: str) -> None:
    """The document is within the smallest user-data limit and holds what cloud-init's own schema asks for."""
    text = render(template, {**DISPATCHER, **VARIANTS[variant]})
    assert len(text.encode()) <= Traits().max_user_data
    found = yaml.safe_load(text)
    assert text.startswith("#cloud-config\n")
    assert set(found) <= {"bootcmd", "write_files", "runcmd"}
    for file in found["write_files"]:
        assert set(file) == {"path", "permissions", "content"}
        assert all(isinstance(value, str) for value in file.values())
        assert variant == "local" or file["path"].startswith("/")
        assert int(file["permissions"], 8) <= 0o777
    for command in found["runcmd"]:
        assert all(isinstance(word, str) for word in command)
    assert parse(text).commands  # and a local VM understands all of it


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_agents_configuration_arrives_unchanged(variant: str) -> None:
    """Whatever characters the values have, the agent reads back what the dispatcher said, from a file of mode 0600."""
    given = {**DEFAULTS, **DISPATCHER, **VARIANTS[variant]}
    (file,) = [f for f in document(**VARIANTS[variant])["write_files"] if f["path"].endswith("/agent.json")]
    config = json.loads(file["content"])
    assert file["permissions"] == "0600"
    for name in ("url", "fingerprint", "join_token", "agent_sha256", "proxies", "agent_user", "task_uids"):
        assert config[name] == given[name]
    assert config["end_command"] == (["/bin/sh", "-c", given["end_command"]] if given["end_command"] else [])
    assert config["facts"]["pool"] == given["pool"]
    assert all(isinstance(value, str) for value in config["facts"].values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_scripts_are_valid_in_their_languages(variant: str) -> None:
    """The shell accepts the bootstrap script, and Python 3.9 the fetching one, with every variant of the values."""
    files = written(**VARIANTS[variant])
    done = subprocess.run(
        ["/bin/sh", "-n"], input=files["bootstrap.sh"], text=True, capture_output=True, timeout=10, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    compile(files["boot.py"], "boot.py", "exec")
    ast.parse(files["boot.py"], feature_version=(3, 9))


def test_an_operators_folder_comes_first(tmp_path: Path) -> None:
    """A template in an operator's folder replaces ours of that name and may extend our base."""
    (tmp_path / "agent.yaml.j2").write_text(
        '{% extends "_base.yaml.j2" %}{% block commands %}  - echo {{ pool }}\n{% endblock %}'
    )
    (tmp_path / "mine.yaml.j2").write_text("#cloud-config\nruncmd: [echo]\n")
    found = yaml.safe_load(render("agent", DISPATCHER, folders=[tmp_path]))
    assert found == {"runcmd": ["echo default"]}
    assert assets.names([tmp_path]) == ("agent", "mine")
    assert document()["runcmd"] != found["runcmd"]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (
            "#cloud-config\nruncmd:\n  - {{ nothing }}\n",
            r"t.yaml.j2:3: 'nothing' is undefined \(variables: .*join_token",
        ),
        ("#cloud-config\n{% if %}\n", r"t.yaml.j2:2: Expected an expression"),
        ("#cloud-config\n{% include 'gone' %}\n", r"t.yaml.j2: no such template 'gone'"),
        ("#cloud-config\n{{ pool | shquote(1, 2) }}\n", r"t.yaml.j2:2: "),
        ("runcmd: []\n", r"t.yaml.j2, rendered line 1: the document must begin with #cloud-config"),
        ("#cloud-config\na: b: c\n", r"t.yaml.j2, rendered line 2: not YAML: mapping values"),
        ("#cloud-config\n- a\n", r"t.yaml.j2: expected a mapping"),
    ],
)
def test_a_mistake_in_a_template_has_its_place(tmp_path: Path, source: str, complaint: str) -> None:
    """Template, line and what was expected: an operator finds the mistake before any VM is paid for."""
    (tmp_path / "t.yaml.j2").write_text(source)
    with pytest.raises(InvalidInput, match=complaint):
        render("t", DISPATCHER, folders=[tmp_path])


def test_an_unknown_template_is_named_with_those_that_exist() -> None:
    """A misspelt template names the ones there are; bases and parts are not among them."""
    with pytest.raises(InvalidInput, match=r"no such template 'agnt.yaml.j2' \(templates: agent\)"):
        render("agnt", DISPATCHER)


def test_no_error_shows_the_join_token() -> None:
    """What goes into a log when a template fails holds no secret of the batch."""
    with pytest.raises(InvalidInput) as caught:
        render("agent", {name: value for name, value in DISPATCHER.items() if name != "url"})
    assert re.match(r"agent\.json\.j2:\d+: 'url' is undefined", str(caught.value))
    assert DISPATCHER["join_token"] not in str(caught.value)


def test_every_variable_is_described() -> None:
    """The table of variables holds every one with a default, every one of the dispatcher and of the local driver."""
    assert set(DEFAULTS) | set(DISPATCHER) | set(VARIANTS["local"]) == set(MEANINGS)


def test_what_is_prepared_is_read_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first launch finds every template compiled, those that others are made of too."""
    _environment.cache_clear()
    prepare()
    monkeypatch.setattr(_environment(()).loader, "get_source", None)
    for name in assets.names():
        render(name, DISPATCHER)


def test_a_broken_template_is_told_of_when_it_is_rendered(tmp_path: Path) -> None:
    """Preparing passes over it, and over what is no text: the pool that names it may never launch."""
    (tmp_path / "broken.yaml.j2").write_text("#cloud-config\n{% if %}\n")
    (tmp_path / "noise.yaml.j2").write_bytes(b"\xff\xfe")
    prepare(folders=[tmp_path])
    with pytest.raises(InvalidInput, match="broken"):
        render("broken", DISPATCHER, folders=[tmp_path])
