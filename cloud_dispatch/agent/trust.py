"""What tasks know the dispatcher by: a file of certificates that they may read. Owns where it is and how it is kept."""

from __future__ import annotations

import os

from cloud_dispatch.agent.identity import Config

_NAME = "dispatcher.pem"


def published(config: Config, ca: str) -> str:
    """The path of a file that tasks may read, with the certificates `ca` in it (PEM); "" where tasks have to trust what
    the machine does. OSError where it can't be written."""
    if not ca:
        return config.ca_file
    if config.agent_user and not config.public_dir:
        return ""  # a supervisor of before, which made no folder that the agent can write to and tasks can read
    path = os.path.join(config.public_dir or config.work_dir, _NAME)
    if _read(path) != ca:
        partial = path + ".part"
        with open(partial, "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(ca)
        os.replace(partial, path)
    return path


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, ValueError):
        return ""
