"""Tags as labels of Compute Engine, and back. Owns the one place where the label rules are dealt with: the driver's and
the reaper's of such an account read and write by it. Pure.

A label has lower-case letters, digits, `_` and `-`, in 63 characters at most; a key begins with a letter
(https://cloud.google.com/compute/docs/labeling-resources#requirements). Our values may have more. So what a label may
not have is written with `_` before it, and what is longer than a label goes on in the next: `KEY`, `KEY_2`, `KEY_3`.

| in a tag | in a label |
|---|---|
| `a`-`z`, `0`-`9`, `-` | the same |
| `_` | `__` |
| `A`-`Z` | `_a`-`_z` |
| `.` `:` `/` space `@` `+` `=` | `_1` ... `_7` |
| anything else | `_0` and two hexadecimal digits for each byte of it in UTF-8 |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cloud_dispatch.domain.tags import PREFIX

MOST_CHARACTERS = 63
MOST_LABELS = 64
_MOST_PARTS = 9
_COMMON = {".": "_1", ":": "_2", "/": "_3", " ": "_4", "@": "_5", "+": "_6", "=": "_7"}
_BACK = {code[1]: character for character, code in _COMMON.items()}
#: So that the number of a part still fits behind it, and can't be mistaken for something in it.
_KEY = re.compile(r"[a-z][a-z0-9-]{0,60}")
_PART = re.compile(r"(?P<key>[a-z][a-z0-9-]{0,60})_(?P<number>[2-9])")


def encoded(value: str) -> str:
    """`value` in a label's characters, of any length."""
    return "".join(map(_escaped, value))


def decoded(text: str) -> str | None:
    """What `encoded` was given; None for what it never gives."""
    found, rest = bytearray(), iter(text)
    for character in rest:
        if character != "_":
            found += character.encode()
            continue
        code = next(rest, "")
        if code == "_":
            found += b"_"
        elif code in _BACK:
            found += _BACK[code].encode()
        elif code == "0":
            digits = next(rest, "") + next(rest, "")
            if not re.fullmatch("[0-9a-f]{2}", digits):
                return None
            found.append(int(digits, 16))
        elif "a" <= code <= "z":
            found += code.upper().encode()
        else:
            return None
    try:
        return found.decode()
    except UnicodeDecodeError:
        return None


def of_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The labels that hold `tags`; ValueError for what does not go into labels."""
    labels: dict[str, str] = {}
    for key, value in tags.items():
        if not _KEY.fullmatch(key):
            raise ValueError(f"tag {key!r}: expected a key of a-z, 0-9 and - that begins with a letter")
        parts = _parts(encoded(value))
        if len(parts) > _MOST_PARTS:
            raise ValueError(f"tag {key!r}: its value is too long for {_MOST_PARTS} labels")
        labels.update({_name(key, number): part for number, part in enumerate(parts, 1)})
    if len(labels) > MOST_LABELS:
        raise ValueError(f"{len(labels)} labels: a VM can have {MOST_LABELS}")
    return labels


def to_tags(labels: Mapping[str, str]) -> dict[str, str]:
    """Our tags among `labels`; an operator's own and Google's are not shown."""
    tags = {}
    for key in labels:
        if key.startswith(PREFIX) and not _PART.fullmatch(key):
            value = decoded("".join(labels[name] for name in _names(key, labels)))
            if value is not None:
                tags[key] = value
    return tags


def merged(labels: Mapping[str, str], tags: Mapping[str, str]) -> dict[str, str]:
    """`labels` with `tags` set: parts of an older, longer value go."""
    new = of_tags(tags)
    kept = {key: value for key, value in labels.items() if _owner(key) not in tags}
    return {**kept, **new}


def filter_of(key: str, value: str) -> str:
    """The filter of a list for what carries the tag."""
    return " AND ".join(f'labels.{name}="{part}"' for name, part in of_tags({key: value}).items())


def _parts(text: str) -> list[str]:
    return [text[start : start + MOST_CHARACTERS] for start in range(0, len(text), MOST_CHARACTERS)] or [""]


def _name(key: str, number: int) -> str:
    return key if number == 1 else f"{key}_{number}"


def _names(key: str, labels: Iterable[str]) -> list[str]:
    """The labels that `key` is in, first to last."""
    known = set(labels)
    names = [_name(key, number) for number in range(1, _MOST_PARTS + 1)]
    return names[: next((at for at, name in enumerate(names) if name not in known), len(names))]


def _owner(label: str) -> str:
    match = _PART.fullmatch(label)
    return match["key"] if match else label


def _escaped(character: str) -> str:
    if "a" <= character <= "z" or "0" <= character <= "9" or character == "-":
        return character
    if "A" <= character <= "Z":
        return f"_{character.lower()}"
    if character == "_":
        return "__"
    if character in _COMMON:
        return _COMMON[character]
    return "".join(f"_0{byte:02x}" for byte in character.encode())
