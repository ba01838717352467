"""Task files: JSON lines, JSON, CSV, TOML, gzipped too. Owns how each becomes plain task inputs, with the line of each.

Only the file's form is checked here; what the fields mean is `submission`'s.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
import tomllib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cloud_dispatch.demand import fields
from cloud_dispatch.demand.submission import FIELDS
from cloud_dispatch.domain.errors import InvalidInput, NotFound

#: A larger file is submitted in parts; of a compressed one, what is in it counts too.
MAX_BYTES = 256 * 2**20
_GZIP = b"\x1f\x8b"
_TOML_LINE = re.compile(r" \(at line (\d+), column \d+\)$")
_TASK_HEADER = re.compile(r"\s*\[\[\s*task\s*\]\]")
_BLANK = re.compile(r"[ \t\r\n]*")
_WHOLE = frozenset({"max_attempts", "priority", "max_per_instance", "array", "gpus"})
#: Fields that may hold a list or a table. Of any other a bracket is a part of the text.
_NESTED = frozenset({"command", "env", "gpus", "labels", "inputs", "outputs", "retry", "sweep"})
_YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class TaskFile:
    """The tasks of a file as plain values, and the place (`tasks.jsonl:17`) of each."""

    inputs: list[Any]
    places: list[str]


def read_tasks(path: Path) -> TaskFile:
    """The tasks of a `.jsonl`, `.json`, `.csv` or `.toml` file, told by its suffix (any other: JSON lines). It may be
    compressed: gzip is seen by its first bytes, and a last `.gz` is left out of account.

    `-` is the standard input. NotFound when there is no such file, InvalidInput with the line of what has not its form.
    """
    if str(path) == "-":
        body = sys.stdin.buffer.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            raise InvalidInput(f"expected at most {MAX_BYTES} bytes", place="standard input")
        return parse_tasks(_unpacked(body, "standard input"), "standard input", "")
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InvalidInput(f"expected at most {MAX_BYTES} bytes, got {size}", place=str(path))
        body = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"there is no task file {path}") from None
    except OSError as error:
        raise InvalidInput(f"can't be read: {error.strerror}", place=str(path)) from None
    named = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return parse_tasks(_unpacked(body, str(path)), str(path), named.suffix.lower())


def _unpacked(body: bytes, origin: str) -> bytes:
    """`body`, out of its gzip where it is in one."""
    if not body.startswith(_GZIP):
        return body
    try:
        with gzip.open(io.BytesIO(body)) as stream:
            found = stream.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInput(f"expected a whole gzip file: {error}", place=origin) from None
    if len(found) > MAX_BYTES:
        raise InvalidInput(f"expected at most {MAX_BYTES} bytes, got more out of its gzip", place=origin)
    return found


def parse_tasks(body: bytes, origin: str, suffix: str) -> TaskFile:
    """Like `read_tasks`, for bytes that came from `origin`."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        hint = "of compressed files gzip alone is read" if line == 1 else ""
        raise InvalidInput("expected UTF-8 text", place=f"{origin}:{line}", hint=hint) from None
    reader = _READERS.get(suffix, _json_lines)
    found = reader(text, origin)
    if not found.inputs:
        raise InvalidInput("expected at least one task, got none", place=origin)
    return found


def _json_lines(text: str, origin: str) -> TaskFile:
    tasks = TaskFile([], [])
    decode = msgspec.json.Decoder().decode
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{origin}:{number}"
        try:
            tasks.inputs.append(decode(line))
            _DECODER.decode(line)  # it alone can tell that a key is there twice
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"expected one JSON object on the line: {error}", place=place) from None
        tasks.places.append(place)
    return tasks


