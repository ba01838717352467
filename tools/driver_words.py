"""The words of the generated reference for the keys of each driver: what is expected, the default, what it means. As
`reference_words`, and owns texts only."""

from __future__ import annotations

from collections.abc import Mapping

_DURATION, _SIZE, _COUNT = "duration", "size", "whole number"

AZURE: Mapping[str, tuple[str, str, str]] = {
    "subscription": ("id", "required", "The subscription that its VMs are in; another one is another profile."),
    "resource_group": ("name", "required", "The group that its VMs are in. It should hold nothing else."),
    "region": (
        "name of a region",
        "required",
        "Where its VMs are, as in `westeurope`; another region is another profile.",
    ),
    "credential": (
        "`default`, `environment`, `managed`, `workload`, `cli`, `aws`",
        "`default`",
        "Where the SDK looks for credentials: in each place in turn, or in one; `aws`: of a machine in AWS.",
    ),
    "tenant": ("id", "the SDK's choice", "The tenant that tokens are asked of; a machine's identity has one alone."),
    "client": ("id", "the SDK's choice", "Which managed or workload identity of several, or which one trusts AWS."),
    "endpoint_url": ("URL with https", "none", "Asked in place of Azure: a fake of it in tests."),
    "authority_url": ("URL with https", "none", "Asked for tokens in place of Microsoft Entra."),
    "prices_url": ("URL with https", "none", "Asked for prices in place of Azure's Retail Prices."),
    "ca_file": ("file", "none", "Certificates that these are checked with."),
    "sizes": (
        "list of patterns",
        "`Standard_D*s_v5`, `Standard_E*s_v5`, `Standard_F*s_v2`, `Standard_D*ps_v5`, `Standard_NC*_T4_v3`",
        "Which sizes are offered; `types` chooses among these.",
    ),
    "zones": ("list of `1` to `9`", "all", "Where VMs may be; without, a size that has no zones is offered too."),
    "spot": ("true or false", "`true`", "Whether there are offerings on the spot market."),
    "spot_max_percent": ("1 to 1000", "`100`", "The bid for spot machines, in percent of the price on demand."),
    "eviction": ("`delete` or `deallocate`", "`delete`", "What Azure does with a spot VM that it takes back."),
    "price_list": ("true or false", "`true`", "Whether Azure's Retail Prices are asked."),
    "prices": (
        "table of dollars an hour, as text",
        "none",
        "What you pay for a size on demand, with an image that bills too, where that is not the list's price.",
    ),
    "images": (
        "table of images by architecture",
        "Ubuntu 24.04",
        "What VMs boot: `PUBLISHER:OFFER:SKU:VERSION` (or `latest`), or an image's id. Keys: `x86_64`, `arm64`.",
    ),
    "subnet": ("id", "required", "Where VMs are."),
    "security_group": ("id", "the subnet's", "A network security group for each VM's interface."),
    "public_address": ("true or false", "`false`", "Whether a VM has a public address."),
    "accelerated_network": ("true or false", "`false`", "Whether its interface is accelerated; not all sizes can."),
    "admin_user": ("name", "`dispatch`", "The user that Azure wants on each VM. It has no password."),
    "ssh_key": ("public key", "none", "Who may log in as that user; without, nobody."),
    "trusted_launch": ("true or false", "`true`", "Secure boot and a virtual TPM, where size and image can."),
    "ephemeral": (
        "true or false",
        "`false`",
        "Root disks on the machine itself, which cost nothing; sizes that can't are left out.",
    ),
    "disk_type": ("`Standard_LRS`, `StandardSSD_LRS`, `Premium_LRS`", "`StandardSSD_LRS`", "The kind of the disks."),
    "root_size": (_SIZE, "`32GiB`", "The root disk, gone with the VM."),
    "scratch": ("list of sizes", "none", "More disks, at most eight, bare. Tasks get these."),
    "identity": ("id", "none", "A user-assigned identity that VMs have; what it may do, everything on a VM may do."),
    "disk_encryption_set": ("id", "Azure's own keys", "With whose keys disks are encrypted."),
    "tags": ("table of texts", "none", "More tags, at most 40, on all that a launch makes."),
    "reaper": ("true or false", "`false`", "Whether the reaper is installed, which ends VMs past their `ends-at` tag."),
    "reaper_period": ("duration", "`1m`", "How often the reaper looks."),
    "reaper_sign": (
        "id of a resource",
        "none",
        "Whose tag has the reaper's signs of life; without it nobody looks whether it is alive.",
    ),
    "identity_certificates": (
        "PEM, or a file of it",
        "none",
        "Those who issue the metadata service's certificate; without them a launch makes one VM.",
    ),
    "consistency": ("duration", "`1m`", "How long Azure's lists may be late."),
    "boot": ("duration", "`1m30s`", "How long a VM takes from its launch to its registration, as expected."),
}

