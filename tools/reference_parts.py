"""The generated parts of docs/reference: each reads the code and returns Markdown. Owns how they look."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import cloud_dispatch
from cloud_dispatch.api.http import status_of
from cloud_dispatch.cli.exitcodes import TABLE, code_of
from cloud_dispatch.cli.main import program
from cloud_dispatch.client import views
from cloud_dispatch.config.load import Config
from cloud_dispatch.demand.fields import EXPECTED
from cloud_dispatch.demand.submission import TaskInput
from cloud_dispatch.domain.errors import DispatchError
from cloud_dispatch.domain.instance import INSTANCE_TABLE
from cloud_dispatch.domain.task import TASK_TABLE
from cloud_dispatch.domain.transition import TransitionTable
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.wire import messages
from tools import driver_words
from tools import reference_words as words

ROOT = Path(__file__).resolve().parent.parent
#: How the values of options are written, by the type that they are read as.
_VALUES = {int: "N", int | None: "N", Path: "FILE"}
_Sections = Iterator[tuple[str, dict[str, str]]]


class Incomplete(Exception):
    """Words are missing for something in the code, or are left over from something that is gone."""


def _same(what: str, code: Iterable[str], said: Iterable[str]) -> None:
    missing, stale = sorted(set(code) - set(said)), sorted(set(said) - set(code))
    if missing or stale:
        raise Incomplete(f"tools/*_words.py, {what}: no words for {missing}, words for nothing: {stale}")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _code(text: object) -> str:
    return f"`{text}`"


# -- configuration


def settings() -> str:
    """Every table of the configuration with its keys."""
    sections = list(_sections(Config, ()))
    _same("SETTINGS", [path for _, keys in sections for path in keys], words.SETTINGS)
    parts = []
    for heading, keys in sections:
        rows = []
        for path, default in keys.items():
            expected, meaning = words.SETTINGS[path]
            rows.append((_code(path.rpartition(".")[2]), expected, words.DEFAULTS.get(path, default), meaning))
        parts.append(f"## `{heading}`\n\n" + table(("key", "expected", "default", "meaning"), rows))
    return "\n\n".join(parts)


def _sections(model: type[BaseModel], above: tuple[str, ...], *, many: bool = False) -> _Sections:
    """`(heading, {path: default})` of a table and of those below it, in the order of the model."""
    keys: dict[str, str] = {}
    below: list[tuple[type[BaseModel], tuple[str, ...], bool]] = []
    shown = model.model_construct().model_dump(mode="json", by_alias=True, warnings=False)
    for name, info in model.model_fields.items():
        key = info.alias or name
        if key in {"origin", "settings"}:
            continue  # the first says where it came from, the second are the driver's own keys
        inner = _model_in(info.annotation)
        if inner is None:
            keys[".".join((*above, key))] = "required" if info.is_required() else _default(shown.get(key))
        else:
            kind = typing.get_origin(info.annotation)
            below.append((inner, (*above, key, "NAME") if kind is dict else (*above, key), kind is tuple))
    if keys:
        brackets = ("[[", "]]") if many else ("[", "]")
        yield brackets[0] + ".".join(above) + brackets[1], keys
    for inner, path, is_list in below:
        yield from _sections(inner, path, many=is_list)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, typing.get_args(annotation))), None)


def _default(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, list):
        return ", ".join(map(_code, value))
    return _code(str(value).lower() if isinstance(value, bool) else value)


def local_settings() -> str:
    """The local driver's keys."""
    local = importlib.import_module("cloud_dispatch_local.settings")
    _same("LOCAL", local.LocalSettings.model_fields, driver_words.LOCAL)
    _same("LOCAL_TYPE", local.LocalType.model_fields, driver_words.LOCAL_TYPE)
    head = ("key", "expected", "default", "meaning")
    own = table(head, [(_code(key), *said) for key, said in driver_words.LOCAL.items()])
    types = table(head, [(_code(key), *said) for key, said in driver_words.LOCAL_TYPE.items()])
    return f"{own}\n\n### `[profiles.NAME.catalogue.TYPE]`\n\n{types}"


def aws_settings() -> str:
    """The AWS driver's keys."""
    aws = importlib.import_module("cloud_dispatch_aws.settings")
    _same("AWS", aws.AwsSettings.model_fields, driver_words.AWS)
    return table(
        ("key", "expected", "default", "meaning"), [(_code(key), *said) for key, said in driver_words.AWS.items()]
    )


