"""What the code offers to people (settings, options, metrics, events, errors) and what docs/reference says of it.

Owns collecting both sides; each collector reads the code itself, so that nothing new can be forgotten.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from tests.architecture.source import Source

_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_LOGGERS = frozenset({"log", "_log", "logger"})
#: Functions whose first text argument is the name of an event.
_NOTERS = frozenset({"note"})
_METRICS = frozenset({"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"})
_METRICS |= {f"{kind}MetricFamily" for kind in ("Counter", "Gauge", "Histogram", "Summary", "Info")}
_EVENT = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)+")
_HEADING = re.compile(r"^#{1,6}\s+(.*)$", re.MULTILINE)


class Reference:
    """The pages below a folder, asked whether they name something in backticks (or in a fenced block)."""

    def __init__(self, folder: Path) -> None:
        self.pages = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.md"))}
        self._quoted = {text for page in self.pages.values() for text in re.findall(r"`+([^`]+)`+", page)}
        self._words = {word.strip("[],;:()=") for text in self._quoted for word in text.split()}

    def names(self, text: str) -> bool:
        return text in self._quoted or text in self._words

    def names_setting(self, path: tuple[str, ...]) -> bool:
        """Whether `pools.NAME.end.idle` is there in full, or its rest under a heading that names a table above it."""
        if self.names(".".join(path)):
            return True
        for page in self.pages.values():
            for heading, body in _sections(page):
                for split in range(1, len(path)):
                    table, rest = ".".join(path[:split]), ".".join(path[split:])
                    if f"[{table}]" in heading and f"`{rest}`" in body:
                        return True
        return False


def _sections(page: str) -> Iterator[tuple[str, str]]:
    headings = list(_HEADING.finditer(page))
    ends = [heading.start() for heading in headings[1:]] + [len(page)]
    for heading, end in zip(headings, ends, strict=False):
        yield heading[1], page[heading.end() : end]


def settings(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every key that a file may hold, `NAME` standing for a name that the user gives."""
    for name, info in model.model_fields.items():
        path = (*above, info.alias or name)
        inner, keyed = _model_in(info.annotation)
        if inner is None:
            yield path
        else:
            yield from settings(inner, (*path, "NAME") if keyed else path)


def _model_in(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model that a field holds, and whether it holds many of them by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for part in get_args(annotation):
        model, _ = _model_in(part)
        if model is not None:
            return model, get_origin(annotation) is dict
    return None, False


def options(command: Any, above: tuple[str, ...] = ("cloud-dispatch",)) -> Iterator[tuple[str, str]]:
    """`(command, option)` for every option of a command line, hidden ones left out, and `(command, "")` for itself."""
    if getattr(command, "hidden", False):
        return
    yield " ".join(above), ""
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("--") and option not in {"--help", "--install-completion", "--show-completion"}:
                yield " ".join(above), option
    for name, inner in getattr(command, "commands", {}).items():
        yield from options(inner, (*above, name))


def metrics(files: Iterable[Source]) -> Iterator[tuple[str, str]]:
    """`(where, name)` of every metric that the code makes."""
    for source in files:
        if "prometheus_client" not in source.text:
            continue  # who makes one imports it
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and node.args:
                made = source.dotted(node.func) or ""
                if made.startswith("prometheus_client.") and made.rpartition(".")[2] in _METRICS:
                    where = f"{source.path}:{node.lineno}"
                    yield where, _text(node.args[0]) or f"a name that is not a literal ({ast.unparse(node.args[0])})"


def events(files: Iterable[Source], expand: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """`(where, name)` of every event that is logged or recorded.

    A name made of parts is looked up in `expand` by its source text; where it is not there, that text is yielded.
    """
    for source in files:
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Call):
                continue
            name = _event_name(node)
            if name is None or (isinstance(name, ast.Name | ast.Attribute) and _last(name) in {"action", "event"}):
                continue  # a function that hands on what it was given
            text = _text(name)
            for found in [text] if text is not None else expand.get(ast.unparse(name), [ast.unparse(name)]):
                yield f"{source.path}:{node.lineno}", found


def _last(name: ast.Name | ast.Attribute) -> str:
    return name.id if isinstance(name, ast.Name) else name.attr


def _event_name(call: ast.Call) -> ast.expr | None:
    function = call.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if isinstance(function, ast.Attribute) and called in _LEVELS:
        owner = function.value
        holder = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        return call.args[0] if holder in _LOGGERS and call.args else None
    if called in _NOTERS and call.args:
        return call.args[0]
    if called == "Event":
        by_name = [keyword.value for keyword in call.keywords if keyword.arg == "action"]
        return by_name[0] if by_name else (call.args[1] if len(call.args) > 1 else None)
    return None


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def is_event_name(text: str) -> bool:
    return _EVENT.fullmatch(text) is not None


def errors(package: str, *bases: type[BaseException]) -> Iterator[tuple[str, str]]:
    """`(where, name)` of every error below `bases` that a module of `package` defines: its code, else its class."""
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, f"{package}."):
        if not module.name.endswith("__main__") and ".migrations." not in module.name:
            importlib.import_module(module.name)
    for error in sorted(_below(bases), key=lambda cls: (cls.__module__, cls.__name__)):
        if error.__module__.startswith(package):
            code = error.__dict__.get("code")
            yield f"{error.__module__}.{error.__name__}", code if isinstance(code, str) else error.__name__


def _below(bases: Iterable[type[BaseException]]) -> set[type[BaseException]]:
    found: set[type[BaseException]] = set()
    frontier = list(bases)
    while frontier:
        inner = set(frontier.pop().__subclasses__()) - found
        found |= inner
        frontier.extend(inner)
    return found
