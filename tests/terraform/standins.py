"""Configurations with something that Terraform has itself in the place of each resource and data source, so that it
plans them without any provider. What it then says is its own word of all that is not a provider's: circles between
modules too, counts and keys that would be known too late, conditions, and the types of expressions.

Of a stand-in nothing is known before it is made, which is more than is unknown of a real resource. What a data source
tells may be said, as it is looked at before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_HEAD = re.compile(r"^(\w+)((?: \"[\w-]+\")*) \{(\})?$")
_BLOCK = re.compile(r"^\s*(\w+)(?: \"([\w-]+)\")? \{(\})?$")
_ARGUMENT = re.compile(r"^\s*([\w-]+|\"[^\"]*\")\s*=\s*(.*)$")
_HEREDOC = re.compile(r"<<-?(\w+)$")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_META = ("count", "for_each", "depends_on")
_GONE = ("terraform", "provider")
_UNKNOWN = 'resource "terraform_data" "unknown" {\n}\n'


@dataclass(frozen=True)
class _Part:
    """An argument with its expression, or a block with its parts."""

    name: str
    label: str
    value: str | list[_Part]


def stand_in(folder: Path, said: Mapping[str, object]) -> None:
    """Changes the files of the configuration in `folder`, which must be written as `terraform fmt` writes them. `said`:
    what data sources tell, by their addresses."""
    texts = {file: list(_top(file.read_text(encoding="utf-8").splitlines())) for file in sorted(folder.glob("*.tf"))}
    heads = [head for found in texts.values() for head, _ in found]
    known = {name for head in heads if (name := _own(head))}
    for file, found in texts.items():
        file.write_text("\n".join(_written(head, lines, known, said) for head, lines in found), encoding="utf-8")
    (folder / "unknown.tf").write_text(_UNKNOWN, encoding="utf-8")


def _top(lines: list[str]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """The blocks of a file: kind and labels, and the lines between."""
    at = 0
    while at < len(lines):
        if not (head := _HEAD.match(lines[at])):
            at += 1
            continue
        end = at if head[3] else lines.index("}", at)
        yield (head[1], *re.findall(r'"([\w-]+)"', head[2])), lines[at + 1 : end]
        at = end + 1


def _own(head: tuple[str, ...]) -> str:
    """How a provider's resource or data source is read; "" for what is none."""
    if head[0] not in ("resource", "data") or head[1] == "terraform_data":
        return ""
    return ".".join(head[1:] if head[0] == "resource" else head)


def _written(head: tuple[str, ...], lines: list[str], known: set[str], told: Mapping[str, object]) -> str:
    if head[0] in _GONE:
        return ""
    if not _own(head):
        labels = "".join(f' "{label}"' for label in head[1:])
        return f"{head[0]}{labels} {{\n{_renamed(chr(10).join(lines), known)}\n}}\n"
    name = _flat(_own(head))
    if _own(head) in told:
        return f"locals {{\n  {name} = {json.dumps(told[_own(head)])}\n}}\n"
    parts = list(_parts([line for line in lines if not line.lstrip().startswith("#")]))
    meta = {part.name: part.value for part in parts if part.name in _META}
    given = _object([part for part in parts if part.name not in (*_META, "lifecycle", "timeouts")])
    body = [
        *(f"{key} = {value}" for key, value in meta.items()),
        f'input = jsondecode("${{terraform_data.unknown.id}}${{jsonencode({given})}}")',
        *_conditions(parts),
    ]
    own = f"terraform_data.{name}"
    several = {
        "count": f"[for one in {own} : one.output]",
        "for_each": f"{{ for key, one in {own} : key => one.output }}",
    }
    local = next((text for key, text in several.items() if key in meta), f"{own}.output")
    said = _renamed("\n".join(body), known)
    return f'resource "terraform_data" "{name}" {{\n{said}\n}}\n\nlocals {{\n  {name} = {local}\n}}\n'


def _conditions(parts: list[_Part]) -> Iterator[str]:
    """Of the whole lifecycle only what is asked: the rest speaks of arguments."""
    for part in parts:
        if part.name == "lifecycle" and isinstance(part.value, list):
            yield from ("lifecycle {", *(_block(one) for one in part.value if one.name == "precondition"), "}")


def _flat(read: str) -> str:
    return "of_" + read.replace(".", "__").replace("-", "_")


def _renamed(text: str, known: set[str]) -> str:
    """With the stand-ins' names: what says an order means the resource, and what reads it its local."""
    ordering = re.compile(r"((?:depends_on|replace_triggered_by)\s*=\s*)(\[[^\]]*\])")

    def by(prefix: str, said: str) -> str:
        read = re.compile(r"(?<![\w.\"])((?:data\.)?[a-z]+_\w+\.\w+)")
        return read.sub(lambda found: prefix + _flat(found[1]) if found[1] in known else found[1], said)

    ordered = ordering.sub(lambda found: found[1] + by("terraform_data.", found[2]), text)
    return by("local.", ordered)


def _parts(lines: list[str]) -> Iterator[_Part]:
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if block := _BLOCK.match(line):
            inner: list[str] = []
            depth = 0 if block[3] else 1
            while depth:
                depth += _depth(lines[at])
                inner, at = [*inner, lines[at]], at + 1
            yield _Part(block[1], block[2] or "", list(_parts(inner[:-1])))
        elif argument := _ARGUMENT.match(line):
            text = argument[2]
            if heredoc := _HEREDOC.search(text):
                while lines[at].strip() != heredoc[1]:
                    text, at = f"{text}\n{lines[at]}", at + 1
                text, at = f"{text}\n{lines[at]}", at + 1
            while _depth(text):
                text, at = f"{text}\n{lines[at]}", at + 1
            yield _Part(argument[1], "", text)


def _depth(text: str) -> int:
    """How many brackets it opens more than it closes."""
    plain = _TEXT.sub("", text)
    return sum(plain.count(sign) for sign in "([{") - sum(plain.count(sign) for sign in ")]}")


def _object(parts: list[_Part]) -> str:
    """Arguments and blocks as one value."""
    lines = []
    for at, part in enumerate(parts):
        if isinstance(part.value, str):
            lines.append(f"{part.name} = {part.value}")
        elif part.name == "dynamic":
            inner = {one.name: one.value for one in part.value}
            each = f"[for key, value in {inner['for_each']} : {{ key = key, value = value }}]"
            content = _object([one for one in part.value if one.name == "content"])
            lines.append(f"{part.label}_{at} = [for {part.label} in {each} : {content}]")
        else:
            lines.append(f"{part.name}_{at} = {_object(part.value)}")
    return "{\n" + "\n".join(lines) + "\n}"


def _block(part: _Part) -> str:
    assert isinstance(part.value, list)
    return f"{part.name} {{\n" + "\n".join(f"{one.name} = {one.value}" for one in part.value) + "\n}"