#: The AWS driver's own keys of a profile: what is expected, the default, and the meaning.
AWS: Mapping[str, tuple[str, str, str]] = {
    "region": ("name of a region", "required", "Where its VMs are; another region is another profile."),
    "named_profile": ("name", "none", "The profile of the SDK's own files that has the credentials."),
    "role_arn": ("ARN", "none", "The role that is assumed with the credentials."),
    "external_id": ("text", "none", "What the role's owner asks for with it."),
    "web_identity_token_file": ("file", "none", "A token that the role is assumed with, without other credentials."),
    "account": ("twelve digits", "none", "The account that this must be: proofs of VMs of others are refused."),
    "endpoint_url": ("URL", "none", "Asked in place of AWS, for every service: a fake of it in tests."),
    "instance_types": (
        "list of patterns",
        "`m7i.*`, `c7i.*`, `r7i.*`, `m7g.*`, `c7g.*`, `r7g.*`, `g6.*`",
        "What EC2 is asked for; `types` chooses among these.",
    ),
    "zones": (
        "list of zones",
        "all of the region's own",
        "Where VMs may be. Local and Wavelength Zones are not offered.",
    ),
    "spot": ("true or false", "`true`", "Whether there are offerings on the spot market."),
    "spot_max_percent": (
        "1 to 1000",
        "`100`",
        "The bid for spot machines, in percent of the price on demand.",
    ),
    "price_list": ("true or false", "`true`", "Whether AWS's price list is asked."),
    "prices": (
        "table of dollars an hour, as text",
        "none",
        "What you pay for a type on demand, where that is not the list's price.",
    ),
    "images": (
        "table of images by architecture",
        "Ubuntu 24.04",
        "What VMs boot: `ami-...`, or `ssm:/...` for the parameter that names one. Keys: `x86_64`, `arm64`.",
    ),
    "subnets": ("list of subnets", "the zone's default one", "Where VMs are; zones without one are not offered."),
    "security_groups": ("list of groups", "the network's default one", "By id."),
    "public_address": ("true or false", "the subnet's choice", "Whether a VM has a public address."),
    "key_name": ("name", "none", "The key pair that may log in."),
    "instance_profile": ("name or ARN", "none", "Gives the VMs a role of their own."),
    "metadata_hops": ("1 to 64", "`1`", "How far the metadata service answers: 2 reaches containers."),
    "root_size": (_SIZE, "`30GiB`", "The root disk: gp3, encrypted, gone with the VM."),
    "scratch": (
        "list of sizes",
        "none",
        "At most eight more disks, bare: what the image leaves of `/dev/sdf` and on. Tasks get these.",
    ),
    "kms_key": ("id, ARN or alias/NAME", "the account's own", "The key that disks are encrypted with."),
    "tags": ("table of texts", "none", "More tags, at most 40, on all that a launch makes."),
    "reaper": ("true or false", "`false`", "Whether the reaper is installed, which ends VMs past their `ends-at` tag."),
    "launches_per_s": (
        "1 to 1000",
        "`2`",
        "Calls of RunInstances a second that EC2 lets the account make; raise it when EC2 has.",
    ),
    "launch_burst": ("1 to 10000", "`5`", "Calls of RunInstances that it takes at once after a rest."),
    "reaper_period": (_DURATION, "`1m`", "How often the reaper looks."),
    "reaper_sign": (
        "name of a parameter",
        "none",
        "Where the reaper leaves its signs of life; without it nobody looks whether it is alive.",
    ),
    "identity_certificate": (
        "PEM, or a file of it",
        "none",
        "The region's RSA-2048 certificate; without it a launch makes one VM.",
    ),
    "consistency": (_DURATION, "`1m`", "How long EC2's lists may be late."),
    "boot": (_DURATION, "`1m`", "How long a VM takes from its launch to its registration, as expected."),
}

