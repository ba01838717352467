"""Task files: each form gives the same tasks, and every mistake has its line."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from cloud_dispatch.demand import taskfile
from cloud_dispatch.demand.submission import TaskInput, parse
from cloud_dispatch.demand.taskfile import read_tasks
from cloud_dispatch.domain.errors import InvalidInput, NotFound
from cloud_dispatch.domain.task import TaskSpec

TASKS = [
    {
        "command": ["echo", "a, b"],
        "cpus": 0.5,
        "env": {"SEED": "1"},
        "labels": {"zone": "b"},
        "outputs": ["o.txt", "p"],
    },
    {"command": "echo 'two\nlines'", "memory": "1GiB", "priority": 3, "preemptible": False, "retry": ["timeout"]},
]
TOML = """
[[task]]
command = ["echo", "a, b"]
cpus = 0.5
outputs = ["o.txt", "p"]
[task.env]
SEED = "1"
[task.labels]
zone = "b"

[[task]]
command = "echo 'two\\nlines'"
memory = "1GiB"
priority = 3
preemptible = false
retry = ["timeout"]
"""
CSV = """command,cpus,env.SEED,labels.zone,outputs,memory,priority,preemptible,retry
"[""echo"", ""a, b""]",0.5,1,b,o.txt p,,,,

