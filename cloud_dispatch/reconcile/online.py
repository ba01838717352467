"""What the providers find that would keep launches from working. Owns that every profile gets an answer, in time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Finding, Level, Provider

#: A profile whose provider has not answered by then has a finding that says so.
MOST_S = 60.0
#: Stands for a deployment whose name is made at the first start.
UNNAMED = "not-named-yet"


@dataclass(frozen=True, slots=True)
class Found:
    """What one profile's provider found; nothing, where its driver has nothing to look at."""

    profile: ProfileName
    findings: Sequence[Finding]

    @property
    def blocked(self) -> bool:
        return any(finding.level is Level.ERROR for finding in self.findings)


async def preflight(providers: Mapping[ProfileName, Provider], deployment: str, most_s: float = MOST_S) -> list[Found]:
    """Ask all of them at once."""

    async def ask(name: ProfileName, provider: Provider) -> Found:
        try:
            async with asyncio.timeout(most_s):
                return Found(name, await provider.preflight(deployment))
        except TimeoutError:
            return Found(name, [Finding(Level.ERROR, "provider", f"no answer within {most_s:g} s")])
        except ProviderError as error:
            return Found(name, [Finding(Level.ERROR, "provider", f"{type(error).__name__}: {error}")])
        except Exception as error:  # a bug of one driver; the others' findings are worth knowing all the same
            return Found(name, [Finding(Level.ERROR, "provider", f"its driver stumbled: {error}")])

    return list(await asyncio.gather(*(ask(name, provider) for name, provider in providers.items())))
