"""What is wrong with a configuration, and where. Owns problems, their text, and the line of a key in a TOML file."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union

from pydantic import BaseModel, Secret, SecretBytes, SecretStr, ValidationError

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.masking import masked

Path = tuple[str | int, ...]
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")
_SHOWN = 60
#: What to say of too few and too many: pydantic's words name its own types.
_COUNTS = {
    "too_short": "expected a list of at least {min_length}, got {actual_length}",
    "too_long": "expected a list of at most {max_length}, got {actual_length}",
}
#: pydantic's words for what TOML and people call otherwise.
_WORDS = {
    ", unable to interpret input": "",
    ", unable to parse string as an integer": "",
    ", unable to parse string as a number": "",
    "a valid tuple": "a list",
    "a valid list": "a list",
    "a valid dictionary or instance of": "a table for",
    "a valid dictionary": "a table",
    "a valid string": "text",
    "a valid integer": "a whole number",
    "a valid boolean": "true or false",
    "a valid number": "a number",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: the path of the key, and what was expected."""

    path: Path
    message: str


class InvalidConfig(InvalidInput):
    """A configuration with one or more problems; the text has one line for each, all with their places."""

    def __init__(self, origin: str, text: str | None, problems: Sequence[Problem]) -> None:
        self.problems, self.origin = tuple(problems), origin
        keys = KeyLines(text) if text is not None else None
        #: The line of each problem, where the text has one for it.
        self.lines = tuple(keys.find(problem.path) if keys is not None else None for problem in problems)
        shown = [
            (f"{_location(origin, line)}: {render(problem.path)}", problem.message)
            for problem, line in zip(problems, self.lines, strict=True)
        ]
        rest = "".join(f"\n{place}: {message}" for place, message in shown[1:])
        super().__init__(shown[0][1] + rest, place=shown[0][0])


def render(path: Path) -> str:
    """`pools.default.schedule[0].days`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _location(origin: str, line: int | None) -> str:
    return origin if line is None else f"{origin}:{line}"


class KeyLines:
    """The line of each key of a TOML text, as far as plain scanning tells (inline tables count as their key)."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {}
        table: Path = ()
        counts: dict[Path, int] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if header := _HEADER.match(line):
                table = self._absolute(_parts(header[2]), counts)
                if header[1] == "[[":
                    index = counts.get(table, -1) + 1
                    counts[table] = index
                    table = (*table, index)
                for length in range(1, len(table) + 1):  # [a.b] also begins a, where nothing else did
                    self._lines.setdefault(table[:length], number)
            elif key := _KEY.match(line):
                self._lines.setdefault((*table, *_parts(key[1])), number)

    @staticmethod
    def _absolute(parts: Path, counts: dict[Path, int]) -> Path:
        """`parts` with the current index after each array of tables that it goes through."""
        path: Path = ()
        for position, part in enumerate(parts):
            path = (*path, part)
            if path in counts and position < len(parts) - 1:
                path = (*path, counts[path])
        return path

    def find(self, path: Path) -> int | None:
        """The line of `path`, or of the nearest key above it that stands in the text."""
        for length in range(len(path), 0, -1):
            line = self._lines.get(path[:length])
            if line is not None:
                return line
        return None


def _parts(dotted: str) -> Path:
    return tuple(double or single or bare for double, single, bare in _PART.findall(dotted))


def from_validation(error: ValidationError, model: type[BaseModel], prefix: Path = ()) -> list[Problem]:
    """The problems that pydantic found in a `model`, in our words."""
    items = error.errors()
    places = [item["loc"] for item in items]
    return [
        Problem((*prefix, *_clean(item["loc"])), _explain(model, item))
        for item in items
        if not any(len(place) > len(item["loc"]) and place[: len(item["loc"])] == item["loc"] for place in places)
    ]


def _clean(loc: Path) -> Path:
    """Without the steps that pydantic adds for unions and validators, which no key of the file has."""
    return tuple(part for part in loc if isinstance(part, int) or not part.startswith(("function-", "constrained-")))


def _explain(model: type[BaseModel], item: Any) -> str:
    kind, given = item["type"], item["input"]
    if kind == "extra_forbidden":
        return unknown_key(str(item["loc"][-1]), _keys(_model_at(model, item["loc"][:-1])))
    if kind == "missing":
        return "is missing"
    if kind in _COUNTS:
        return _COUNTS[kind].format(**item["ctx"])
    # the class that pydantic's words name has another module in each Python
    words = "expected a path, as text" if kind == "path_type" else str(item["msg"])
    text = words.removeprefix("Value error, ")
    text = re.sub(r"^Input (should be|is not) ", "expected ", text)
    for word, ours in _WORDS.items():
        text = text.replace(word, ours)
    if not text.startswith("expected"):
        text = f"expected otherwise: {text}"
    return f"{text}, got {shorten(given)}" if not _is_secret(model, item["loc"]) else text


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say of a key that nobody knows."""
    names = sorted(known)
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    if near:
        return f"no such key (did you mean {near[0]!r}?)"
    return f"no such key (expected one of: {', '.join(names)})" if names else "no such key"


def shorten(value: object) -> str:
    """`value` for a message: never long, and without a secret. Tables and lists are only called so: any of what they
    hold may be one."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = masked(repr(value))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _keys(model: type[BaseModel] | None) -> list[str]:
    if model is None:
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_at(model: type[BaseModel], loc: Path) -> type[BaseModel] | None:
    """The section at `loc` below `model`, where the annotations tell."""
    current: Any = model
    for part in loc:
        if isinstance(current, type) and issubclass(current, BaseModel):
            fields = {field.alias or name: field for name, field in current.model_fields.items()}
            current = _unwrap(fields[str(part)].annotation) if part in fields else None
        else:
            arguments = typing.get_args(current)
            current = _unwrap(arguments[-1] if typing.get_origin(current) is dict else next(iter(arguments), None))
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None


def _is_secret(model: type[BaseModel], loc: Path) -> bool:
    """Whether the value at `loc` is of a type that does not print."""
    above = _model_at(model, loc[:-1])
    fields = {} if above is None else {field.alias or name: field for name, field in above.model_fields.items()}
    kind = _unwrap(fields[str(loc[-1])].annotation) if loc and str(loc[-1]) in fields else None
    return isinstance(kind, type) and issubclass(kind, Secret | SecretStr | SecretBytes)


def _unwrap(annotation: Any) -> Any:
    while typing.get_origin(annotation) in (Annotated, Union, UnionType):
        annotation = typing.get_args(annotation)[0]
    return annotation
