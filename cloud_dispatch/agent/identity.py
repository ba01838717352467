"""Who this agent is: its configuration, and the identity that the dispatcher gave it, kept across restarts.

The state file is readable by its owner alone; nothing secret stands on a command line or in a task's environment.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Union  # noqa: UP035

from cloud_dispatch.wire.codec import decode, encode
from cloud_dispatch.wire.messages import Policy
from cloud_dispatch.wire.timer import TimerPlan, read_link

_STATE_FILE = "identity.json"


@dataclass
class Step:
    """A request to the metadata service; `{answer}` in URL and headers is what the step before it was answered."""

    url: str = ""
    method: str = "GET"
    headers: Dict[str, str] = field(default_factory=dict)


@dataclass
class NoticeSource:
    """Where the provider says that it takes the VM back (`advice`: that it may): by a 200 at the end of `steps`, with
    the text `answer`, or a JSON object with the fields in `match` (texts, or lists with that text; `{vm}` is the VM's
    id), where these are given. `field` of that object is when the VM goes; `in_ms` are left where that is unsaid.
    """

    steps: List[Step] = field(default_factory=list)
    answer: str = ""
    match: Dict[str, str] = field(default_factory=dict)
    field: str = ""
    in_ms: int = 0
    advice: bool = False


@dataclass
class Config:
    """What the VM's boot script writes for the agent: a JSON file of these names, mode 0600.

    With `agent_user` the supervisor is root and the agent runs as that user (a name or a uid); with `task_uids`
    ("FIRST-LAST") each attempt runs as a uid of its own. Both empty: all run as whoever started the supervisor.

    `url` of the dispatcher; `join_token` admits to its batch; `vm` is the provider's id of this VM and `proof` what
    shows it. `ca_file` or `fingerprint` (sha256 of the certificate, hex) for https. `end_command` is run by the
    supervisor when all is over: how a VM ends itself. `path` is the tasks' PATH where the agent's own won't do.
    `public_dir` is the supervisor's word to an agent of another user: a folder that it may write to and tasks can read.
    """

    url: str = ""
    join_token: str = field(default="", repr=False)
    vm: str = ""
    proof: str = field(default="", repr=False)
    work_dir: str = ""
    ca_file: str = ""
    fingerprint: str = ""
    end_command: List[str] = field(default_factory=list)
    facts: Dict[str, str] = field(default_factory=dict)
    lifetime_ms: int = 86_400_000  # until the dispatcher's policy says otherwise
    hang_ms: int = 60_000  # an agent that shows no sign of life for so long is killed and started again
    path: str = ""
    notice_file: str = ""  # appears when the provider takes the VM back: holds the milliseconds that are left
    notices: List[NoticeSource] = field(default_factory=list)
    timer: TimerPlan = field(default_factory=TimerPlan)
    agent_user: str = ""
    task_uids: str = ""
    public_dir: str = ""


class ConfigError(Exception):
    """The configuration can't be used; the text says what is wrong and where."""


def load_config(path: Union[str, int]) -> Config:
    """The configuration of the file at `path`, or of an open descriptor; ConfigError names what is missing or wrong."""
    try:
        with open(path, "rb") as file:
            config = decode(Config, file.read())
    except (OSError, ValueError) as error:
        raise ConfigError("configuration %s: %s" % (path, error)) from None
    for name in ("url", "vm", "work_dir"):
        if not getattr(config, name):
            raise ConfigError("configuration %s: %s is missing" % (path, name))
    if config.timer.anchor and read_link(config.timer.anchor) is None:
        raise ConfigError("configuration %s: timer.anchor is not a sha256 in hex" % path)
    config.work_dir = os.path.abspath(config.work_dir)
    return config


@dataclass
class Identity:
    """What the registration gave: the instance's name, the bearer token of all later calls, the last policy known."""

    instance: str = ""
    token: str = field(default="", repr=False)
    policy: Policy = field(default_factory=Policy)


def load_identity(work_dir: str) -> Optional[Identity]:
    """The identity of an earlier incarnation; None where there is none that can be used."""
    try:
        with open(os.path.join(work_dir, _STATE_FILE), "rb") as file:
            identity = decode(Identity, file.read())
    except (OSError, ValueError):
        return None
    return identity if identity.token and identity.instance else None


def save_identity(work_dir: str, identity: Identity) -> None:
    """Keep `identity` for the next incarnation: whole or not at all. OSError if that fails."""
    target = os.path.join(work_dir, _STATE_FILE)
    partial = target + ".part"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(encode(identity))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def explain_error(status: int, body: bytes) -> str:
    """What an error answer of the dispatcher says, on one line."""
    try:
        said = json.loads(body)
        return "HTTP %d %s: %s" % (status, said.get("code", ""), said.get("message", ""))
    except (ValueError, AttributeError):
        return "HTTP %d" % status
