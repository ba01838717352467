"""`python -m cloud_dispatch.provider.secret_child`: one secret of a cloud's store, asked for in a process of its own.

So the dispatcher loads no SDK, and whatever an SDK does, it is over in a bounded time. What is asked comes on stdin and
the answer leaves on stdout: neither is seen by `ps`, and nothing else is written anywhere.
"""

from __future__ import annotations

import importlib
import os
import sys

import msgspec

from cloud_dispatch.domain.masking import masked
from cloud_dispatch.provider.errors import InvalidRequest, ProviderError


class Question(msgspec.Struct, frozen=True):
    """`target`: where the plugin is found (`module:attribute`)."""

    target: str
    name: str


class Answer(msgspec.Struct, frozen=True):
    """The secret, or why there is none: `missing` is a module that is not installed, `settled` that asking again is of
    no use."""

    secret: str | None = None
    error: str = ""
    settled: bool = False
    missing: str = ""


def answer(question: Question) -> Answer:
    """Ask the plugin."""
    module, _, attribute = question.target.partition(":")
    try:
        return Answer(getattr(importlib.import_module(module), attribute).secret(question.name))
    except ImportError as error:
        return Answer(missing=(error.name or str(error)).partition(".")[0])
    except ProviderError as error:
        return Answer(error=masked(str(error)), settled=isinstance(error, InvalidRequest))
    except Exception as error:
        return Answer(error=masked(f"{type(error).__name__}: {error}"))


def main() -> None:
    """What libraries print does not get between."""
    told = os.dup(1)
    os.dup2(2, 1)
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    with os.fdopen(told, "wb") as out:
        out.write(msgspec.json.encode(answer(question)))


if __name__ == "__main__":
    main()
