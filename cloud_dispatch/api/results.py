"""Operator routes that read what tasks leave: logs as they grow, and the files of the accepted result."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from cloud_dispatch.api.requests import json_response, number, path_task, route, token_of
from cloud_dispatch.api.services import Services
from cloud_dispatch.api.views import accepted, artifact_views
from cloud_dispatch.domain.errors import Conflict, NotFound
from cloud_dispatch.domain.ids import FencingToken, TaskId
from cloud_dispatch.domain.task import TERMINAL, Attempt, Task, TaskState
from cloud_dispatch.ports.executor import give_way

#: A follower looks again after so long even if nothing woke it: a task may also end without a word of its agent.
_LOOK_S = 2.0
_PIECE = 256 * 1024
#: Tells that the log has no more than this.
_COMPLETE = "X-Complete"
_OFFSET = "X-Offset"


class ResultRoutes:
    def __init__(self, services: Services) -> None:
        self._s = services
        self._closing = False

    def routes(self) -> list[Route]:
        return [
            route("GET", "/v1/tasks/{task}/logs", self.logs, query=("attempt", "offset", "wait_ms")),
            route("GET", "/v1/tasks/{task}/outputs", self.manifest),
            route("GET", "/v1/tasks/{task}/outputs/{path:path}", self.output),
        ]

    def close(self) -> None:
        """Answer all followers now and let none wait from here on."""
        self._closing = True
        self._s.logs.close()

    async def logs(self, request: Request) -> Response:
        """Bytes of an attempt's log from an offset, waiting for more of them if asked to."""
        asked, chosen = path_task(request), token_of(request, "attempt")
        offset = number(request, "offset", 0, 10**15)
        wait_ms = min(number(request, "wait_ms", 0, 10**9), self._s.limits.log_wait_ms)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        with self._s.logs.watch(asked) as changed:
            while True:
                changed.clear()
                answer = self._running(asked, chosen, offset) or await self._queried(asked, chosen, offset)
                left = deadline - loop.time()
                moved = answer.headers[_OFFSET] != str(offset)
                if moved or _COMPLETE in answer.headers or left <= 0 or self._closing:
                    return answer
                try:
                    async with asyncio.timeout(min(left, _LOOK_S)):
                        await changed.wait()
                except TimeoutError:
                    continue

    def _running(self, asked: TaskId, chosen: FencingToken | None, offset: int) -> Response | None:
        """The answer for an attempt that is under way, None for any other: from memory and its file alone, so that who
        follows a log waits for no query, least of all while the first line arrives."""
        current = self._s.store.token_of(asked)
        if current is None or chosen not in (None, current):
            return None
        return self._answer(asked, current, offset, named=chosen is not None)

    async def _queried(self, asked: TaskId, chosen: FencingToken | None, offset: int) -> Response:
        """The answer for any attempt; says when there will be no more."""
        task = await self._s.store.task(asked)
        token, told_ms = await self._attempt(task, chosen)
        if told_ms is not None and self._s.logs.gone(asked, token, told_ms):
            said = f"the log of the attempt of task {asked} under token {token} is no longer kept"
            hint = "logs are deleted `store.retain_logs` after they were last written; or it printed nothing"
            raise NotFound(said, place="attempt", hint=hint)
        answer = self._answer(asked, token, offset, named=chosen is not None)
        if task.state in TERMINAL and int(answer.headers[_OFFSET]) >= self._s.logs.size(asked, token):
            answer.headers[_COMPLETE] = "1"
        return answer

    async def _attempt(self, task: Task, chosen: FencingToken | None) -> tuple[FencingToken, int | None]:
        """The attempt of this number or token, which no number comes near, if it is one of the task's; without a choice
        the current or the last one, 0 when there was none. Beside it when the end of one that has ended was told."""
        current = task.lease.token if task.lease is not None else None
        if current is not None and chosen in (None, current, task.attempts + 1):
            return current, None
        attempts = await self._s.store.attempts(task.id)
        if chosen is None and not attempts:
            return FencingToken(0), None
        named = {one.token: one for one in attempts} | {FencingToken(one.number): one for one in attempts}
        if chosen is None or chosen in named:
            found = attempts[-1] if chosen is None else named[chosen]
            return found.token, found.told_ms
        hint = f"`cloud-dispatch task {task.id}` lists them"
        raise NotFound(f"task {task.id} has no attempt {chosen}", place="attempt", hint=hint)

    def _answer(self, asked: TaskId, token: FencingToken, offset: int, *, named: bool) -> Response:
        """What there is from `offset`. Past the end of an attempt that was not named it is an offset of another one:
        this one is to be read from its beginning."""
        chunk = self._s.logs.read(asked, token, offset)
        other = not named and not chunk and offset > self._s.logs.size(asked, token)
        headers = {_OFFSET: str(0 if other else offset + len(chunk)), "X-Attempt": str(token)}
        return Response(chunk, headers=headers, media_type="application/octet-stream")

    async def manifest(self, request: Request) -> Response:
        task, attempt = await self._accepted(path_task(request))
        return json_response({"task": task.id, "token": attempt.token, "outputs": artifact_views(accepted(task))})

    async def output(self, request: Request) -> Response:
        """A file of the accepted result, from where its attempt put it."""
        task, attempt = await self._accepted(path_task(request))
        path = request.path_params["path"]
        artifact = next((artifact for artifact in accepted(task) if artifact.path == path), None)
        if artifact is None:
            raise NotFound(f"the result of task {task.id} has no output {path[:200]!r}", place="path")
        if artifact.url:
            raise Conflict(f"output {path!r} was stored elsewhere", place="path", hint=f"it is at {artifact.url}")
        file = self._s.outputs.open(task.id, attempt.token, path)
        headers = {
            "Content-Length": str(os.fstat(file).st_size),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2], safe='')}",
            "X-Content-Type-Options": "nosniff",
            "X-Sha256": artifact.sha256 if artifact.sha256.isascii() and artifact.sha256.isalnum() else "",
        }
        if request.method == "HEAD":
            os.close(file)
            return Response(headers=headers, media_type="application/octet-stream")
        return StreamingResponse(_pieces(file), headers=headers, media_type="application/octet-stream")

    async def _accepted(self, asked: TaskId) -> tuple[Task, Attempt]:
        task = await self._s.store.task(asked)
        if task.state is not TaskState.SUCCEEDED:
            hint = "outputs are there once it has succeeded"
            raise Conflict(f"task {asked} is {task.state}: it has no accepted result", place="task", hint=hint)
        return task, (await self._s.store.attempts(asked))[-1]


async def _pieces(file: int) -> AsyncIterator[bytes]:
    """The content of a descriptor in pieces small enough not to hold up the loop; closes it. Whoever sends them waits
    only while the client takes them more slowly than they are read: once it is gone nothing would be waited for, and
    nobody else, the notice that it is gone included, would have a turn before the end of the file."""
    try:
        while piece := os.read(file, _PIECE):
            yield piece
            await give_way()
    finally:
        os.close(file)
