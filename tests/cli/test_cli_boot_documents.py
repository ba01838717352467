"""`cloud-init render` and `cloud-init check` over real configurations and the real local driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloud_dispatch.cli.exitcodes import NOT_FOUND, OK, TASKS_FAILED
from cloud_dispatch.cloudinit import schema

GOOD = """
[dispatcher]
state_dir = "state"
advertise = "https://10.1.2.3:7717"
[profiles.one]
driver = "local"
[profiles.two]
driver = "local"
[pools.default]
profiles = ["one", "two"]
labels = {team = "blue"}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(GOOD)
    return path


def test_render_prints_what_a_vm_would_get(cli: Any, config: Path) -> None:
    """A whole document on stdout, with the pool's facts and no join token that anybody could use."""
    done = cli("cloud-init", "render", "--pool", "default", "--config", str(config))
    assert done.code == OK, done
    (agent,) = [f for f in yaml.safe_load(done.out)["write_files"] if f["path"].endswith("agent.json")]
    given = json.loads(agent["content"])
    assert given["url"] == "https://10.1.2.3:7717"
    assert given["facts"] == {"pool": "default", "labels": "team=blue"}
    assert given["join_token"].strip("-") == "JOIN-TOKEN"
    assert not (config.parent / "state" / "keys").exists()


def test_render_knows_its_pools_and_profiles(cli: Any, config: Path) -> None:
    """One of its profiles may be named; what there is not is answered with what there is."""
    asked = ("cloud-init", "render", "--config", str(config), "--json")
    done = cli(*asked, "--pool", "default", "--profile", "two")
    assert json.loads(done.out)["profile"] == "two"
    for words, hint in ((("--pool", "nope"), "pools: default"), (("--pool", "default", "--profile", "x"), "one, two")):
        done = cli(*asked, *words)
        assert done.code == NOT_FOUND
        assert hint in done.err


def test_check_judges_every_pool_on_every_profile(cli: Any, config: Path) -> None:
    """Each is rendered, measured against its driver's limit, and shown to cloud-init's own schema."""
    done = cli("cloud-init", "check", "--config", str(config), "--json")
    assert done.code == OK, done
    found = json.loads(done.out)
    assert (found["ok"], found["schema_asked"]) == (True, True)
    assert [(row["pool"], row["profile"]) for row in found["documents"]] == [("default", "one"), ("default", "two")]
    assert all(0 < row["bytes"] < row["limit"] == 16_384 for row in found["documents"])


def test_check_fails_for_a_pool_that_could_not_boot(cli: Any, config: Path) -> None:
    """A template that does not exist and a document that is too large are found before a VM is paid for."""
    long = "x" * 17_000
    config.write_text(
        GOOD
        + '[pools.misspelt]\nprofiles = ["one"]\ntemplate = "agnt"\n'
        + f'[pools.large]\nprofiles = ["one"]\nlabels = {{a = "{long}"}}\n'
    )
    done = cli("cloud-init", "check", "--config", str(config))
    assert done.code == TASKS_FAILED
    assert "pool misspelt on one: agnt.yaml.j2: no such template" in done.out
    assert "the provider takes 16384" in done.out
    assert "pool default on one: good, " in done.out


def test_check_says_where_the_schema_was_not_asked(cli: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cloud-init, what could be checked is, and what could not is said."""
    monkeypatch.setattr(schema, "program", lambda: None)
    done = cli("cloud-init", "check", "--config", str(config))
    assert done.code == OK
    assert "cloud-init is not installed here: its own schema was not asked" in done.out


def test_check_tells_what_cloud_init_refuses(cli: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that renders and that cloud-init does not take is a failure, with cloud-init's words."""
    monkeypatch.setattr("cloud_dispatch.cloudinit.render.render", lambda *_, **__: "#cloud-config\nruncmd: 1\n")
    done = cli("cloud-init", "check", "--config", str(config))
    assert done.code == TASKS_FAILED
    assert "cloud-init does not accept it: " in done.out
    assert "runcmd" in done.out
