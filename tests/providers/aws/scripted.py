"""AWS's answers from a script, for tests of what the driver makes of them. What AWS does is the fakes' matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloud_dispatch_aws.calls import Calls
from cloud_dispatch_aws.errors import Asked


class Scripted(Calls):
    """`answers` by the SDK's method: an answer, a function of the parameters, or a list of either to be used up."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = dict(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def once(self, asked: Asked, operation: str, **parameters: Any) -> Mapping[str, Any]:
        self.asked.append((operation, parameters))
        answer = self.answers[operation]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        given: Mapping[str, Any] = answer(**parameters) if callable(answer) else answer
        return given

    async def patiently(self, asked: Asked, service: str, operation: str, **parameters: Any) -> Mapping[str, Any]:
        return await self.once(asked, operation, **parameters)

    async def pages(
        self, asked: Asked, service: str, operation: str, key: str, *, patient: bool = True, **parameters: Any
    ) -> list[Any]:
        return list((await self.once(asked, operation, **parameters))[key])

    def close(self) -> None: ...

    def count(self, operation: str) -> int:
        return sum(name == operation for name, _ in self.asked)
