"""What a task token reads and writes besides a log: the inputs and outputs that its task's specification names. Owns
when a URL names a file that is here, and which paths a declared output means.

The URL of an input says where VMs find it. Where that is this dispatcher, by the very address that VMs know, it is the
route of an output; the task token opens that one path, as long as its claim is held.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import unquote

from starlette.types import Scope

from cloud_dispatch.api.auth import Claim
from cloud_dispatch.api.files import split_path
from cloud_dispatch.api.services import Services
from cloud_dispatch.domain.errors import Denied

_OUTPUT = re.compile(r"/v1/tasks/[0-9]{1,18}/outputs/.+", re.DOTALL)
_QUERY = re.compile(r"[?#]")


class TaskFiles:
    """Decides on files that are asked for, or brought, with a task token."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._url = services.url.rstrip("/")

    async def check_input(self, claim: Claim, scope: Scope) -> None:
        """Denied unless the request reads an input of the task, whose claim is held."""
        wanted = scope["path"]
        if scope["method"] == "GET" and _OUTPUT.fullmatch(wanted) and self._store.holds(*claim):
            task = await self._store.task(claim.task)
            if any(wanted == self._path(item.url) for item in task.spec.inputs) and self._store.holds(*claim):
                return
        raise Denied(
            f"the token of task {claim.task} is not for this",
            hint="it is for the log, the outputs and the inputs of its own attempt, as long as that runs",
        )

    async def check_output(self, claim: Claim, path: str) -> None:
        """Denied unless `path` may be of an output that the task declares and the dispatcher keeps; InvalidInput for
        what is no path, or so long that it would take long to compare."""
        names = split_path(path)
        task = await self._store.task(claim.task)
        kept = (item.path for item in task.spec.outputs if not item.url)
        if not any(means(declared.split("/"), names) for declared in kept):
            hint = "declare it when the task is submitted: --output, or outputs in a task file"
            raise Denied(f"task {claim.task} declares no output {path[:200]!r}", place="path", hint=hint)

    def _path(self, url: str) -> str:
        """The route that an input's URL names here, "" for a file that is elsewhere."""
        if not self._url or not url.startswith(self._url + "/"):
            return ""
        return unquote(_QUERY.split(url[len(self._url) :], maxsplit=1)[0])


def means(declared: Sequence[str], path: Sequence[str]) -> bool:
    """Whether the agent might find `path` for the output `declared`: itself, below it, or what its pattern matches."""
    reached = {0}  # how many names of `path` are accounted for
    for name in declared:
        if name == "**":
            reached = set(range(min(reached), len(path) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(path) and _matches(path[at], name)}
        if not reached:
            return False
    return True


def _matches(name: str, declared: str) -> bool:
    return name == declared or fnmatchcase(name, declared)
