"""What agent and warden say to each other. Owns the words of their socket and the form of an order.

A request is a short line of a word and whole numbers, with descriptors beside it where the word needs some; everything
that a task's author had a hand in travels in the order, which nobody reads but the forked child, as the task's user.
"""

from __future__ import annotations

import json
import os
from typing import Dict, List, NamedTuple, Optional, Tuple  # noqa: UP035

from cloud_dispatch.agent.memfd import holding

#: The longest line of a request, and of an answer.
REQUEST_BYTES = 128
ANSWER_BYTES = 65_536
#: How many exits fit into an answer.
MOST_EXITS = 500
#: The numbers and the descriptors that each request brings.
REQUESTS: Dict[str, Tuple[int, int]] = {
    "take": (1, 0),  # a berth; 1: its folder is the agent's until the command starts. -> its name, UID.N
    "spawn": (1, 3),  # in berth UID: the order, where output goes, where to say what failed. -> pid
    "signal": (3, 0),  # to berth UID signal NUMBER; 1: to all that lives of it. No answer
    "prod": (2, 0),  # the main process of berth UID with signal NUMBER. -> what was done
    "exits": (0, 0),  # -> the ends of main processes that were not told yet
    "back": (1, 0),  # berth UID's folder, of whom nothing lives, to the agent. -> the pid whose end is the end of that
    "weigh": (1, 1),  # write how much memory berth UID uses. -> pid
    "leave": (1, 0),  # berth UID is not needed any more, whatever is left of it. No answer
}


class Request(NamedTuple):
    """A request that is in order as far as its form goes."""

    word: str
    numbers: List[int]


def parse(line: bytes, descriptors: int) -> Optional[Request]:
    """The request that `line` is; None for anything else."""
    word, *rest = line.decode("ascii", "replace").split(" ")
    if REQUESTS.get(word) != (len(rest), descriptors):
        return None
    if not all(number.isascii() and number.isdigit() and len(number) < 12 for number in rest):
        return None
    return Request(word, [int(number) for number in rest])


def write_order(argv: List[str], env: Dict[str, str], cwd: str) -> int:
    """A descriptor with the order in it, to be closed by the caller."""
    return holding("order", json.dumps([argv, env, cwd]).encode("ascii"))


def read_order(order: int) -> Tuple[List[str], Dict[str, str], str]:
    """What `write_order` wrote."""
    with os.fdopen(order, "rb") as file:
        argv, env, cwd = json.load(file)
    return argv, env, cwd


def write_failure(error: Exception) -> bytes:
    """Why a command did not start, as the child says it."""
    number = error.errno if isinstance(error, OSError) else 0
    name = error.filename if isinstance(error, OSError) else None
    return json.dumps([number or 0, str(error)[:1000], name if isinstance(name, str) else ""]).encode("ascii")


def read_failure(said: bytes) -> Exception:
    """The error that `write_failure` wrote."""
    try:
        number, text, name = json.loads(said)
    except ValueError:
        return OSError("the command did not start, and it was not said why")
    return OSError(number, os.strerror(number), name) if number else ValueError(text)
