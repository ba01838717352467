"""Templates to boot documents. Owns the Jinja environment and the checks of what comes out of it.

A document is checked before it is paid for: a VM whose cloud-config can't be read boots, bills and does nothing.
"""

from __future__ import annotations

import contextlib
import shlex
import traceback
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import yaml

from cloud_dispatch.cloudinit import assets
from cloud_dispatch.cloudinit.variables import DEFAULTS, MEANINGS
from cloud_dispatch.domain.errors import InvalidInput

_HEADER = "#cloud-config"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HINT = "variables: " + ", ".join(sorted(MEANINGS))


def render(template: str, variables: Mapping[str, Any], *, folders: Iterable[Path] = ()) -> str:
    """The boot document of `template` (`agent` for `agent.yaml.j2`).

    `folders` are an operator's own, looked in before ours. InvalidInput names the template, the line where there is
    one, and what was expected.
    """
    extra = tuple(folders)
    name = template + assets.SUFFIX
    try:
        text = _environment(extra).get_template(name).render({**DEFAULTS, **variables})
    except jinja2.TemplateNotFound as error:
        missing = error.name or name
        known = ", ".join(assets.names(extra)) or "none"
        raise InvalidInput(f"no such template {missing!r}", place=name, hint=f"templates: {known}") from error
    except jinja2.TemplateSyntaxError as error:
        raise InvalidInput(error.message or "syntax", place=f"{error.name or name}:{error.lineno}") from error
    except jinja2.UndefinedError as error:
        raise InvalidInput(error.message or "undefined", place=_place(error, name), hint=_HINT) from error
    except (TypeError, ValueError, jinja2.TemplateError) as error:
        raise InvalidInput(str(error), place=_place(error, name)) from error
    parsed(text, name)
    return text


def prepare(*, folders: Iterable[Path] = ()) -> None:
    """Compile all templates now, so that the first launch need not wait for it. What is wrong with one is told when it
    is rendered."""
    environment = _environment(tuple(folders))
    for name in environment.list_templates(filter_func=lambda name: name.endswith(".j2")):
        with contextlib.suppress(jinja2.TemplateError, OSError, UnicodeDecodeError):
            environment.get_template(name)


def parsed(text: str, name: str) -> dict[str, Any]:
    """The cloud-config document `text`; InvalidInput with the line of `name` for what is none."""
    if text.partition("\n")[0].rstrip() != _HEADER:
        raise InvalidInput(f"the document must begin with {_HEADER}", place=f"{name}, rendered line 1")
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506  (both loaders are safe ones)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}, rendered line {mark.line + 1}" if mark else name
        raise InvalidInput(f"not YAML: {getattr(error, 'problem', error)}", place=place) from error
    if not isinstance(document, dict):
        raise InvalidInput("expected a mapping of cloud-config modules", place=name)
    return document


@lru_cache(maxsize=16)
def _environment(extra: tuple[Path, ...]) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(assets.folders(extra)),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "default": _not_json}
    environment.filters["shquote"] = shlex.quote
    environment.filters["under"] = _under
    environment.filters["unitquote"] = _unit_quote
    environment.filters["labeltext"] = _label_text
    return environment


def _not_json(value: object) -> Any:
    if isinstance(value, jinja2.Undefined):
        return str(value)  # raises, naming the variable; the JSON encoder would only name the type
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _under(items: str, key: str) -> str:
    """The items of a YAML list under their key; nothing where there are none."""
    return f"{key}:\n{items}" if items.strip() else ""


def _unit_quote(text: str) -> str:
    """One word of a setting in a systemd unit. In commands `$` is to be doubled too."""
    if not text.isprintable():
        raise ValueError("a systemd unit takes no control characters")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _label_text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _place(error: Exception, name: str) -> str:
    """`template:line` of the innermost template that the error came through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.endswith(".j2"):
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return name
