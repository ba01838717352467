"""Launches under way: what a token says, so that any process can go on from it. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.provider.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Token:
    """Where to ask about a creation, and what it is of. `poll` "": only the VM itself can tell."""

    vm: str
    poll: str
    size: str
    zone: str
    region: str
    market: str
    family: str

    def encode(self) -> str:
        return json.dumps(list(asdict(self).values()), separators=(",", ":"))

    @staticmethod
    def of(vm: str, poll: str, offering: Offering) -> Token:
        kind = offering.type
        return Token(vm, poll, kind.name, offering.zone, offering.region, str(offering.market), kind.family)

    @staticmethod
    def decode(text: str) -> Token:
        """InvalidRequest for what no driver of this kind has written."""
        try:
            values = json.loads(text)
        except ValueError:
            values = None
        if not isinstance(values, list) or len(values) != 7 or not all(isinstance(one, str) for one in values):
            raise InvalidRequest(f"{text[:100]!r} is no operation of this driver")
        return Token(*values)

    @property
    def offering(self) -> Offering:
        """As much of it as errors speak of."""
        kind = InstanceType(self.size, Resources(0, 0, 0), family=self.family)
        market = Market.SPOT if self.market == Market.SPOT else Market.ON_DEMAND
        return Offering(ProfileName(""), kind, self.zone, market, None, region=self.region)
