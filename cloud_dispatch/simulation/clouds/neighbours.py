"""Who else has VMs in an account: other deployments, other statestores of the same deployment, people by hand. Owns
when theirs come and go, and what was done to them by anybody but their owners.

They take room, quotas and places in listings as all VMs do; nobody meters them, and no checker counts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloud_dispatch.domain.ids import BatchId, PoolName, ProfileName, VmId, instance_id
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.tags import DEPLOYMENT, VmTags
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.records import Record
from cloud_dispatch.simulation.clouds.stock import Pool
from cloud_dispatch.simulation.ports import EndCause, Stream

if TYPE_CHECKING:
    from cloud_dispatch.simulation.clouds.account import Account

#: The statestore that theirs belong to, where their tags name one.
STORE = "st-of-a-neighbour"
_POOL, _PROFILE = PoolName("theirs"), ProfileName("theirs")
_AGAIN_MS = 60_000
_YEAR_MS = 365 * 24 * 3_600_000


class Neighbours:
    """Of one account."""

    def __init__(self, account: Account) -> None:
        self._account = account
        #: What somebody else did to what is theirs, in words.
        self.trespasses: list[str] = []

    def start(self) -> None:
        """Have them come and go as the faults of the account say."""
        account, now = self._account, self._account.clock.now()
        for number, fault in enumerate(account.book.of(FaultKind.NEIGHBOUR)):
            account.later(max(account.book.begins_ms(fault) - now, 0), self._come, fault, number)

    def _come(self, fault: Fault, number: int) -> None:
        """As many as there is room for."""
        account = self._account
        made = []
        for place in range(max(fault.times, 1)):
            batch = BatchId(f"theirs{number}")
            pool = self._pool(fault, account.streams.stream("neighbour", account.name, number, place))
            over = account.stock.over_quota(pool, 1, account.clock.now(), "")
            if over is None and account.stock.room(pool, account.clock.now()):
                made.append(account.settle(self._name(batch, place, pool.zone), batch, pool, self._tags(fault, batch)))
        if fault.until_ms:
            account.later(account.book.ends_ms(fault) - account.clock.now(), self._go, made)

    def _pool(self, fault: Fault, chance: Stream) -> Pool:
        sold = [one for one in self._account.settings.sells if fault.type in ("", one.type.name)]
        chosen = chance.pick(sold)
        return self._account.stock.pool(
            chosen.type.name, fault.zone or chance.pick(chosen.zones), fault.market or Market.ON_DEMAND
        )

    def _name(self, batch: BatchId, place: int, zone: str) -> VmId:
        """As VMs are called there."""
        account = self._account
        named = account.driver(_PROFILE).traits.vm_id(instance_id(batch, place), zone)
        return named or VmId(f"i-{account.streams.stream('vm-id', account.name, batch, place).below(16**17):017x}")

    def _tags(self, fault: Fault, batch: BatchId) -> dict[str, str]:
        if not fault.code:
            return {"name": "somebody's"}
        if fault.amount:
            return {DEPLOYMENT: fault.code}
        ends_ms = self._account.clock.now() + _YEAR_MS
        return VmTags(fault.code, STORE, _POOL, batch, 1_000_000, ends_ms).encode()

    def _go(self, made: list[Record]) -> None:
        """Their owner ends them, and asks again for those that do not go."""
        left = [record for record in made if record.state is not VmState.GONE]
        for record in left:
            self._account.end(record, EndCause.TERMINATED, "its owner asked")
        if left:
            self._account.later(_AGAIN_MS, self._go, left)
