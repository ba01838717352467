"""Arrays and parameter sweeps. Owns how one submitted task becomes many, and the substitution of `{param}`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from cloud_dispatch.demand.fields import text_of

#: Always available in arrays and sweeps: the position of the task in it, from 0.
INDEX = "index"
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

Values = Mapping[str, Sequence[str | int | float | bool]]


def count_of(array: int | None, sweep: Values) -> int:
    """How many tasks an array and a sweep make together; ValueError for an empty list, a bad name or a bad count."""
    if array is not None and array < 1:
        raise ValueError(f"array: expected a whole number of at least 1, got {array}")
    for parameter, values in sweep.items():
        if not _PARAMETER.fullmatch(parameter) or parameter == INDEX:
            raise ValueError(f"sweep: expected parameters named like a variable, other than {INDEX}, got {parameter!r}")
        if not values:
            raise ValueError(f"sweep.{parameter}: expected at least one value, got an empty list")
    return (array or 1) * math.prod(len(values) for values in sweep.values())


def bindings(array: int | None, sweep: Values) -> Iterator[dict[str, str]]:
    """What the parameters are in each task, in order: the last parameter varies fastest, repeats of an array last."""
    names = list(sweep)
    index = 0
    for chosen in itertools.product(*(sweep[name] for name in names)):
        texts = {name: text_of(value) for name, value in zip(names, chosen, strict=True)}
        for _ in range(array or 1):
            yield {**texts, INDEX: str(index)}
            index += 1


def substitution(names: Sequence[str]) -> Callable[[str, Mapping[str, str]], str]:
    """A function that replaces `{name}` for these names only, so that other braces of a shell command stay."""
    pattern = re.compile(r"\{(" + "|".join(map(re.escape, names)) + r")\}")

    def substitute(text: str, binding: Mapping[str, str]) -> str:
        return pattern.sub(lambda match: binding[match[1]], text) if "{" in text else text

    return substitute


def unused(names: Sequence[str], texts: Sequence[str]) -> str:
    """The first of `names` that no text mentions as `{name}`, "" when all are used."""
    return next((name for name in names if not any(f"{{{name}}}" in text for text in texts)), "")
