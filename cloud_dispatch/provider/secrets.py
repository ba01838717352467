"""Secrets of a cloud's own store. Owns how a driver's plugin is asked for one: in a process of its own, in a bounded
time. Knows no form of a name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from cloud_dispatch.domain.errors import InvalidInput, Unavailable
from cloud_dispatch.provider.secret_child import Answer, Question

#: An SDK is loaded, a token is fetched, and the store is asked, each of them a few times at worst.
ANSWER_S = 45.0
_CHILD = ("-P", "-m", "cloud_dispatch.provider.secret_child")


class NotInstalled(Exception):
    """The SDK's module of this name."""


def ask(target: str, name: str, *, child: Sequence[str] = _CHILD, within_s: float = ANSWER_S) -> str:
    """The secret `name` by the plugin at `target`. InvalidInput where there is none, Unavailable where it can't be had
    now, NotInstalled without the SDK."""
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(
            [sys.executable, *child],
            input=msgspec.json.encode(Question(target, name)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
            timeout=within_s,
            check=False,
            start_new_session=True,
        )
        answer = msgspec.json.decode(done.stdout, type=Answer)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no answer within {within_s:g} s", hint=_HINT) from None
    except (OSError, msgspec.DecodeError):
        raise Unavailable("it can't be asked for: the process that asks has ended", hint=_HINT) from None
    if answer.missing:
        raise NotInstalled(answer.missing)
    if answer.secret is None and answer.settled:
        raise InvalidInput(answer.error, hint="name one that is there, as its store spells it")
    if answer.secret is None:
        raise Unavailable(answer.error, hint=_HINT)
    return answer.secret


_HINT = "see that this machine reaches the store and that its identity may read this secret, then try again"
