"""The provider's word that the VM goes, from its metadata service. Owns how it is asked and understood.

It decides nothing, and tells that service nothing of ours. What goes wrong with it is one line on the console.
"""

from __future__ import annotations

import asyncio
import json
import time
from calendar import timegm
from typing import Any, Callable, Dict, Optional, Tuple  # noqa: UP035

from cloud_dispatch.agent import events
from cloud_dispatch.agent.adapters import wall_ms
from cloud_dispatch.agent.channel import Channel, Endpoint
from cloud_dispatch.agent.identity import Config, NoticeSource
from cloud_dispatch.agent.waiting import within

#: Between two rounds of questions.
PERIOD_S = 5.0
_ANSWER_S = 2.0
_FORMS = ("%Y-%m-%dT%H:%M:%SZ", "%a, %d %b %Y %H:%M:%S GMT")


def left_ms(answer: str, source: NoticeSource, vm: str, wall_now_ms: int) -> Optional[int]:
    """How much time VM `vm` has, as `answer` says; None where that is no notice."""
    found: Optional[Dict[str, Any]] = {}
    if source.answer and answer != source.answer:
        return None
    if source.match or source.field:
        try:
            found = _find(json.loads(answer), {name: text.replace("{vm}", vm) for name, text in source.match.items()})
        except ValueError:
            found = None
    if found is None:
        return None
    for form in _FORMS:
        try:
            return max(timegm(time.strptime(str(found.get(source.field)), form)) * 1000 - wall_now_ms, 0)
        except ValueError:  # noqa: PERF203
            continue
    return source.in_ms


def _find(said: Any, match: Dict[str, str]) -> Optional[Dict[str, Any]]:
    """The first object in `said` of which all fields in `match` are so, or have that in their list."""
    if isinstance(said, dict):
        fields = ((said.get(name), text) for name, text in match.items())
        if all(text in value if isinstance(value, list) else value == text for value, text in fields):
            return said
        said = list(said.values())
    inner = (_find(item, match) for item in said) if isinstance(said, list) else ()
    return next((found for found in inner if found is not None), None)


class Notices:
    """Asks all sources again and again, until one has given notice."""

    def __init__(self, config: Config, feed: Callable[[events.Event], None], say: Callable[[str], None]) -> None:
        self._sources, self._vm = config.notices, config.vm
        self._feed, self._say = feed, say
        self._channels: Dict[str, Channel] = {}
        self._known: Dict[str, str] = {}  # what steps before the last have answered: a session's token
        self._complained = False

    async def run(self) -> None:
        try:
            while self._sources:
                for source in self._sources:
                    await self._look(source)
                await asyncio.sleep(PERIOD_S)
        finally:
            for channel in self._channels.values():
                channel.close()

    async def _look(self, source: NoticeSource) -> None:
        try:
            status, answer = await self._ask(source)
            if status == 401:
                self._known.clear()
                status, answer = await self._ask(source)
        except (OSError, ValueError, asyncio.TimeoutError) as error:
            status, answer = 0, str(error) or "no answer"
        if status not in (200, 404) and not self._complained:
            self._complained = True
            self._say("no notices from %s: %d %s" % (source.steps[-1].url, status, answer[:200]))
        left = left_ms(answer, source, self._vm, wall_ms()) if status == 200 else None
        if left is not None:
            self._sources = [other for other in self._sources if source.advice and not other.advice]
            self._feed(events.Noticed(None if source.advice else left))

    async def _ask(self, source: NoticeSource) -> Tuple[int, str]:
        """Status and text that the last step has answered, or the first that was refused."""
        status, answer = 200, ""
        for step in source.steps:
            asked = repr((step, answer))
            if step is not source.steps[-1] and asked in self._known:
                answer = self._known[asked]
                continue
            scheme, _, rest = step.url.partition("://")
            place = rest.partition("/")[0]
            lines = ["%s %s HTTP/1.1" % (step.method, rest[len(place) :] or "/"), "Host: " + place]
            lines += ["%s: %s" % header for header in step.headers.items()]
            lines += ["Content-Length: 0", "", ""] if step.method != "GET" else ["", ""]
            channel = self._channels.get(place)
            if channel is None:
                channel = self._channels[place] = Channel(Endpoint.parse(scheme + "://" + place), str)
            asking = channel.exchange("\r\n".join(lines).replace("{answer}", answer))
            status, body = await within(_ANSWER_S, asking)
            answer = body.decode("utf-8", "replace").strip()
            if status != 200:
                break
            self._known[asked] = answer
        return status, answer
