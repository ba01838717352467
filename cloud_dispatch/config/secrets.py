"""Secrets that a configuration names and does not hold. Owns the forms of their names and whose each form is; when they
are looked for is up to what needs them, so that a command that needs none can be run by whoever may not read them.

- `credential:NAME` is a file that systemd hands to the service ($CREDENTIALS_DIRECTORY), as `install` has it done for
  all that lies in /etc/cloud-dispatch/credentials; without a service, of that folder itself.
- `env:NAME` is a variable of the environment; without a service, of the file that its variables are in.
- `CLOUD-secret:NAME` is in a cloud's own store of secrets, which the driver `CLOUD` asks as whoever this machine is;
  `CLOUD-secret:NAME#KEY` is one text of a JSON document that is kept there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from cloud_dispatch.config import variables
from cloud_dispatch.domain.errors import DispatchError, InvalidInput

FOLDER = Path("/etc/cloud-dispatch/credentials")
#: The variables of the services, where there is such a file.
ENVIRONMENT = Path("/etc/cloud-dispatch/environment")
#: What systemd puts before the name of a file of a folder that it hands over.
PREFIX = "cloud-dispatch_"
_OWN = re.compile(r"(credential|env):([A-Za-z0-9_.-]+)")
_CLOUD = re.compile(r"([a-z][a-z0-9]*)-secret:([\x21\x22\x24-\x7e]+)(?:#([\x21-\x7e]+))?")
#: In words, for whoever has written something else.
FORMS = '"credential:NAME", "env:NAME", "CLOUD-secret:NAME"'


class SecretStore(Protocol):
    """What a driver says of its cloud's store of secrets; DispatchError, where it knows none."""

    def check_secret(self, name: str) -> None:
        """ValueError, saying what was expected, for what can't be the name of a secret there. Asks nobody."""

    def secret(self, name: str) -> str:
        """The secret, asked for now, within a bounded time."""


#: From the name of a driver to its store; DispatchError or LookupError where there is no such driver.
Stores = Callable[[str], SecretStore]


def is_reference(text: str) -> bool:
    """Whether it names a secret."""
    return _OWN.fullmatch(text) is not None or _CLOUD.fullmatch(text) is not None


def wrong(text: str, stores: Stores) -> str:
    """What is wrong with the name of a secret of a cloud's, as far as can be told without asking; "" for nothing."""
    reference = _CLOUD.fullmatch(text)
    if reference is None:
        return ""
    try:
        stores(reference[1]).check_secret(reference[2])
    except ValueError as error:
        return str(error)
    except DispatchError as error:
        return f"{error.message} ({error.hint})" if error.hint else error.message
    except LookupError:
        return f"no such driver {reference[1]!r}"
    return ""


def found(
    text: str, environment: Mapping[str, str], *, place: str, folder: Path = FOLDER, file: Path = ENVIRONMENT,
    stores: Stores | None = None,
) -> str:  # fmt: skip
    """The secret that `text` names, or `text` where it names none. By its `place` in the configuration InvalidInput
    where it is not there, Unavailable where its store can't be asked now."""
    if reference := _CLOUD.fullmatch(text):
        return _of_cloud(*reference.groups(), place=place, stores=stores)
    own = _OWN.fullmatch(text)
    if own is None:
        return text
    kind, name = own.groups()
    if kind == "env":
        return _variable(name, environment, file, place)
    handed = environment.get("CREDENTIALS_DIRECTORY")
    kept = Path(handed, PREFIX + name) if handed else folder / name
    try:
        return kept.read_text(encoding="utf-8").strip()
    except OSError as error:
        hint = f"write it to {folder / name}, as root, with mode 0600"
        raise InvalidInput(f"the credential {name} can't be read: {error}", place=place, hint=hint) from None


def _variable(name: str, environment: Mapping[str, str], file: Path, place: str) -> str:
    if name in environment:
        return environment[name]
    try:
        return variables.parsed(file.read_text(encoding="utf-8"))[name]
    except KeyError:
        why = f"nor has {file}"
    except FileNotFoundError:
        why = f"and there is no {file}"
    except (OSError, ValueError) as error:
        why = f"and {file} can't be read: {error}"
    hint = f"set it, or write {name}=VALUE to {file}, as root, with mode 0600: the service reads it when it starts"
    raise InvalidInput(f"the environment has no {name}, {why}", place=place, hint=hint)


def services_variables() -> dict[str, str]:
    """What systemd tells the services, as far as who asks may read it."""
    try:
        return variables.parsed(ENVIRONMENT.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _of_cloud(driver: str, name: str, key: str | None, *, place: str, stores: Stores | None) -> str:
    if stores is None:
        raise InvalidInput(f"nobody here asks {driver} for secrets", place=place)
    try:
        text = stores(driver).secret(name)
    except DispatchError as error:
        raise type(error)(f"the secret {name}: {error.message}", place=place, hint=error.hint) from None
    return text if key is None else _member(text, name, key, place)


def _member(text: str, name: str, key: str, place: str) -> str:
    """Says nothing of what else is there."""
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    value = document.get(key) if isinstance(document, dict) else None
    if not isinstance(value, str):
        raise InvalidInput(f"the secret {name} is no JSON object with a text {key!r}", place=place)
    return value


def with_password(url: str, password: str) -> str:
    """The URL of a database with this password for the user that it names. InvalidInput where it names none."""
    scheme, _, rest = url.partition("://")
    end = next((at for at, sign in enumerate(rest) if sign in "/?"), len(rest))
    user, _, host = rest[:end].rpartition("@")
    user = user.partition(":")[0]
    if not scheme.startswith("postgresql") or not user:
        hint = "postgresql://USER@HOST/DATABASE"
        raise InvalidInput("expected the URL of a database with a user in it", place="store.url", hint=hint)
    return f"{scheme}://{user}:{quote(password, safe='')}@{host}{rest[end:]}"