def _json(text: str, origin: str) -> TaskFile:
    """A list of tasks, or an object with the list as `tasks`; each element is decoded alone to know its line."""
    start = text.find("[")
    opening = text[:start].strip() if start >= 0 else text.strip()
    if start < 0 or (opening and not re.fullmatch(r'\{\s*"tasks"\s*:', opening)):
        raise InvalidInput('expected a list of tasks, or {"tasks": [...]}', place=f"{origin}:1")
    tasks = TaskFile([], [])
    position = _after_blank(text, start + 1)
    line = text.count("\n", 0, position) + 1
    closed = text[position : position + 1] == "]"
    while not closed:
        place = f"{origin}:{line}"
        try:
            value, end = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"expected JSON: {error.msg}", place=f"{origin}:{error.lineno}") from None
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"expected JSON: {error}", place=place) from None
        tasks.inputs.append(value)
        tasks.places.append(place)
        end = _after_blank(text, end)
        closed = text[end : end + 1] == "]"
        if not closed and text[end : end + 1] != ",":
            raise InvalidInput("expected JSON: ',' or ']' after the task", place=place)
        after = end if closed else _after_blank(text, end + 1)
        line, position = line + text.count("\n", position, after), after
    rest = text[position + 1 :].strip()
    if rest != ("}" if opening else ""):
        raise InvalidInput("expected nothing after the list of tasks", place=f"{origin}:{line}")
    return tasks


def _after_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a key that is there twice would hide what was said first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{fields.shorten(twice)} is there twice")
    return found


_DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_once)


def _toml(text: str, origin: str) -> TaskFile:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_LINE.search(str(error))
        place = f"{origin}:{match[1]}" if match else origin
        raise InvalidInput(f"expected TOML: {_TOML_LINE.sub('', str(error))}", place=place) from None
    listed = content.get("task", [])
    if set(content) - {"task"} or not isinstance(listed, list):
        raise InvalidInput("expected tasks as [[task]] and nothing else", place=f"{origin}:1")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if _TASK_HEADER.match(line)]
    exact = len(lines) == len(listed)  # else they stand in an inline list, or a header stands in a text
    places = [f"{origin}:{lines[i]}" if exact else f"{origin}: task[{i}]" for i in range(len(listed))]
    return TaskFile(listed, places)


def _csv(text: str, origin: str) -> TaskFile:
    """The header names the fields; `env.X` and `labels.X` columns fill tables; empty cells are left out."""
    tasks = TaskFile([], [])
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    before = 0
    try:
        for row in rows:
            place, before = f"{origin}:{before + 1}", rows.line_num
            if not header:
                header = _header(row, place)
            elif any(cell.strip() for cell in row):
                tasks.inputs.append(_row(header, row, place))
                tasks.places.append(place)
    except csv.Error as error:
        raise InvalidInput(f"expected CSV: {error}", place=f"{origin}:{rows.line_num}") from None
    return tasks


def _header(row: list[str], place: str) -> list[str]:
    names = [cell.strip() for cell in row]
    for name in names:
        if name not in FIELDS and not name.startswith(("env.", "labels.")):
            raise InvalidInput(
                f"no such field {fields.shorten(name)}",
                place=place,
                hint=f"fields: {', '.join(FIELDS)}, env.X, labels.X",
            )
    if len(set(names)) != len(names):
        raise InvalidInput("expected each column once", place=place)
    return names


def _row(header: list[str], row: list[str], place: str) -> dict[str, Any]:
    if len(row) != len(header):
        raise InvalidInput(f"expected {len(header)} columns, got {len(row)}", place=place)
    task: dict[str, Any] = {}
    for name, cell in zip(header, row, strict=True):
        if cell == "":
            continue
        table, dot, key = name.partition(".")
        if dot:
            task.setdefault(table, {})[key] = cell
        else:
            try:
                task[name] = _cell(name, cell)
            except ValueError:
                raise InvalidInput(
                    f"expected {fields.EXPECTED[name]}, got {fields.shorten(cell)}", place=f"{place}: {name}"
                ) from None
    return task


def _cell(name: str, cell: str) -> Any:
    """The value of a cell: tables and lists are JSON, short lists may also be texts with spaces between."""
    text = cell.strip()
    if name in _NESTED and text.startswith(("[", "{")) and (name != "command" or _is_json_list(text)):
        return _DECODER.decode(text)
    if name in _WHOLE:
        return int(text)
    if name in ("preemptible", "exclusive"):
        return _YES_NO[text.lower()] if text.lower() in _YES_NO else _refuse()
    if name in ("retry", "outputs"):
        return text.split()
    return cell if name == "command" else text


def _is_json_list(text: str) -> bool:
    """Whether a command that begins with a bracket is argv; else it is the shell's `[`."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, list)


def _refuse() -> Any:
    raise ValueError("not a value of this field")


_READERS: Mapping[str, Callable[[str, str], TaskFile]] = {
    ".json": _json,
    ".toml": _toml,
    ".csv": _csv,
}
