"""Where a configuration comes from. Owns the source port, the TOML file as its first adapter, and the order of search.

A source only brings text or a mapping and says where it is from; it knows nothing of what the keys mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import platformdirs

from cloud_dispatch.domain.errors import InvalidInput, NotFound

APP = "cloud-dispatch"
ENVIRONMENT_KEY = "CLOUD_DISPATCH_CONFIG"
SYSTEM_FILE = Path("/etc/cloud-dispatch/config.toml")
EMBEDDED = "embedded defaults"
#: Larger files are not configurations.
MAX_BYTES = 4 * 2**20

DEFAULTS: Mapping[str, Any] = {
    "profiles": {"local": {"driver": "local"}},
    "pools": {"default": {"profiles": ["local"]}},
}


@dataclass(frozen=True, slots=True)
class Raw:
    """What a source holds: TOML text or a mapping; `origin` names it in messages, `folder` anchors relative paths."""

    content: str | Mapping[str, Any] = field(repr=False)
    origin: str
    folder: Path | None = None

    def read(self) -> Raw:
        """Itself: what was read once is a source that does not change."""
        return self


class ConfigSource(Protocol):
    """Something that holds a configuration."""

    def read(self) -> Raw:
        """The configuration as it is now. NotFound when it is not there, InvalidInput when it can't be read."""


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A TOML file."""

    path: Path

    def read(self) -> Raw:
        try:
            body = self.path.read_bytes()
        except FileNotFoundError:
            raise NotFound(f"there is no configuration file {self.path}") from None
        except OSError as error:
            raise InvalidInput(f"can't be read: {error.strerror}", place=str(self.path)) from None
        if len(body) > MAX_BYTES:
            raise InvalidInput(f"expected at most {MAX_BYTES} bytes, got {len(body)}", place=str(self.path))
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError as error:
            line = body.count(b"\n", 0, error.start) + 1
            raise InvalidInput("expected UTF-8 text", place=f"{self.path}:{line}") from None
        return Raw(text, str(self.path), self.path.absolute().parent)


@dataclass(frozen=True, slots=True)
class Embedded:
    """Values given by code: the defaults, or what a test or the demo wants."""

    values: Mapping[str, Any] = field(default_factory=lambda: DEFAULTS)
    origin: str = EMBEDDED

    def read(self) -> Raw:
        return Raw(self.values, self.origin)


def user_file() -> Path:
    """The user's own configuration file, existing or not."""
    return platformdirs.user_config_path(APP) / "config.toml"


def find_source(explicit: Path | None, environment: Mapping[str, str]) -> ConfigSource:
    """The source that applies: the one named, else $CLOUD_DISPATCH_CONFIG, else the system's file, else the user's,
    else the embedded defaults."""
    return find_named(explicit, environment)[0]


def find_named(explicit: Path | None, environment: Mapping[str, str]) -> tuple[ConfigSource, str]:
    """The source that applies, and what named it."""
    if explicit is not None:
        return TomlFile(explicit), "--config"
    if environment.get(ENVIRONMENT_KEY):
        return TomlFile(Path(environment[ENVIRONMENT_KEY]).expanduser()), f"${ENVIRONMENT_KEY}"
    for path, whose in ((SYSTEM_FILE, "the system's file"), (user_file(), "your own file")):
        if path.is_file():
            return TomlFile(path), whose
    return Embedded(), "no file"


def default_state_dir(origin: str) -> Path:
    """Where a dispatcher with the configuration from `origin` keeps its state, unless it says otherwise."""
    if origin == str(SYSTEM_FILE):
        return Path("/var/lib") / APP
    return platformdirs.user_data_path(APP)
