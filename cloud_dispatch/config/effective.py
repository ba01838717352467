"""The configuration as it takes effect: every setting, with where its value comes from. Owns that question, and the
configuration's text as TOML that reads back as the same one. Pure.

A line of the file, the built-in profile and pool, and defaults are all the places there are: no setting is taken from
the command line or the environment, which only say which file it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cloud_dispatch.config.load import Config, parsed
from cloud_dispatch.config.problems import KeyLines, Path
from cloud_dispatch.config.secrets import is_reference
from cloud_dispatch.config.source import Raw
from cloud_dispatch.domain.masking import masked

BUILT_IN, DEFAULT = "built-in", "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One of them: its value as the file would say it, None where it is not set. `source`: `ORIGIN:LINE` (the line of
    its table, where that is in one line), `built-in` or `default`. `meaning`: what an empty or unset value comes to.
    `masked`: whether a secret of it is not shown."""

    path: Path
    value: Any
    source: str
    meaning: str = ""
    masked: bool = False

    @property
    def key(self) -> str:
        return dotted(self.path)


def effective(config: Config, raw: Raw) -> list[Setting]:
    """All settings of `config`, which was loaded from `raw`, in the order of its sections."""
    said = parsed(raw)
    lines = KeyLines(raw.content) if isinstance(raw.content, str) else None
    built_in = "profiles" not in said and "pools" not in said
    meanings = _meanings(config)

    def source(path: Path) -> str:
        if _has(said, path):
            line = lines.find(path) if lines is not None else None
            return raw.origin if line is None else f"{raw.origin}:{line}"
        return BUILT_IN if built_in and path in _BUILT_IN else DEFAULT

    return [
        Setting(path, shown, source(path), "" if value else meanings.get(path, ""), shown != value or _opaque(value))
        for path, value in _leaves(config.describe(unset=True))
        for shown in [value if path in _REFERENCES and is_reference(value) else _masked(value)]
    ]


def text(settings: list[Setting], origin: str) -> str:
    """TOML with the source of each line beside it; what is not set is a comment."""
    return "".join(f"{line}\n" for line in _lines(settings, origin))


def _lines(settings: list[Setting], origin: str) -> Iterator[str]:
    for setting in settings:
        source = (
            setting.source.replace(f"{origin}:", "line ") if setting.source.startswith(f"{origin}:") else setting.source
        )
        told = source + (f": {setting.meaning}" if setting.meaning else "")
        if setting.value is None:
            yield f"# {setting.key} is not set" + (f": {setting.meaning}" if setting.meaning else "")
        else:
            hidden = ", a secret of which is not shown" if setting.masked else ""
            yield f"{setting.key} = {toml(setting.value)}  # {told}{hidden}"


#: Settings that may say where their secret is kept. Elsewhere what looks so is any text, and may be a secret itself.
_REFERENCES = frozenset({("store", "url"), ("store", "password")})
#: What a file without profiles and pools gets.
_BUILT_IN = frozenset({("profiles", "local", "driver"), ("pools", "default", "profiles")})
#: What pydantic writes for a secret.
_HIDDEN = "**********"


def _meanings(config: Config) -> dict[Path, str]:
    """What a setting that is empty comes to."""
    dispatcher = config.dispatcher
    made = f"made in {config.tls_folder}" if dispatcher.tls and dispatcher.certificate is None else ""
    return {
        ("dispatcher", "deployment"): "a random one, kept in the statestore",
        ("dispatcher", "advertise"): config.base_url,
        ("dispatcher", "certificate"): made,
        ("dispatcher", "key"): made,
        ("store", "url"): f"sqlite:///{config.state_dir / 'store.sqlite'}",
    }


def _has(said: Any, path: Path) -> bool:
    for part in path:
        if not isinstance(said, Mapping) or part not in said:
            return False
        said = said[part]
    return True


def _leaves(values: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), _set(value)


def _set(value: Any) -> Any:
    """Without what is not set in tables of lists: TOML has no word for it."""
    if isinstance(value, Mapping):
        return {key: _set(item) for key, item in value.items() if item is not None}
    return [_set(item) for item in value] if isinstance(value, list) else value


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {key: _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _opaque(value: Any) -> bool:
    return isinstance(value, str) and (value == _HIDDEN or "***" in value)


def dotted(path: Path) -> str:
    """`profiles.east.pricing."m7i.*"`, as TOML has it."""
    return ".".join(str(part) if _is_bare(str(part)) else quoted(str(part)) for part in path)


def _is_bare(key: str) -> bool:
    return key.isascii() and key.replace("-", "").replace("_", "").isalnum()


def quoted(string: str) -> str:
    """A basic string of TOML. It is one of JSON, but for the one control character that JSON lets through."""
    return json.dumps(string, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return quoted(value) if isinstance(value, str) else json.dumps(value)
