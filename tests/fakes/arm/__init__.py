"""A fake Azure Resource Manager, with its authority, managed identities and price list, for the real SDKs.

    with FakeArm(Settings(starting_ms=20), RealClock()) as azure:       # or SetClock() and azure.advance(ms)
        credential = azure.credential()                    # the real ClientSecretCredential (CLIENT, SECRET, TENANT)
        compute = azure.compute()                          # ComputeManagementClient(base_url=azure.url, ...)
        network = azure.network()
        azure.add_faults(Fault(FaultKind.LOST_ANSWER, operation="VirtualMachines_CreateOrUpdate", times=1))

A driver is given `azure.url` (base_url, and the authority with disable_instance_discovery=True), `azure.ca_file`
(connection_verify or REQUESTS_CA_BUNDLE), `azure.prices_url`, `azure.identity_url` (AZURE_POD_IDENTITY_AUTHORITY_HOST),
and from `settings`: SUBSCRIPTION, TENANT, CLIENT, SECRET, LOCATION ("westeurope"), GROUP, NETWORK, SUBNET,
SECURITY_GROUP, IMAGES; sizes are those of `catalogue.SIZES`. `azure.environment()` is what EnvironmentCredential reads.

Operations have the names of Azure's API descriptions: VirtualMachines_CreateOrUpdate, _Get, _List, _ListAll, _Update,
_Delete, Operations_Get, NetworkInterfaces_..., PublicIPAddresses_..., Disks_..., Usage_List, ResourceSkus_List,
VirtualMachineImages_..., Tags_UpdateAtScope, Permissions_ListForResourceGroup, RetailPrices, Token, ManagedIdentity.
Faults name zones as "westeurope-1", and the location alone for VMs of no zone; `code` is Azure's word.
Tests ask: all_vms(), vm(name), billed(), bill(), leftovers(), calls, problems; and do: evict(name), guest_shutdown,
kill, hide, lock_scope, authority.revoke(), authority.clients, denied, add_faults, clear_faults, advance.
"""

from __future__ import annotations

from tests.fakes.arm.estate import Hooks
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.settings import Settings

__all__ = ["FakeArm", "Hooks", "Settings"]
