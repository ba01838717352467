"""Secrets that a configuration names and does not hold. Owns where they are looked for, and when: by what needs them,
so that a command that needs none can be run by whoever may not read them.

- `credential:NAME` is a file that systemd hands to the service ($CREDENTIALS_DIRECTORY), as `install` has it done for
  all that lies in /etc/cloud-dispatch/credentials; without a service, of that folder itself.
- `env:NAME` is a variable of the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cloud_dispatch.domain.errors import InvalidInput

FOLDER = Path("/etc/cloud-dispatch/credentials")
#: What systemd puts before the name of a file of a folder that it hands over.
PREFIX = "cloud-dispatch_"
_REFERENCE = re.compile(r"(credential|env):([A-Za-z0-9_.-]+)")


def is_reference(text: str) -> bool:
    """Whether it names a secret."""
    return _REFERENCE.fullmatch(text) is not None


def found(text: str, environment: Mapping[str, str], *, place: str, folder: Path = FOLDER) -> str:
    """The secret that `text` names, or `text` where it names none. InvalidInput, by its `place` in the configuration,
    where it is not there."""
    reference = _REFERENCE.fullmatch(text)
    if reference is None:
        return text
    kind, name = reference.groups()
    if kind == "env":
        if name not in environment:
            raise InvalidInput(f"the environment has no {name}", place=place, hint="set it where the dispatcher starts")
        return environment[name]
    handed = environment.get("CREDENTIALS_DIRECTORY")
    file = Path(handed, PREFIX + name) if handed else folder / name
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        hint = f"write it to {folder / name}, as root, with mode 0600"
        raise InvalidInput(f"the credential {name} can't be read: {error}", place=place, hint=hint) from None
