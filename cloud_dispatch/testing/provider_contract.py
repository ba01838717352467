"""The conformance suite of provider drivers, version 8. Owns what every driver must do; knows no driver.

A driver's own tests make it run by subclassing `ProviderContract` and giving its fixtures:

    class TestMine(ProviderContract):
        @pytest.fixture
        def connect(self): ...        # () -> Provider: a new driver over the same account, each time it is called
        @pytest.fixture
        def user_data(self): ...      # boots a VM that stays up
        @pytest.fixture
        def faults(self): ...         # optional, a subclass of `Faults`
        @pytest.fixture
        def truth(self): ...          # optional, a subclass of `Truth`: what the backend says of VMs, past the driver
        @pytest.fixture
        def leftovers(self): ...      # optional: () -> whatever of terminated VMs still exists
        @pytest.fixture
        def elsewhere(self): ...      # optional: () -> drivers that look in another place, each by one of its settings
        @pytest.fixture
        def prove(self): ...          # async (vm, challenge) -> its proof of identity, where the traits say it has one
        @pytest.fixture
        def now(self): ...            # optional: () -> the account's clock, for the tests of the hard end

Needs pytest and pytest-asyncio. A test that needs a capability which the traits deny, a fault that the backend can't
inject or a truth that it does not tell is skipped. VMs of a test that failed are terminated by the `provider` fixture.
Waiting is `asyncio.sleep`, so that the suite also runs on a loop in virtual time.
"""

from __future__ import annotations

from cloud_dispatch.testing.provider_contract_base import Faults
from cloud_dispatch.testing.provider_contract_blocking import BlockingContract
from cloud_dispatch.testing.provider_contract_consoles import ConsoleContract
from cloud_dispatch.testing.provider_contract_ending import EndingContract
from cloud_dispatch.testing.provider_contract_errors import ErrorContract
from cloud_dispatch.testing.provider_contract_extras import ExtrasContract
from cloud_dispatch.testing.provider_contract_faults import FaultContract
from cloud_dispatch.testing.provider_contract_hard_ends import HardEndContract
from cloud_dispatch.testing.provider_contract_identity import IdentityContract
from cloud_dispatch.testing.provider_contract_launch import LaunchContract
from cloud_dispatch.testing.provider_contract_listing import ListingContract
from cloud_dispatch.testing.provider_contract_markets import MarketContract
from cloud_dispatch.testing.provider_contract_operations import OperationsContract
from cloud_dispatch.testing.provider_contract_parts import PartsContract
from cloud_dispatch.testing.provider_contract_places import PlaceContract
from cloud_dispatch.testing.provider_contract_quotas import QuotaContract
from cloud_dispatch.testing.provider_contract_secrets import SecretsContract
from cloud_dispatch.testing.provider_contract_tags import TagContract
from cloud_dispatch.testing.provider_contract_truth import Truth
from cloud_dispatch.testing.provider_contract_user_data import UserDataContract

__all__ = ["VERSION", "Faults", "ProviderContract", "Truth"]

VERSION = 8


class ProviderContract(
    LaunchContract,
    OperationsContract,
    UserDataContract,
    PartsContract,
    ListingContract,
    PlaceContract,
    EndingContract,
    HardEndContract,
    MarketContract,
    TagContract,
    FaultContract,
    ErrorContract,
    BlockingContract,
    ExtrasContract,
    QuotaContract,
    ConsoleContract,
    IdentityContract,
    SecretsContract,
):
    """Subclass it, give its fixtures. See `ContractBase` for what a subclass may set."""