#: The Google Cloud driver's own keys of a profile: what is expected, the default, and the meaning.
GCP: Mapping[str, tuple[str, str, str]] = {
    "project": ("id of a project", "required", "Where its VMs are; another project is another profile."),
    "regions": ("list of regions", "required", "In which VMs may be."),
    "zones": ("list of zones", "all of the regions", "Where in them."),
    "credentials_file": ("file", "where Google's libraries look", "A key of a service account, or a federation's."),
    "impersonate": ("e-mail address", "none", "The service account in whose name all is done, with these credentials."),
    "endpoint_url": ("URL", "none", "Asked in place of Google, for every service: a fake of it in tests."),
    "instance_types": (
        "list of patterns",
        "`e2-standard-*`, `n2-standard-*`, `n2-highmem-*`, `n2d-standard-*`, `c2-standard-*`, `g2-standard-*`",
        "Machine types, custom ones by their whole name (`n2-custom-4-16384`); `types` chooses among these.",
    ),
    "accelerators": (
        "table of GPUs by pattern",
        "none",
        'What is attached to types that match: `"n1-*" = "nvidia-tesla-t4:1"`. Types with GPUs of their own need none.',
    ),
    "spot": ("true or false", "`true`", "Whether there are offerings on the spot market."),
    "price_list": ("true or false", "`true`", "Whether the billing catalogue is asked."),
    "prices": (
        "table of dollars an hour, as text",
        "none",
        "What you pay for a type on demand, where that is not the list's price.",
    ),
    "images": (
        "table of images by architecture",
        "Ubuntu 24.04",
        "What VMs boot: `projects/P/global/images/NAME`, or `.../family/NAME`. Keys: `x86_64`, `arm64`.",
    ),
    "name_prefix": ("text that ends in `-`", "none", "How names of VMs and disks begin; change it without any."),
    "network": ("network", "`global/networks/default`", "Where VMs are that no subnet is named for."),
    "subnets": ("table of subnets by region", "none", "By name, or `projects/P/regions/R/subnetworks/NAME`."),
    "network_tags": ("list of tags", "none", "By which firewall rules know the VMs."),
    "public_address": ("true or false", "`true`", "Whether a VM has a public address; without, the network needs NAT."),
    "service_account": ("e-mail address", "none", "Whose the VMs are; without it a launch makes one VM."),
    "scopes": (
        "list of scopes",
        "`https://www.googleapis.com/auth/userinfo.email`",
        "What a VM's tokens may be used for at most.",
    ),
    "shielded": ("true or false", "`true`", "Whether VMs are shielded: virtual TPM, integrity."),
    "secure_boot": (
        "true or false",
        "`true`",
        "Whether they boot signed kernels and drivers alone; GPUs may need false.",
    ),
    "root_size": (_SIZE, "`30GiB`", "The boot disk, gone with the VM."),
    "disk_type": (
        "`pd-standard`, `pd-balanced`, `pd-ssd` or `hyperdisk-balanced`",
        "balanced, as the type takes it",
        "The boot disk's type.",
    ),
    "local_ssds": ("0 to 24", "`0`", "Local SSDs of 375 GiB each, bare; tasks get these."),
    "labels": ("table of texts", "none", "More labels, at most 40, on VMs and their boot disks."),
    "reaper_period": (_DURATION, "`1m`", "How often the reaper looks, where there is one."),
    "reaper_sign": (
        "`gs://BUCKET/OBJECT`",
        "none",
        "Whose metadata have the reaper's signs of life; without it nobody looks whether it is alive.",
    ),
    "consistency": (_DURATION, "`30s`", "How long Google's lists may be late."),
    "boot": (_DURATION, "`1m`", "How long a VM takes from its launch to its registration, as expected."),
    "operation_poll": (_DURATION, "`2s`", "How often launches under way are asked for."),
    "launches_per_s": (
        "1 to 1000",
        "`20`",
        "VMs a second that are asked for, after a rest fifteen times as many at once; Google allows 1,500 a minute.",
    ),
}

#: The local driver's own keys of a profile: what is expected, the default, and the meaning.
LOCAL: Mapping[str, tuple[str, str, str]] = {
    "root": (
        "folder",
        "`STATE_DIR/providers/NAME`",
        "Where its VMs live; profiles with the same root share them.",
    ),
    "catalogue": ("table of types", "`local.1`, `local.2`, `local.4`", "The instance types, see below."),
    "zone": ("name", "`local`", "The name of its one zone."),
    "max_vms": (_COUNT, "`32`", "The account's quota of VMs."),
    "boot_delay": (_DURATION, "`0s`", "From power-on to the first boot command."),
    "spot_discount": ("percent, 0 to 99", "none", "How much cheaper spot is; without it there is no spot market."),
    "shutdown_grace": (_DURATION, "`10s`", "From SIGTERM to SIGKILL when a VM is powered off."),
    "faults": (
        "file",
        "`ROOT/faults.json`",
        "Faults to inject, see [there](../explanation/local-provider.md#faults).",
    ),
    "isolate_tasks": (
        "true or false",
        "`false`",
        "Agents and attempts are users of their own, see [there](../explanation/local-provider.md#isolated-tasks).",
    ),
}
LOCAL_TYPE: Mapping[str, tuple[str, str, str]] = {
    "cpus": ("number of cpus", "required", "What is handed out to tasks; the host does not set it aside."),
    "memory": (_SIZE, "required", "The same of memory."),
    "price": ("dollars an hour, as text", "required", "Made up: nobody bills it."),
    "disk": (_SIZE, "`10GiB`", "The same of disk."),
    "boot_delay": (_DURATION, "the profile's", "From power-on to the first boot command."),
    "capacity": (_COUNT, "no limit", "The largest number of VMs of the type at once."),
    "gpus": (_COUNT, "`0`", "Pretended GPUs."),
    "gpu_type": ("text", "none", "Their type."),
    "gpu_memory": (_SIZE, "`0`", "Memory of each."),
}

#: Fields of a submitted task.
