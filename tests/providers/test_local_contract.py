"""The local driver passes the public suite of provider drivers, with real processes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import pytest

from cloud_dispatch.domain.ids import ProfileName, VmId
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.host import ThreadHost
from cloud_dispatch.provider.spi import Challenge, ProfileContext, Provider
from cloud_dispatch.testing.provider_contract import Faults, ProviderContract, Truth
from cloud_dispatch_local import plugin
from cloud_dispatch_local.folder import VmFolder, VmRecord
from cloud_dispatch_local.settings import LocalSettings
from tests.providers.local import clock, end_everything, living

pytestmark = pytest.mark.process

#: Those that the faults file knows.
CALLS = ("launch", "list", "get", "terminate", "extend", "tag", "identify")
WORDS = {
    "CapacityUnavailable": "capacity",
    "QuotaExceeded": "quota",
    "RateLimited": "rate",
    "CredentialsRejected": "credentials",
    "InvalidRequest": "invalid",
    "Transient": "transient",
    "InDoubt": "in-doubt",
}


class LocalFaults(Faults):
    """Writes the faults file, and the settings that the next driver is made with."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings = LocalSettings.model_validate({"spot_discount": 60, "shutdown_grace": "1s"})

    def fail(
        self,
        call: str,
        error: type[ProviderError],
        *,
        commit: bool = False,
        times: int = 1,
        after: int = 0,
        type_name: str = "",
        retry_after_ms: int = 0,
    ) -> None:
        if call not in CALLS:
            self._lacks(f"fail {call}")
        self._write(
            operation=call, error=WORDS[error.__name__], commit=commit, times=times, after=after, type=type_name,
            retry_after_ms=retry_after_ms,
        )  # fmt: skip

    def delay(self, call: str, delay_ms: int, *, times: int = 1) -> None:
        if call not in CALLS:
            self._lacks(f"delay {call}")
        self._write(operation=call, delay_ms=delay_ms, times=times)

    def calm(self) -> None:
        (self.root / "faults.json").unlink(missing_ok=True)

    def cut_short(self, *, times: int = 1) -> None:
        self._write(operation="list", cut=True, times=times)

    def capacity(self, type_name: str, vms: int) -> None:
        catalogue = dict(self.settings.catalogue)
        catalogue[type_name] = catalogue[type_name].model_copy(update={"capacity": vms})
        self.settings = self.settings.model_copy(update={"catalogue": catalogue})

    def quota(self, vms: int) -> None:
        self.settings = self.settings.model_copy(update={"max_vms": vms})

    def say(self, vm: VmId, text: str) -> None:
        with (self.root / "vms" / vm / "console.log").open("a", encoding="utf-8") as console:
            console.write(text)

    def _write(self, **fault: object) -> None:
        (self.root / "faults.json").write_text(json.dumps([fault]))


class LocalTruth(Truth):
    """What stands in the folders of VMs, where their machines and the watchdog find it."""

    def __init__(self, root: Path) -> None:
        self.vms = root / "vms"

    async def user_data(self, vm: VmId) -> bytes:
        return (self.vms / vm / "user-data").read_bytes()

    async def hard_end_ms(self, vm: VmId) -> int:
        return self._record(vm).ends_ms

    async def market(self, vm: VmId) -> Market:
        return Market.SPOT if self._record(vm).spot else Market.ON_DEMAND

    def _record(self, vm: VmId) -> VmRecord:
        found = VmFolder(self.vms / vm).vm()
        assert found is not None
        return found


class LocalContract(ProviderContract):
    settle_s = 20.0
    poll_s = 0.02
    lives_ms = 3_000

    @pytest.fixture
    def now(self) -> Callable[[], int]:
        return clock

    @pytest.fixture
    def root(self, tmp_path: Path) -> Iterator[Path]:
        yield tmp_path
        end_everything(tmp_path)

    @pytest.fixture
    def faults(self, root: Path) -> LocalFaults:
        return LocalFaults(root)

    @pytest.fixture
    def truth(self, root: Path) -> LocalTruth:
        return LocalTruth(root)

    @pytest.fixture
    def prove(self, root: Path) -> Callable[[VmId, Challenge], Awaitable[str]]:
        async def read(vm: VmId, challenge: Challenge) -> str:
            return (root / "vms" / vm / "identity").read_text()

        return read

    @pytest.fixture
    def leftovers(self, root: Path) -> Callable[[], Iterable[object]]:
        return lambda: [*living(root), *(root / "vms").iterdir(), *(root / "trash").iterdir()]

    @pytest.fixture
    def elsewhere(self, faults: LocalFaults, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], list[Provider]]:
        """Another folder, by the profile's own setting: that of the state may move, with its VMs."""
        moved = faults.settings.model_copy(update={"root": tmp_path_factory.mktemp("other")})
        return lambda: [plugin.create(ProfileContext(ProfileName("local"), moved, faults.root, now=clock))]


def context_of(faults: LocalFaults) -> ProfileContext:
    return ProfileContext(ProfileName("local"), faults.settings, faults.root, now=clock)


class TestLocalInline(LocalContract):
    """On the caller's own loop."""

    @pytest.fixture
    def connect(self, faults: LocalFaults) -> Callable[[], Provider]:
        return lambda: plugin.create(context_of(faults))


class TestLocalInThread(LocalContract):
    """As a dispatcher runs it: in a thread host."""

    @pytest.fixture
    def connect(self, faults: LocalFaults) -> Callable[[], Provider]:
        return lambda: ThreadHost(plugin, context_of(faults))
