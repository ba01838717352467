"""What no process can be given. Owns the checks of a task's texts: NUL bytes, broken Unicode, the kernel's sizes.

One fast look at all texts together; the bad one is searched for only where that look finds something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cloud_dispatch.demand.fields import shorten
from cloud_dispatch.domain.shape import Labels
from cloud_dispatch.domain.task import Transfer

#: What the kernel takes as one argument or one `NAME=value`, its final NUL included.
MAX_ARGUMENT = 131_072
MAX_ARGUMENTS_BYTES = 1_048_576
MAX_ARGUMENTS = 32_768
MAX_TRANSFERS = 10_000


@dataclass(frozen=True, slots=True)
class Texts:
    """Every text of one task; `others` by the name of their field."""

    argv: tuple[str, ...]
    shell: str
    env: Labels
    labels: Labels
    inputs: tuple[Transfer, ...]
    outputs: tuple[Transfer, ...]
    others: Mapping[str, str]

    def joined(self) -> str:
        """All texts in one."""
        parts = [*self.argv, self.shell, *self.others.values()]
        for key, value in (*self.env, *self.labels):
            parts += (key, value)
        for transfer in (*self.inputs, *self.outputs):
            parts += (transfer.path, transfer.url)
        return "".join(parts)

    def named(self) -> Iterator[tuple[str, str]]:
        """Each text with its place."""
        yield from ((f"command[{i}]", text) for i, text in enumerate(self.argv))
        yield "command", self.shell
        yield from self.others.items()
        yield from ((f"env.{key}" if _plain(key) else "env", key + value) for key, value in self.env)
        yield from ((f"labels.{key}" if _plain(key) else "labels", key + value) for key, value in self.labels)
        yield from ((f"inputs[{i}]", item.path + item.url) for i, item in enumerate(self.inputs))
        yield from ((f"outputs[{i}]", item.path + item.url) for i, item in enumerate(self.outputs))


def check_texts(texts: Texts) -> None:
    """ValueError("field: what was expected") where there is nothing to run, a NUL byte, half of a surrogate pair, or a
    variable that can't be set."""
    if not (texts.argv and texts.argv[0]) and not texts.shell.strip():
        raise ValueError("command: expected something to run, got nothing")
    for field, transfers in (("inputs", texts.inputs), ("outputs", texts.outputs)):
        if len(transfers) > MAX_TRANSFERS:
            raise ValueError(f"{field}: expected at most {MAX_TRANSFERS}, got {len(transfers)}")
    joined = texts.joined()
    if "\0" in joined or not (joined.isascii() or _encodes(joined)):
        for place, text in texts.named():
            if "\0" in text or not _encodes(text):
                what = "a NUL byte" if "\0" in text else "half of a surrogate pair"
                raise ValueError(f"{place}: expected text, got {what} in {shorten(text)}")
    for key, _ in texts.env:
        if not key or "=" in key:
            raise ValueError(f"env: expected names that are not empty and have no '=', got {shorten(key)}")


def _plain(key: str) -> bool:
    return key.isascii() and key.isidentifier()


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def check_sizes(argv: tuple[str, ...], shell: str, env: Labels, environment_bytes: int) -> None:
    """ValueError for what the kernel would refuse on the VM, and for more environment than the configuration allows."""
    if len(argv) > MAX_ARGUMENTS:
        raise ValueError(f"command: expected at most {MAX_ARGUMENTS} arguments, got {len(argv)}")
    total = 0
    for position, argument in enumerate(argv):
        length = _bytes(argument) + 1
        total += length
        if length > MAX_ARGUMENT:
            raise ValueError(f"command[{position}]: expected less than {MAX_ARGUMENT} bytes, got {length - 1}")
    if total > MAX_ARGUMENTS_BYTES:
        raise ValueError(f"command: expected at most {MAX_ARGUMENTS_BYTES} bytes of arguments, got {total}")
    if shell and _bytes(shell) + 1 > MAX_ARGUMENT:
        raise ValueError(f"command: expected less than {MAX_ARGUMENT} bytes, got {_bytes(shell)} (put it into a file)")
    total = 0
    for key, value in env:
        length = _bytes(key) + _bytes(value) + 2
        total += length
        if length > MAX_ARGUMENT:
            raise ValueError(f"env: expected less than {MAX_ARGUMENT} bytes a variable, got {length} in {shorten(key)}")
    if total > environment_bytes:
        raise ValueError(f"env: expected at most {environment_bytes} bytes in all, got {total}")
