"""Versions of the program beside each other: an environment each, and a link that says which one the units call. Owns
their places, their names, and what is remembered to go back from one.

The home of the versions is the environment into which the first was installed: `HOME/current` leads to it, or to one of
`HOME/versions`, and nothing but that link changes when another version is to run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cloud_dispatch import durable
from cloud_dispatch.domain.errors import Conflict, InvalidInput, Unavailable

PACKAGE = "cloud-dispatch"
_CURRENT, _VERSIONS = "current", "versions"
#: In the home: the version that the machine is on its way to, or away from.
_UNSETTLED = "cloud-dispatch.unsettled"
#: In an environment: that all of it is there, and what ran before it.
_WHOLE, _BEFORE = "cloud-dispatch.whole", "cloud-dispatch.before.json"
_NAME = re.compile(r"[0-9][A-Za-z0-9.+!_-]*")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[^;]*(?:;.*extra == '([^']+)')?")
#: Extras that are for work on the program.
_OTHERS = frozenset({"all", "bench", "dev"})


@dataclass(frozen=True)
class Wanted:
    """A version, and what pip is told to install."""

    name: str
    requirement: str

    @classmethod
    def of(cls, source: str, extras: Iterable[str]) -> Wanted:
        """From `0.3.0`, or from the path of a wheel. InvalidInput where it is neither."""
        some = f"[{','.join(sorted(extras))}]" if extras else ""
        if source.endswith(".whl"):
            wheel = Path(source).absolute()
            parts = wheel.name.split("-")
            if len(parts) < 5 or parts[0] != PACKAGE.replace("-", "_") or not _NAME.fullmatch(parts[1]):
                raise InvalidInput(f"{wheel.name} is no wheel of {PACKAGE}", place="SOURCE")
            if not wheel.is_file():
                raise InvalidInput(f"there is no {wheel}", place="SOURCE")
            return cls(parts[1], f"{PACKAGE}{some} @ {wheel.as_uri()}")
        if not _NAME.fullmatch(source):
            raise InvalidInput(
                f"{source!r} is no version", place="SOURCE", hint="such as 0.3.0, or the path of a wheel"
            )
        return cls(source, f"{PACKAGE}{some}=={source}")


@dataclass(frozen=True)
class Before:
    """What ran before a version: its environment, and the revision of the statestore's tables then."""

    environment: Path
    revision: str


@dataclass(frozen=True)
class Home:
    """Where all versions are."""

    root: Path

    @classmethod
    def around(cls, environment: Path) -> Home:
        """The home of this environment: itself, but for one of a home's versions."""
        return cls(environment.parent.parent if environment.parent.name == _VERSIONS else environment)

    @property
    def program(self) -> Path:
        """The command of the version that is to run, whichever that is."""
        return self.root / _CURRENT / "bin" / PACKAGE

    def of(self, version: str) -> Path:
        """Its environment."""
        return self.root / _VERSIONS / version

    def current(self) -> Path | None:
        """The environment of the version that is to run; None before the first `point`, and where that one is gone."""
        link = self.root / _CURRENT
        found = self.root / os.readlink(link) if link.is_symlink() else None
        return found if found is not None and has_program(found) else None

    def point(self, environment: Path) -> None:
        """From now on this one is to run. Unavailable where the home can't be written to."""
        fresh = self.root / f".{_CURRENT}.new"
        try:
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(os.path.relpath(environment, self.root))
            fresh.replace(self.root / _CURRENT)
            durable.sync(self.root)  # the statestore's disk may be another: its tables must not be ahead of the link
        except OSError as error:  # which names what the link leads to, if anything
            hint = "free space there" if error.errno == errno.ENOSPC else "the command needs the rights of root"
            raise Unavailable(f"can't write to {self.root}: {error.strerror}", hint=hint) from None

    def unsettle(self, environment: Path) -> None:
        """This one is about to take the place of what ran before it, or to give it back; until `settle`."""
        durable.write(self.root / _UNSETTLED, str(environment).encode(), 0o644)

    def settle(self) -> None:
        """The version that is to run does."""
        (self.root / _UNSETTLED).unlink(missing_ok=True)
        durable.sync(self.root)

    def unsettled(self) -> Path | None:
        """Which one was about to when that was cut off; None where nothing was."""
        sign = self.root / _UNSETTLED
        found = Path(sign.read_text(encoding="utf-8")) if sign.exists() else None
        return found if found is not None and has_program(found) else None

    def forget_others(self, kept: Iterable[Path]) -> None:
        """Delete the versions that are none of `kept`, and the first environment never."""
        names = {path.name for path in kept if path.parent == self.root / _VERSIONS}
        with contextlib.suppress(FileNotFoundError):
            for path in (self.root / _VERSIONS).iterdir():
                if path.name not in names:
                    shutil.rmtree(path)


def has_program(environment: Path) -> bool:
    """Whether something can run there."""
    return (environment / "bin" / PACKAGE).exists()


def is_whole(environment: Path) -> bool:
    """Whether everything was installed into it."""
    return (environment / _WHOLE).exists()


def make(environment: Path, fill: Callable[[], None]) -> None:
    """Have `fill` put everything into it; what was left there half made is deleted first. Where `fill` fails nothing
    stays: it may have failed for want of room, on the disk that the statestore is on."""
    shutil.rmtree(environment, ignore_errors=True)
    environment.parent.mkdir(parents=True, exist_ok=True)
    try:
        fill()
    except BaseException:
        shutil.rmtree(environment, ignore_errors=True)
        raise
    os.sync()  # what pip wrote is on the disk before the marker that says so, also if the machine loses its power
    durable.write(environment / _WHOLE, b"", 0o644)


def remember(environment: Path, before: Before) -> None:
    """That it follows on this one."""
    said = {"environment": str(before.environment), "revision": before.revision}
    durable.write(environment / _BEFORE, json.dumps(said).encode(), 0o644)


def before(environment: Path) -> Before:
    """What it followed on. Conflict where it followed on nothing, or that is gone or not to be read."""
    file = environment / _BEFORE
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        found = Before(Path(said["environment"]), str(said["revision"]))
    except FileNotFoundError:
        raise Conflict("no version ran before this one", hint="`upgrade` names another") from None
    except (ValueError, TypeError, KeyError):
        hint = "`upgrade` installs another version"
        raise Conflict("which version ran before can't be read", place=str(file), hint=hint) from None
    if not has_program(found.environment):
        raise Conflict(f"{found.environment}, which ran before, is gone", hint="`upgrade` installs another version")
    return found


def extras(requires: Iterable[str], has: Callable[[str], bool]) -> list[str]:
    """The extras of which everything is installed, by the requirements in a distribution's metadata."""
    needs: dict[str, list[str]] = {}
    for line in requires:
        match = _REQUIREMENT.match(line)
        if match and match[2] and match[2] not in _OTHERS:
            needs.setdefault(match[2], []).append(match[1])
    return sorted(extra for extra, names in needs.items() if all(map(has, names)))