def gcp_settings() -> str:
    """The Google Cloud driver's keys."""
    gcp = importlib.import_module("cloud_dispatch_gcp.settings")
    _same("GCP", gcp.GcpSettings.model_fields, driver_words.GCP)
    return table(
        ("key", "expected", "default", "meaning"), [(_code(key), *said) for key, said in driver_words.GCP.items()]
    )


def azure_settings() -> str:
    """The Azure driver's keys."""
    azure = importlib.import_module("cloud_dispatch_azure.settings")
    _same("AZURE", azure.AzureSettings.model_fields, driver_words.AZURE)
    head = ("key", "expected", "default", "meaning")
    return table(head, [(_code(key), *said) for key, said in driver_words.AZURE.items()])


# -- the command line


def commands() -> str:
    """Every command with its arguments and options."""
    return "\n\n".join(_command(command, path) for command, path in _walk(program(), "cloud-dispatch"))


def _walk(command: Any, path: str) -> Iterator[tuple[Any, str]]:
    if command.hidden:
        return
    yield command, path
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, f"{path} {name}")


def _command(command: Any, path: str) -> str:
    parts = [f"## `{path}`", *_help(command.help or "")]
    inner = getattr(command, "commands", {})
    if inner:
        parts.append(table(("command", ""), [(_code(f"{path} {name}"), _first(c.help)) for name, c in inner.items()]))
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    if arguments:
        rows = [(_code(_metavar(p)), (p.help or "").strip()) for p in arguments]
        parts.append(table(("argument", ""), rows))
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden and p.name != "help"]
    if options:
        parts.append(table(("option", ""), [(_flags(p), (p.help or "").strip()) for p in options]))
    return "\n\n".join(parts)


def _flags(option: Any) -> str:
    flags = ", ".join(map(_code, sorted((*option.opts, *option.secondary_opts), key=len)))
    return flags if option.is_flag else f"{flags} {_VALUES.get(option.type_descriptor.annotation, 'TEXT')}"


def _metavar(argument: Any) -> str:
    """TASK, [FILE], WORD... as usage lines write them."""
    shown = argument.metavar or argument.name.upper()
    if shown.startswith("["):
        return str(shown)
    many = "..." if argument.nargs == -1 else ""
    return f"{shown}{many}" if argument.required else f"[{shown}]{many}"


def _first(text: str | None) -> str:
    return re.split(r"[.:](?:\s|$)", (text or "").strip().replace("\n", " "), maxsplit=1)[0]


def _help(text: str) -> Iterator[str]:
    """The help's paragraphs; examples as a block."""
    examples: list[str] = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        line = " ".join(paragraph.split())
        match = re.match(r"(?:Examples?: )?(cloud-dispatch .*)", line)
        if match:
            examples.append(match[1])
        elif line:
            yield line
    if examples:
        yield "```console\n" + "\n".join(f"$ {example}" for example in examples) + "\n```"


def exit_codes() -> str:
    return table(("code", "meaning"), [(_code(code), meaning) for code, meaning in TABLE.items()])


# -- errors


def errors() -> str:
    """Errors of the core: code, class, HTTP status, exit code, what to do."""
    found = [error for error in _errors(DispatchError) if error.__name__ != "DispatchError"]
    _same("ERRORS", [error.__name__ for error in found], words.ERRORS)
    order = list(words.ERRORS)
    rows = []
    for error in sorted(found, key=lambda e: order.index(e.__name__)):
        some = typing.cast(Any, error).__new__(error)  # only its class matters
        codes = (_code(error.code), _code(error.__name__), str(status_of(some)), str(code_of(some)))
        rows.append((*codes, words.ERRORS[error.__name__]))
    return table(("code", "class", "HTTP", "exit", "what it means"), rows)


def provider_errors() -> str:
    found = [error for error in _errors(ProviderError) if error.__name__ != "ProviderError"]
    _same("PROVIDER_ERRORS", [error.__name__ for error in found], words.PROVIDER_ERRORS)
    rows = [(_code(e.__name__), (e.__doc__ or "").strip(), words.PROVIDER_ERRORS[e.__name__]) for e in found]
    return table(("class", "what it means", "what the dispatcher does"), rows)


def _errors(base: type[Any]) -> list[type[Any]]:
    for module in pkgutil.walk_packages(cloud_dispatch.__path__, "cloud_dispatch."):
        if not module.name.endswith("__main__") and ".migrations." not in module.name:
            importlib.import_module(module.name)
    found: dict[type[Any], None] = {}
    frontier = [base]
    while frontier:
        error = frontier.pop()
        if error.__module__.startswith("cloud_dispatch."):
            found[error] = None
        frontier.extend(error.__subclasses__())
    return sorted(found, key=lambda e: (e.__module__, inspect.getsourcelines(e)[1]))


