"""One question to the drivers of many profiles. Owns that each gets an answer in time, or why not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Provider

P = TypeVar("P", bound=Provider)
T = TypeVar("T")
#: Price services may have many pages.
MOST_S = 600.0


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What one profile's driver says; None with the `problem` where it does not."""

    profile: ProfileName
    value: T | None
    problem: str = ""


async def ask(
    providers: Mapping[ProfileName, P], question: Callable[[P], Awaitable[T]], most_s: float = MOST_S
) -> list[Answer[T]]:
    """Ask all of them at once."""

    async def one(name: ProfileName, provider: P) -> Answer[T]:
        try:
            async with asyncio.timeout(most_s):
                return Answer(name, await question(provider))
        except TimeoutError:
            return Answer(name, None, f"no answer within {most_s:g} s")
        except ProviderError as error:
            return Answer(name, None, f"{type(error).__name__}: {error}")
        except OSError as error:  # of the state folder, which is somebody else's
            return Answer(name, None, str(error))
        except Exception as error:  # a bug of one driver; the others' answers are worth having all the same
            return Answer(name, None, f"its driver stumbled: {error!r}")

    return list(await asyncio.gather(*(one(name, provider) for name, provider in providers.items())))
