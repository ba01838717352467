"""Another version in the place of the one that runs, and back. Owns the order of the steps, and that the version of
before runs again where the new one does not come up.

VMs run on while the dispatcher is away, and bring their results to whichever version comes. What can fail before it is
stopped does: the new version is installed beside it, and judges the configuration. Its own `install` writes its units.
What is cut off from then on, by a signal or a reboot, is known by a sign in the home: the same command a second time
goes on, and `rollback` goes back to the version that ran before, whichever of the two the machine was left with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cloud_dispatch.domain.errors import Conflict, DispatchError, Unavailable
from cloud_dispatch.install import versions
from cloud_dispatch.install.host import Ask
from cloud_dispatch.install.trial import TryOne, tried
from cloud_dispatch.install.units import BACKUP, JOURNAL, SERVICE
from cloud_dispatch.install.versions import Before, Home, Wanted

#: So often it is looked whether a version that came up stays, with such pauses.
_LOOKS, _PAUSE_S = 5, 2.0
#: In an environment: what was asked to be installed into it.
_ASKED = "cloud-dispatch.asked"


@contextmanager
def _words_in(journal: str) -> Iterator[None]:
    """systemctl says that a service failed, and not why."""
    try:
        yield
    except Unavailable as error:
        error.hint = f"what it said: journalctl {journal} --lines 20"
        raise


@dataclass(frozen=True)
class Machine:
    """The control VM: what runs programs on it, for whom, and how one waits. `tries` has that one judge the
    configuration."""

    home: Home
    config: Path
    user: str
    ask: Ask
    pause: Callable[[float], None]
    tries: TryOne = tried

    def program(self, environment: Path, *words: str) -> str:
        """What the program of that version says to these words."""
        return self.ask([str(environment / "bin" / versions.PACKAGE), *words, "--config", str(self.config)])

    def judge(self, environment: Path) -> None:
        """InvalidInput or Unavailable where that version can't start with the configuration, as the service's user:
        root, who asks, reads more than that one."""
        self.program(environment, "config", "check")
        self.tries(environment / "bin" / versions.PACKAGE, self.config, self.user)

    def copy(self) -> None:
        """The state, as the timer does."""
        with _words_in(f"--unit {BACKUP}"):
            self.ask(["systemctl", "start", BACKUP])


def upgrade(machine: Machine, wanted: Wanted, old: Path, say: Callable[[str], None]) -> None:
    """Have `wanted` run instead of `old`. Unavailable, and what ran before runs again, where it does not come up."""
    new = machine.home.of(wanted.name)
    unproven = old == machine.home.unsettled()
    if new == old and not (unproven and _asked(new) == _as_asked(wanted)):
        raise Conflict(f"version {wanted.name} runs already")
    if not versions.is_whole(new) or _asked(new) != _as_asked(wanted):
        say(f"installing {wanted.requirement} into {new}")
        versions.make(new, lambda: _fill(machine, new, old, wanted))
    machine.judge(new)
    before = versions.before(old) if unproven else Before(old, _revision(machine, new))
    say("copying the state")
    machine.copy()
    versions.remember(new, before)
    machine.home.unsettle(new)
    say(f"starting version {wanted.name}")
    try:
        _run(machine, new)
    except DispatchError as error:
        say(f"it does not come up: {error.message}")
        _back(machine, new, before)
        raise Unavailable(
            f"version {wanted.name} does not come up, the one before runs again: {error.message}", hint=error.hint
        ) from None
    machine.home.settle()
    machine.home.forget_others({new, before.environment})


def roll_back(machine: Machine, say: Callable[[str], None], *, copy: bool = True) -> Path:
    """Have the version run again that ran before, if the configuration is one for it; its environment. What only the
    present version's tables hold is lost, and is in a copy of the state, if one is made. Conflict where none ran
    before; Unavailable where the copy fails, before anything is stopped."""
    new = machine.home.unsettled() or machine.home.current()
    if new is None:
        raise Conflict("no version ran before this one", hint="`upgrade` names another")
    before = versions.before(new)
    machine.judge(before.environment)  # the configuration may say by now what only the present one understands
    if copy:
        say("copying the state")
        try:
            machine.copy()
        except Unavailable as error:
            error.hint = f"{error.hint}; to go back all the same: rollback --no-copy"
            raise
    machine.home.unsettle(new)
    say(f"starting what is in {before.environment}")
    _back(machine, new, before)
    return before.environment


def _as_asked(wanted: Wanted) -> str:
    """What an environment for it is made of: other extras, or another wheel in the same file, make another one."""
    wheel = wanted.requirement.partition(" @ ")[2]
    content = Path(unquote(urlsplit(wheel).path)).read_bytes() if wheel else b""
    return f"{wanted.requirement} {hashlib.sha256(content).hexdigest() if wheel else ''}".strip()


def _asked(environment: Path) -> str:
    """What it was made of, "" where nobody wrote that down."""
    said = environment / _ASKED
    return said.read_text(encoding="utf-8") if said.exists() else ""


def _fill(machine: Machine, new: Path, old: Path, wanted: Wanted) -> None:
    asked = _as_asked(wanted)
    machine.ask([str(old / "bin" / "python"), "-m", "venv", str(new)])
    pip = [str(new / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    machine.ask([*pip, wanted.requirement])
    (new / _ASKED).write_text(asked, encoding="utf-8")


def _revision(machine: Machine, by: Path) -> str:
    """Of the statestore's tables, "" where there are none; asked of the newer version, which knows both."""
    return str(json.loads(machine.program(by, "db", "revision", "--json"))["revision"])


def _run(machine: Machine, environment: Path) -> None:
    """Have this version run by its own units, and see that it stays."""
    machine.home.point(environment)
    _put_units(machine, environment)
    _start(machine)


def _put_units(machine: Machine, environment: Path) -> None:
    machine.program(environment, "install", "--no-start", "--user", machine.user)


def _start(machine: Machine) -> None:
    with _words_in(f"--namespace {JOURNAL}"):
        machine.ask(["systemctl", "restart", SERVICE])
        for _ in range(_LOOKS):
            machine.pause(_PAUSE_S)
            machine.ask(["systemctl", "is-active", "--quiet", SERVICE])


def _back(machine: Machine, new: Path, before: Before) -> None:
    """Have the version of before run again, on tables that it knows; those are the new version's to make. It runs also
    where its units can't be put there, as on a full disk: those of the new version call the same program. Unavailable
    where it does not, with how to go on."""
    machine.ask(["systemctl", "stop", SERVICE])
    go_on = "put that right, then go on: cloud-dispatch rollback --no-copy"
    try:
        if before.revision and _revision(machine, new) != before.revision:
            machine.program(new, "db", "downgrade", "--to", before.revision)
        machine.home.point(before.environment)
        lacks = _lack_of_units(machine, before.environment)
        _start(machine)
    except DispatchError as error:
        message = f"the version of before does not run, and the service may be stopped: {error.message}"
        raise Unavailable(message, hint="; ".join(filter(None, (error.hint, go_on)))) from None
    if lacks:
        raise Unavailable(f"the version of before runs, but by the other one's units: {lacks}", hint=go_on)
    machine.home.settle()


def _lack_of_units(machine: Machine, environment: Path) -> str:
    """Why its units could not be put there, "" where they are."""
    try:
        _put_units(machine, environment)
    except DispatchError as error:
        return error.message
    return ""