# -- metrics


def metrics() -> str:
    """Every metric family that the code makes: name, kind, labels, help."""
    rows: list[tuple[str, ...]] = []
    for path in sorted((ROOT / "cloud_dispatch").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("MetricFamily"):
                kind = node.func.id.removesuffix("MetricFamily").lower()
                name, text = (ast.literal_eval(argument) for argument in node.args[:2])
                labels: list[str] = next((ast.literal_eval(k.value) for k in node.keywords if k.arg == "labels"), [])
                shown = f"{name}_total" if kind == "counter" and not name.endswith("_total") else name
                both = _code(shown) if shown == name else f"{_code(shown)} (made as `{name}`)"
                rows.append((both, kind, ", ".join(map(_code, labels)) or "none", text))
    return table(("metric", "kind", "labels", "what it is"), rows)


# -- states


def states(machine: TransitionTable[Any, Any]) -> str:
    """A transition table as a diagram and as a table."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, event), after in machine.arrows.items():
        arrows.setdefault((str(before), str(after)), []).append(str(event))
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {_id(machine.initial)}"]
    lines += [f"    {_id(a)} --> {_id(b)}: {', '.join(events)}" for (a, b), events in arrows.items()]
    every = {str(state) for pair in arrows for state in pair}
    ends = sorted(state for state in every if not any(before == state for before, _ in arrows))
    lines += [f"    {_id(state)} --> [*]" for state in ends]
    rows = [(_code(b), _code(e), _code(a)) for (b, e), a in machine.arrows.items()]
    return "\n".join([*lines, "```"]) + "\n\n" + table(("in state", "on", "becomes"), rows)


def _id(state: object) -> str:
    """Mermaid reads a hyphen in a name as something else."""
    return str(state).replace("-", "_")


def task_states() -> str:
    return states(TASK_TABLE)


def instance_states() -> str:
    return states(INSTANCE_TABLE)


# -- messages and views


def wire() -> str:
    """Every message with its fields."""
    found = [v for v in vars(messages).values() if dataclasses.is_dataclass(v) and v.__module__ == messages.__name__]
    return "\n\n".join(_message(typing.cast(type, message)) for message in found)


def _message(message: type) -> str:
    rows = []
    for field in dataclasses.fields(message):
        made = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        rows.append(
            (_code(field.name), _code(field.type), _code("{}" if dataclasses.is_dataclass(made) else repr(made)))
        )
    said = inspect.cleandoc(message.__doc__ or "")
    text = "" if said.startswith(f"{message.__name__}(") else said + "\n\n"
    return f"### `{message.__name__}`\n\n{text}" + table(("field", "type", "default"), rows)


def api_views() -> str:
    """What the REST API answers with."""
    parts = []
    for name in ("TaskView", "OutputView", "AttemptView", "InstanceView"):
        hints = typing.get_type_hints(getattr(views, name))
        rows = [(_code(field), _code(_kind(hint))) for field, hint in hints.items()]
        parts.append(f"### `{name}`\n\n" + table(("field", "type"), rows))
    return "\n\n".join(parts)


def _kind(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else re.sub(r"[\w.]+\.", "", str(hint))


def task_fields() -> str:
    """Fields of a submitted task."""
    _same("TASK", TaskInput.__struct_fields__, words.TASK)
    defaults = TaskInput.__struct_defaults__
    required = len(TaskInput.__struct_fields__) - len(defaults)
    rows = []
    for position, field in enumerate(TaskInput.__struct_fields__):
        made = "required" if position < required else _struct_default(defaults[position - required])
        rows.append((_code(field), EXPECTED[field], words.TASK_DEFAULTS.get(field, made), words.TASK[field]))
    return table(("field", "expected", "default", "meaning"), rows)


def _struct_default(value: Any) -> str:
    made = getattr(value, "factory", None)
    return _default(made() if made is not None else value)


PARTS: Mapping[str, Any] = {
    "settings": settings,
    "local-settings": local_settings,
    "aws-settings": aws_settings,
    "gcp-settings": gcp_settings,
    "azure-settings": azure_settings,
    "commands": commands,
    "exit-codes": exit_codes,
    "errors": errors,
    "provider-errors": provider_errors,
    "metrics": metrics,
    "task-states": task_states,
    "instance-states": instance_states,
    "wire": wire,
    "api-views": api_views,
    "task-fields": task_fields,
}
