"""What a pool's VMs set up at boot (`[pools.NAME.boot]`). Owns names, defaults and bounds; knows no template.

Values end up in shell scripts, units and fstab: what these would read as more than one word is refused here, by name.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator

from cloud_dispatch.config.quantities import Size

_WORD = re.compile(r"[\x21-\x7e]+")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_:=~-]*")
_FILESYSTEM = re.compile(r"[a-z][a-z0-9]{0,15}")
#: Larger files do not fit into any provider's user data.
_MOST_BYTES = 65_536


def _one_word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise ValueError("expected printable ASCII without spaces")
    return text


def _absolute(text: str) -> str:
    path = PurePosixPath(_one_word(text))
    if not path.is_absolute() or ".." in path.parts or str(path) == "/":
        raise ValueError("expected an absolute path other than / and without '..'")
    return str(path)


def _package(text: str) -> str:
    if not _PACKAGE.fullmatch(text):
        raise ValueError("expected the name of a package")
    return text


def _filesystem(text: str) -> str:
    if not _FILESYSTEM.fullmatch(text):
        raise ValueError('expected the name of a file system (e.g. "ext4", "xfs")')
    return text


def _proxy(text: str) -> str:
    parts = urlsplit(_one_word(text)) if text else None
    if parts is not None and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError('expected a URL (e.g. "http://10.0.0.8:3128") or nothing')
    if parts is not None and parts.password:
        raise ValueError("expected no password: whoever can read a VM's user data would have it")
    return text


def read_text(path: Path, begins: str) -> str:
    """The text of an operator's file; ValueError that says what is wrong with it."""
    try:
        body = path.read_bytes()
    except OSError as error:
        raise ValueError(f"expected a file that can be read: {error.strerror}") from None
    if len(body) > _MOST_BYTES:
        raise ValueError(f"expected a file of at most {_MOST_BYTES} bytes")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise ValueError("expected a file of UTF-8 text") from None
    if not text.startswith(begins):
        raise ValueError(f"expected a file that begins with {begins}")
    return text


def _script(path: Path) -> Path:
    read_text(path, SCRIPT)
    return path


def _cloud_config(path: Path) -> Path:
    read_text(path, CLOUD_CONFIG)
    return path


SCRIPT, CLOUD_CONFIG = "#!", "#cloud-config"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MountSection(_Section):
    """One file system that is mounted before any task. `source` is host:/path, a device, or nothing for a tmpfs."""

    kind: Literal["nfs", "block", "tmpfs"]
    path: Annotated[str, AfterValidator(_absolute)]
    source: Annotated[str, AfterValidator(lambda text: text and _one_word(text))] = ""
    options: Annotated[str, AfterValidator(lambda text: text and _one_word(text))] = ""
    filesystem: Annotated[str, AfterValidator(_filesystem)] = "ext4"
    format: Annotated[bool, Strict()] = False
    size: Size = 0

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.kind == "nfs" and ":/" not in self.source:
            raise ValueError("expected source = HOST:/PATH for nfs")
        if self.kind == "block" and not self.source.startswith("/dev/"):
            raise ValueError("expected source = /dev/NAME for block")
        if self.kind == "tmpfs" and self.source:
            raise ValueError("expected no source for tmpfs")
        if self.size and self.kind != "tmpfs":
            raise ValueError("expected size for tmpfs only")
        if self.format and self.kind != "block":
            raise ValueError("expected format for block only")
        return self


class ProxySection(_Section):
    """How the VM reaches the outside. `no` is a list of hosts that are reached directly."""

    http: Annotated[str, AfterValidator(_proxy)] = ""
    https: Annotated[str, AfterValidator(_proxy)] = ""
    no: Annotated[str, AfterValidator(lambda text: text and _one_word(text))] = ""


class BootSection(_Section):
    """What the VMs of a pool set up before their agent starts."""

    nvidia: Annotated[bool, Strict()] = False
    nvidia_packages: tuple[Annotated[str, AfterValidator(_package)], ...] = ()
    mounts: tuple[MountSection, ...] = ()
    proxy: ProxySection = ProxySection()
    cloud_config: tuple[Annotated[Path, AfterValidator(_cloud_config)], ...] = ()
    scripts: tuple[Annotated[Path, AfterValidator(_script)], ...] = ()
    metadata: Annotated[bool, Strict()] = Field(default=False)
    early: Annotated[bool, Strict()] = Field(default=True)
