"""Configurations of Terraform as plain values, read by python-hcl2. Owns what of its output is a literal, what an
expression, and which names an expression reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import hcl2

_IS_BLOCK = "__is_block__"
_HEREDOC = re.compile(r'^"<<(-?)(\w+)\n(.*)\n[ \t]*\2"$', re.DOTALL)
#: A name with its attribute, behind `data.` or not; indexes between are passed over.
_READ = re.compile(r"(?<![\w.\"-])((?:data\.)?[a-z][a-z0-9_]*)\.([A-Za-z_][\w-]*)((?:\[[^\]]*\]|\.[A-Za-z_*][\w-]*)*)")
_ATTRIBUTE = re.compile(r"\.([A-Za-z_][\w-]*)")


@dataclass(frozen=True)
class Block:
    """One block with its labels, as `aws_instance.control`."""

    file: str
    kind: str
    labels: tuple[str, ...]
    body: dict[str, Any]

    @property
    def address(self) -> str:
        """As Terraform writes it."""
        first = () if self.kind == "resource" else (self.kind,)
        return ".".join((*first, *self.labels))


@dataclass(frozen=True)
class Configuration:
    """All files of one folder."""

    folder: Path
    blocks: tuple[Block, ...] = field(default=())

    def of(self, kind: str) -> list[Block]:
        """Its blocks of a kind."""
        return [one for one in self.blocks if one.kind == kind]

    def named(self, kind: str) -> dict[str, Block]:
        """Its blocks of a kind that have one label, by it."""
        return {one.labels[0]: one for one in self.of(kind)}

    def locals(self) -> set[str]:
        return {name for one in self.of("locals") for name in one.body if name != _IS_BLOCK}


def load(folder: Path) -> Configuration:
    """The configuration in `folder`; lark's error for what is no HCL."""
    blocks: list[Block] = []
    for file in sorted(folder.glob("*.tf")):
        for kind, found in _parsed(file.read_text(encoding="utf-8")).items():
            if kind != "__comments__" and isinstance(found, list):
                blocks += (Block(file.name, kind, *one) for body in found for one in _labelled(body))
    return Configuration(folder, tuple(blocks))


@cache
def _parsed(text: str) -> dict[str, Any]:
    """Parsing is most of what these tests do, and they read the same few files again and again. Nobody changes it."""
    return dict(hcl2.loads(text))


def _labelled(body: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    if _IS_BLOCK in body:
        yield (), body
        return
    for label, inner in body.items():
        if label.startswith("__"):
            continue
        for labels, found in _labelled(inner):
            yield (unquoted(label), *labels), found


def items(body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What is written in a block: no notes of the parser's."""
    return ((name, value) for name, value in body.items() if not name.startswith("__"))


def is_block(value: Any) -> bool:
    """Whether it was written as blocks: a list of them."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and _IS_BLOCK in one for one in value)


def is_text(value: Any) -> bool:
    """A string, whatever it contains."""
    return isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"'


def is_expression(value: Any) -> bool:
    """Of which only Terraform knows the type."""
    return isinstance(value, str) and not is_text(value)


def unquoted(value: str) -> str:
    """What a string literal says."""
    heredoc = _HEREDOC.match(value)
    if heredoc:
        return heredoc[3]
    if not is_text(value):
        return value
    try:
        return str(json.loads(value))
    except ValueError:
        return value[1:-1]


def expressions(value: Any) -> Iterator[str]:
    """The code in a value: expressions, and what strings interpolate."""
    if isinstance(value, dict):
        for name, inner in items(value):
            yield from expressions(name)
            yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)
    elif is_text(value):
        yield from _interpolated(value)
    elif isinstance(value, str):
        yield from _code(value.removeprefix("${").removesuffix("}") if value.startswith("${") else value)


def _interpolated(text: str) -> Iterator[str]:
    """What is between `${` or `%{` and its end."""
    at = 0
    while (start := min((i for sign in ("${", "%{") if (i := text.find(sign, at)) >= 0), default=-1)) >= 0:
        if start and text[start - 1] == text[start]:  # $${ is text
            at = start + 2
            continue
        end = _closed(text, start + 2)
        yield from _code(text[start + 2 : end])
        at = end + 1


def _closed(text: str, at: int) -> int:
    """Where the brace closes that was opened before `at`."""
    depth, quoted = 1, False
    while at < len(text):
        sign = text[at]
        if sign == "\\":
            at += 1
        elif sign == '"':
            quoted = not quoted
        elif not quoted and sign in "{}":
            depth += 1 if sign == "{" else -1
            if not depth:
                return at
        at += 1
    return at


def _code(code: str) -> Iterator[str]:
    """Code without its strings, and the code in these."""
    plain, at = "", 0
    while at < len(code):
        if code[at] != '"':
            plain, at = plain + code[at], at + 1
            continue
        end = at + 1
        while end < len(code) and code[end] != '"':
            if code[end] == "\\":
                end += 1
            elif code.startswith(("${", "%{"), end):
                end = _closed(code, end + 2)
            end += 1
        yield from _interpolated(code[at : end + 1])
        plain, at = plain + '""', end + 1
    yield plain


def reads(value: Any) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Names that its expressions read: `var`, `region`, and the attributes behind it."""
    for code in expressions(value):
        for root, name, rest in _READ.findall(code):
            inner = tuple(_ATTRIBUTE.findall(re.sub(r"\[[^\]]*\]", "", rest)))
            yield root, name, inner
            for index in re.findall(r"\[([^\]]*)\]", rest):
                yield from reads(f"${{{index}}}")
