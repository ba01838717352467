"""The part of cloud-config that a local VM understands. Owns its grammar; runs nothing.

    #cloud-config
    bootcmd: ["a shell command", [an, argv]]
    write_files: [{path, content, permissions?, encoding?: "b64"}]
    runcmd: ["a shell command", [an, argv]]

Or several such documents in one MIME message, each of which adds to what those before it say.

A relative path is relative to the VM's disk, where commands start too. Anything else is refused rather than skipped: a
template that needs it would boot something other than it says.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class BadUserData(Exception):
    """The user data is not cloud-config, or more of it than a local VM understands. The message says where."""


@dataclass(frozen=True, slots=True)
class BootFile:
    path: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class BootPlan:
    """Commands to run first, files to write, then commands; one after the other, whatever their exit codes."""

    first: tuple[tuple[str, ...], ...] = ()
    files: tuple[BootFile, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()


def parse(text: str) -> BootPlan:
    """The boot that `text` asks for; BadUserData with the place in it."""
    plans = [_parse(document) for document in _documents(text)]
    return BootPlan(
        tuple(word for plan in plans for word in plan.first),
        tuple(file for plan in plans for file in plan.files),
        tuple(word for plan in plans for word in plan.commands),
    )


def _documents(text: str) -> list[str]:
    if not text.startswith(("Content-Type: multipart/", "MIME-Version:")):
        return [text]
    import email  # loaded where it is needed: every VM's machine loads this module

    found = []
    for part in email.message_from_string(text).walk():
        body = part.get_payload(decode=True)
        if part.is_multipart() or not isinstance(body, bytes):
            continue
        if part.get_content_type() != "text/cloud-config":
            raise BadUserData(f"a local VM does not understand {part.get_content_type()}")
        found.append(body.decode())
    return found


def _parse(text: str) -> BootPlan:
    if text.partition("\n")[0].rstrip() != "#cloud-config":
        raise BadUserData("line 1: expected #cloud-config")
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506  (both loaders are safe ones)
    except yaml.YAMLError as error:
        raise BadUserData(f"not YAML: {error}") from error
    known = _mapping(document or {}, "document", {"bootcmd", "write_files", "runcmd"})
    files = [_file(item, f"write_files[{i}]") for i, item in enumerate(_list(known, "write_files"))]
    first, commands = (
        tuple(_command(item, f"{key}[{i}]") for i, item in enumerate(_list(known, key)))
        for key in ("bootcmd", "runcmd")
    )
    return BootPlan(first, tuple(files), commands)


def _mapping(value: object, place: str, keys: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadUserData(f"{place}: expected a mapping, got {type(value).__name__}")
    unknown = sorted(str(key) for key in value if key not in keys)
    if unknown:
        raise BadUserData(f"{place}: a local VM does not understand {', '.join(unknown)}")
    return value


def _list(document: dict[str, Any], key: str) -> list[Any]:
    value = document.get(key) or []
    if not isinstance(value, list):
        raise BadUserData(f"{key}: expected a list, got {type(value).__name__}")
    return value


def _file(item: object, place: str) -> BootFile:
    values = _mapping(item, place, {"path", "content", "permissions", "encoding"})
    path, content, encoding = values.get("path"), values.get("content", ""), values.get("encoding", "text/plain")
    if not isinstance(path, str) or not path or ".." in path.split("/"):
        raise BadUserData(f"{place}.path: expected a path without '..', got {path!r}")
    if not isinstance(content, str):
        raise BadUserData(f"{place}.content: expected text")
    if encoding not in ("text/plain", "b64", "base64"):
        raise BadUserData(f"{place}.encoding: expected b64 or text/plain, got {encoding!r}")
    try:
        mode = int(str(values.get("permissions", "0644")), 8)
        raw = content.encode() if encoding == "text/plain" else base64.b64decode(content, validate=False)
    except (ValueError, binascii.Error) as error:
        raise BadUserData(f"{place}: {error}") from error
    return BootFile(path, raw, mode)


def _command(item: object, place: str) -> tuple[str, ...]:
    if isinstance(item, str):
        return ("/bin/sh", "-c", item)
    if isinstance(item, list) and item and all(isinstance(word, (str, int)) for word in item):
        return tuple(str(word) for word in item)
    raise BadUserData(f"{place}: expected a shell command or a list of words")
