"""`config show --effective`: every setting, where it comes from, and no secret."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.cli.main import run
from cloud_dispatch.config import Config, TomlFile, load
from cloud_dispatch.config.effective import Setting, dotted, effective, quoted, text, toml
from cloud_dispatch.provider.registry import plugin

ROOT = Path(__file__).resolve().parents[2]
WHOLE = """\
[dispatcher]
state_dir = "state"
listen = "0.0.0.0:8000"
advertise = "https://10.0.0.5:8000"
[store]
url = "credential:database"
[profiles.here]
driver = "local"
max_vms = 3
caps = {instances = 5}
pricing = {"local.*" = "-15%"}
[profiles.here.catalogue."a.b"]
cpus = 2
memory = "1GiB"
price = "0.10"
[pools.cpu]
profiles = ["here"]
labels.tier = "b"
end = {idle = "90s"}
[[pools.cpu.schedule]]
days = "fri-mon"
target = 1
[[pools.cpu.health_checks]]
command = "test -d /"
[users."ann o'x".budget]
day = "5"
"""


def settings_of(path: Path) -> tuple[Config, dict[str, Setting]]:
    raw = TomlFile(path).read()
    config = load(raw, plugin)
    return config, {one.key: one for one in effective(config, raw)}


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(WHOLE)
    return path


def test_every_value_says_where_it_comes_from(whole: Path) -> None:
    """The line of the file that says it, a table on one line being that line; what it does not say is a default."""
    _, found = settings_of(whole)
    lines = WHOLE.splitlines()
    told = {
        "dispatcher.listen": "listen =", "store.url": "url =", "profiles.here.max_vms": "max_vms",
        "profiles.here.caps.instances": "caps =", 'profiles.here.pricing."local.*"': "pricing =",
        'profiles.here.catalogue."a.b".cpus': "cpus =", "pools.cpu.labels.tier": "labels.tier",
        "pools.cpu.end.idle": "end =", "pools.cpu.schedule": "[[pools.cpu.schedule]]",
        "users.\"ann o'x\".budget.day": "day =",
    }  # fmt: skip
    for key, begin in told.items():
        number = next(at for at, line in enumerate(lines, 1) if line.startswith(begin))
        assert found[key].source == f"{whole}:{number}", key
    for key in ("timing.lease", "profiles.here.caps.vcpus", "pools.cpu.end.lifetime", "pools.cpu.target"):
        assert found[key].source == "default", key
    assert sum(one.source != "default" for one in found.values()) == 17


def test_what_is_empty_says_what_it_comes_to(whole: Path) -> None:
    _, found = settings_of(whole)
    assert found["dispatcher.deployment"].meaning == "a random one, kept in the statestore"
    assert found["dispatcher.certificate"].meaning == f"made in {whole.parent}/state/tls"
    assert found["store.url"].meaning == ""
    whole.write_text("[timing]\nlease = '2m'\n")
    _, found = settings_of(whole)
    assert found["dispatcher.advertise"].meaning == "https://127.0.0.1:7717"
    assert found["store.url"].meaning.startswith("sqlite:///")
    assert found["profiles.local.driver"].source == found["pools.default.profiles"].source == "built-in"
    assert found["timing.lease"].source == f"{whole}:2"


@pytest.mark.parametrize(
    "path", [pytest.param(None, id="whole"), *(pytest.param(p, id=f"{p.parent.name}-{p.stem}")
                                               for p in sorted((ROOT / "profiles").glob("*/*.toml")))]
)  # fmt: skip
def test_it_reads_back_as_the_same_configuration(path: Path | None, whole: Path, tmp_path: Path) -> None:
    """From anywhere: paths are whole. Nothing is left out, and every line but the comments is a setting."""
    config, found = settings_of(path or whole)
    written = tmp_path / "elsewhere" / "again.toml"
    written.parent.mkdir()
    written.write_text(text(list(found.values()), config.origin))
    again, same = settings_of(written)
    assert again.model_copy(update={"origin": config.origin}) == config
    assert {key: one.value for key, one in same.items()} == {key: one.value for key, one in found.items()}
    assert config.describe() == load(TomlFile(written), plugin).describe()
    unset = {key for key, one in found.items() if one.value is None}
    lines = written.read_text().splitlines()
    assert len(lines) == len(found)
    assert {line[2:].partition(" is not set")[0] for line in lines if line.startswith("#")} == unset


@pytest.mark.parametrize(
    ("line", "key", "shown"),
    [
        ("store.url = 'postgresql://bob:hunter2@db/x'", "store.url", "postgresql://bob:***@db/x"),
        ("pools.p.health_checks = [{command = 'probe --token=hunter2'}]", "pools.p.health_checks", None),
        ("pools.p.labels.api = 'password=hunter2'", "pools.p.labels.api", "password=***"),
        ("pools.p.labels.api = 'my-secret:hunter2'", "pools.p.labels.api", "my-secret:***"),
    ],
)
def test_no_secret_is_shown_and_that_is_said(tmp_path: Path, line: str, key: str, shown: str | None) -> None:
    """Wherever in a value it stands. A reference to a secret is none."""
    path = tmp_path / "config.toml"
    path.write_text(f"profiles.x.driver = 'local'\npools.p.profiles = ['x']\n{line}\n")
    config, found = settings_of(path)
    assert shown in (None, found[key].value)
    assert [name for name, one in found.items() if one.masked] == [key]
    told = text(list(found.values()), config.origin)
    assert "hunter2" not in told + json.dumps([one.value for one in found.values()])
    assert told.count("a secret of which is not shown") == 1


@pytest.mark.parametrize("reference", ["credential:database", "env:DATABASE", "aws-secret:lab/database#url"])
def test_a_reference_to_a_secret_is_shown(whole: Path, reference: str) -> None:
    """Where it is kept is no secret."""
    whole.write_text(WHOLE.replace("credential:database", reference))
    _, found = settings_of(whole)
    assert (found["store.url"].value, found["store.url"].masked) == (reference, False)
    whole.write_text(
        WHOLE.replace("credential:database", "postgresql://bob@db/x").replace(
            "[store]\n", f"[store]\npassword = '{reference}'\n"
        )
    )
    _, found = settings_of(whole)
    assert (found["store.password"].value, found["store.password"].masked) == (reference, False)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.text(
    st.characters(exclude_categories=["Cs"]), max_size=20)))  # fmt: skip
def test_any_text_is_toml(values: dict[str, str]) -> None:
    """As a key and as a value: control characters, quotes, anything."""
    lines = "".join(f"{dotted((key,))} = {quoted(value)}\n" for key, value in values.items())
    assert tomllib.loads(lines) == values
    assert tomllib.loads(f"x = {toml([values])}") == {"x": [values]}


def test_the_command_says_which_file_and_what_else_is_heeded(
    whole: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option, the variable or the place that named it; variables that commands heed, without their secrets."""
    assert run(["config", "show", "--effective", "--config", str(whole)]) == 0
    said = capfd.readouterr().out
    assert said.startswith(f"# {whole}, by --config")
    assert 'timing.lease = "5m"  # default\n' in said
    assert 'listen = "0.0.0.0:8000"  # line 3\n' in said
    assert tomllib.loads(said)["pools"]["cpu"]["end"]["idle"] == "90s"
    monkeypatch.setenv("CLOUD_DISPATCH_CONFIG", str(whole))
    monkeypatch.setenv("CLOUD_DISPATCH_URL", "https://bob:hunter2@10.0.0.9:7717")
    monkeypatch.setenv("CLOUD_DISPATCH_TOKEN", "hunter2")
    assert run(["config", "show", "--effective"]) == 0
    said = capfd.readouterr().out
    assert f"# {whole}, by $CLOUD_DISPATCH_CONFIG" in said
    assert "# $CLOUD_DISPATCH_URL is set" in said
    assert "hunter2" not in said
    assert run(["config", "show", "--effective", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["named_by"] == "$CLOUD_DISPATCH_CONFIG"
    (lease,) = [one for one in found["settings"] if one["path"] == "timing.lease"]
    assert lease == {"path": "timing.lease", "value": "5m", "source": "default", "meaning": "", "masked": False}
    assert "hunter2" not in json.dumps(found)