"echo 'two
lines'",,,,,1GiB,3,false,timeout
"""
FORMS = {
    "t.jsonl": "\n".join(json.dumps(task) for task in TASKS) + "\n\n",
    "t.json": json.dumps(TASKS, indent=2),
    "wrapped.json": json.dumps({"tasks": TASKS}, indent=1),
    "t.csv": CSV,
    "t.toml": TOML,
}


def tasks_of(folder: Path, name: str, content: str | bytes) -> tuple[TaskSpec, ...]:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = read_tasks(path)
    return parse(found.inputs, places=[place.replace(f"{folder}/", "") for place in found.places])


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_tasks(tmp_path: Path, name: str) -> None:
    """The form of a file changes nothing of what it says."""
    assert tasks_of(tmp_path, name, FORMS[name]) == parse(TASKS)


@pytest.mark.parametrize("name", FORMS)
def test_a_file_may_be_compressed(tmp_path: Path, name: str) -> None:
    """By gzip: its form is told by what stands before `.gz`, and it is seen by its first bytes."""
    packed = gzip.compress(FORMS[name].encode())
    assert tasks_of(tmp_path, f"{name}.gz", packed) == parse(TASKS)
    assert tasks_of(tmp_path, name, packed) == parse(TASKS)


def test_the_standard_input_may_be_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file may."""
    packed = gzip.compress(FORMS["t.jsonl"].encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    assert parse(read_tasks(Path("-")).inputs) == parse(TASKS)


def test_what_is_in_a_compressed_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one is that is not compressed: a small file may hold more than memory does."""
    monkeypatch.setattr(taskfile, "MAX_BYTES", 1000)
    assert tasks_of(tmp_path, "t.jsonl.gz", gzip.compress(GOOD.encode() * 50))
    with pytest.raises(InvalidInput, match="at most 1000 bytes, got more out of its gzip"):
        tasks_of(tmp_path, "t.jsonl.gz", gzip.compress(GOOD.encode() * 51))


GOOD = '{"command": "true"}\n'
BAD = [
    ("t.jsonl", GOOD * 16 + '{"command": "true", "cpus": "many"}\n' + GOOD, "t.jsonl:17: cpus: expected a number"),
    ("t.jsonl", GOOD * 16 + '{"command": "true"\n' + GOOD, "t.jsonl:17: expected one JSON object on the line"),
    ("t.jsonl", GOOD + "\n" + "[" * 100_000, "t.jsonl:3: expected one JSON object on the line"),
    ("t.jsonl", GOOD + '{"command": "\\ud800"}', "t.jsonl:2: expected one JSON object on the line"),
    (
        "t.jsonl",
        GOOD + '{"command": "a", "command": "b"}',
        "t.jsonl:2: expected one JSON object on the line: 'command' is",
    ),
    ("t.jsonl", GOOD + '{"command": "a", "env": {"A": "1", "A": "2"}}', "t.jsonl:2: expected one JSON object"),
    ("t.json", '[\n {"command": "a"},\n {"command": "b", "cpus": 1, "cpus": 2}]', "t.json:3: expected JSON: 'cpus' is"),
    ("t.csv", 'command,env\na,"{""A"": ""1"", ""A"": ""2""}"\n', "t.csv:2: env: expected"),
    ("t.jsonl", GOOD + "3", "t.jsonl:2: expected a task"),
    ("t.jsonl", GOOD.encode() + b"\n\xff", "t.jsonl:3: expected UTF-8 text"),
    ("t.jsonl.gz", gzip.compress((GOOD * 3 + "3").encode()), "t.jsonl.gz:4: expected a task"),
    ("t.jsonl.gz", gzip.compress(GOOD.encode())[:-9], "t.jsonl.gz: expected a whole gzip file"),
    ("t.jsonl.gz", b"\x1f\x8bnone", "t.jsonl.gz: expected a whole gzip file"),
    ("t.jsonl.xz", b"\xfd7zXZ\0", "t.jsonl.xz:1: expected UTF-8 text (of compressed files gzip alone is read)"),
    ("t.jsonl", "\n \n", "t.jsonl: expected at least one task"),
    ("t.json", '[\n {"command": "a"},\n {"command": "b",\n  "cpus": 0}\n]', "t.json:3: cpus: expected"),
    ("t.json", '[\n {"command": "a"},\n {"command" "b"}\n]', "t.json:3: expected JSON"),
    ("t.json", '[{"command": "a", "cpus": NaN}]', "t.json:1: expected JSON: NaN"),
    ("t.json", '[{"command": "a"}', "t.json:1: expected JSON"),
    ("t.json", '[{"command": "a"},]', "t.json:1: expected JSON"),
    ("t.json", '[{"command": "a"} {"command": "a"}]', "t.json:1: expected JSON: ','"),
    ("t.json", "[]", "t.json: expected at least one task"),
    ("t.json", '[{"command": "a"}] x', "t.json:1: expected nothing after"),
    ("t.json", '{"command": "a"}', "t.json:1: expected a list of tasks"),
    ("t.csv", "command,cpu\na,1\n", "t.csv:1: no such field 'cpu'"),
    ("t.csv", 'command,cpus\na,1\n"b\nc",2\nd,x\n', "t.csv:5: cpus: expected"),
    ("t.csv", "command,priority\na,high\n", "t.csv:2: priority: expected a whole number, got 'high'"),
    ("t.csv", "command,preemptible\na,perhaps\n", "t.csv:2: preemptible: expected true or false"),
    ("t.csv", "command,cpus\na\n", "t.csv:2: expected 2 columns, got 1"),
    ("t.csv", "command,command\na,b\n", "t.csv:1: expected each column once"),
    ("t.csv", 'command,cpus\na,1\n"b,2\n', "t.csv:3: expected CSV"),
    ("t.toml", "[[task]]\ncommand = 'a'\n\n[[task]]\ncommand = 'b'\ncpus = -1\n", "t.toml:4: cpus: expected"),
    ("t.toml", "[[task]]\ncommand = \n", "t.toml:2: expected TOML"),
    ("t.toml", "command = 'a'\n", "t.toml:1: expected tasks as [[task]]"),
]


@pytest.mark.parametrize(("name", "content", "expected"), BAD, ids=[expected[:40] for _, _, expected in BAD])
def test_mistake_in_a_file_has_its_line(tmp_path: Path, name: str, content: str | bytes, expected: str) -> None:
    """A bad line 17 is called line 17, and nothing of the file is taken."""
    with pytest.raises(InvalidInput) as caught:
        tasks_of(tmp_path, name, content)
    assert str(caught.value).replace(f"{tmp_path}/", "").startswith(expected)


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The error says which file."""
    with pytest.raises(NotFound, match=r"no task file .*absent\.csv"):
        read_tasks(tmp_path / "absent.csv")


def test_a_bracket_in_csv_begins_a_list_only_where_one_may_be(tmp_path: Path) -> None:
    """In a field that holds text it is a part of that, whatever it looks like."""
    kinds = TaskInput.__annotations__
    nested = {name for name, kind in kinds.items() if any(word in kind for word in ("list[", "dict[", "Input"))}
    texts = {name for name, kind in kinds.items() if kind == "str"}
    assert {"project", "pool", "idempotency_key"} <= texts
    for name in nested | texts:
        (tmp_path / "t.csv").write_text(f'{name}\n"[""x""]"\n')
        assert read_tasks(tmp_path / "t.csv").inputs == [{name: ["x"] if name in nested else '["x"]'}]
    for name in texts:
        (tmp_path / "t.csv").write_text(f"{name}\n[x] {{y\n")
        assert read_tasks(tmp_path / "t.csv").inputs == [{name: "[x] {y"}]


def test_shell_test_bracket_in_csv_is_a_command(tmp_path: Path) -> None:
    """A cell that begins with the shell's `[` is not mistaken for a list."""
    (spec,) = tasks_of(tmp_path, "t.csv", "command\n[ -d / ] && echo yes\n")
    assert spec.shell == "[ -d / ] && echo yes"
