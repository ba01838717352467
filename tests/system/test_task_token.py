"""Task tokens where they are used: by real agents and by curl in real tasks, over TLS, and shown to nobody."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import procfs
from tests.system.house import CONFIG, House

pytestmark = pytest.mark.process
TLS = CONFIG.replace("tls = false\n", "")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "submit-tasks.md"
WAITS = 'echo "$CLOUD_DISPATCH_TASK_TOKEN" > token; chmod 600 token; sleep 600'


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path, config=TLS, idle="60s", lease="60s")
    house.url = house.url.replace("http:", "https:")
    house.trust = house.state / "tls" / "ca.pem"
    try:
        house.up()
        yield house
    finally:
        house.clean_up()


def documented() -> tuple[str, str]:
    """The two examples of the how-to page: how a task stores, and how it reads."""
    store, read = re.findall(r"```sh\n(curl .*?)```", PAGE.read_text(), re.DOTALL)
    return store, read


def command_lines() -> Iterator[str]:
    """Of every process of this host."""
    for path in Path("/proc").glob("[0-9]*"):
        yield " ".join(procfs.words(int(path.name)))


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_what_the_page_says_a_task_can_do_with_curl_works(house: House) -> None:
    """It stores a declared output and reads an input, which the agent had brought before, as it runs."""
    store, read = documented()
    script = f"echo early > part.txt\n{store}\necho late > part.txt"
    (first,) = house.submit({"command": script, "outputs": ["part.txt"]})
    ended = house.until_ended(first)
    assert (ended["state"], [one["path"] for one in ended["outputs"]]) == ("succeeded", ["part.txt"])
    assert b'"size":6' in house.logs(first), "what curl was answered"
    route = f"/v1/tasks/{first}/outputs/part.txt"
    assert house.ask("GET", route).content == b"late\n"
    again = read.replace("/v1/tasks/17/outputs/result.txt", route)
    (second,) = house.submit(
        {
            "command": f"cat data.txt\n{again}\ncat again.txt\n" + again.replace("part.txt", "other.txt"),
            "inputs": [{"path": "data.txt", "url": house.url + route}],
        }
    )
    assert house.until_ended(second)["state"] == "failed"
    said = house.logs(second).decode()
    assert said.startswith("late\nlate\n")
    assert "403" in said, "what is no input of the task"


def test_no_token_is_in_the_state_folder(house: House) -> None:
    """Neither the database nor a log nor a file of the dispatcher's holds one, nor a VM's proof of identity; nor does
    any command line show one."""
    (task,) = house.submit({"command": WAITS})
    (disk,) = house.until(lambda: list(house.state.glob("providers/local/vms/*/disk")), 30, "there is a VM")
    (kept,) = house.until(lambda: list(disk.rglob("token")), 30, "the task has its token")
    own = house.until(lambda: kept.read_text().strip(), 10, "all of it")
    identity = json.loads(next(disk.rglob("identity.json")).read_text())
    join = re.search(r"cdj1[\w.-]+", (disk.parent / "user-data").read_text())
    assert own.startswith("cdt1.")
    assert join is not None
    secrets = {"task": own, "service": identity["token"], "join": join[0], "operator": house.token}
    secrets["proof"] = (disk.parent / "identity").read_text()
    answers = [house.ask("GET", path).text for path in (
        f"/v1/tasks/{task}", "/v1/tasks", f"/v1/tasks/{task}/explain", "/v1/events?limit=1000", "/v1/instances",
        f"/v1/instances/{identity['instance']}/explain", "/v1/metrics", "/v1/plans",
    )]  # fmt: skip
    shown = subprocess.run(house.command("tasks", "--json"), capture_output=True, text=True, check=True).stdout
    words = list(command_lines())
    files = [
        path for path in [*house.state.rglob("*"), house.log]
        if path.is_file() and disk not in path.parents and path.name not in ("operator.token", "user-data", "identity")
    ]  # fmt: skip
    assert any(path.name.startswith("store.sqlite") for path in files)
    for name, secret in secrets.items():
        assert len(secret) > 22, name
        assert not [path for path in files if secret.encode() in path.read_bytes()], name
        assert not [text for text in [*answers, shown, *words] if secret in text], name
    assert house.counts() == {"running": 1}
    (house.state / "operator.token").rename(house.folder / "elsewhere")
    assert subprocess.run(house.command("tasks"), capture_output=True, check=False).returncode == 6
    (house.folder / "elsewhere").rename(house.state / "operator.token")
