"""The rights that Terraform gives the dispatcher, drawn from what the drivers say that they need. Owns the documents
`policies/dispatcher.*` of the modules: of AWS the driver's own one with places for what only Terraform knows, of Azure
the rights of its roles, with and without public addresses, of Google Cloud its role.

    .venv/bin/python -m tools.terraform_policies [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from cloud_dispatch_aws.policy import document
from cloud_dispatch_aws.settings import AwsSettings
from cloud_dispatch_azure import policy as azure_policy
from cloud_dispatch_azure.settings import AzureSettings
from cloud_dispatch_gcp.policy import role
from cloud_dispatch_gcp.settings import GcpSettings

MODULES = Path(__file__).resolve().parent.parent / "terraform" / "modules"
_REGION, _ACCOUNT, _DEPLOYMENT, _ROLE = "us-east-1", "000000000000", "@deployment@", "@role@"
_SIGN = "/sign"


def aws() -> str:
    """For the module of AWS."""
    settings = AwsSettings.model_validate({
        "region": _REGION, "account": _ACCOUNT, "instance_types": ["*"], "instance_profile": _ROLE,
        "subnets": ["subnet-00000000"], "security_groups": ["sg-00000000"],
        "reaper": True, "reaper_sign": _SIGN,
    })  # fmt: skip
    found = document(settings, _DEPLOYMENT)
    for statement in found["Statement"]:
        if statement["Sid"] == "LaunchInstances":
            statement["Condition"]["StringLike"]["ec2:InstanceType"] = "@instance_types@"
        if statement["Sid"] == "LaunchWith":
            statement["Resource"] = "@launch_with@"
        if statement["Sid"] == "HearTheReaper":
            statement["Resource"] = [one.replace(_SIGN, f"/cloud-dispatch-{_DEPLOYMENT}/reaper")
                                     for one in statement["Resource"]]  # fmt: skip
    text = json.dumps(found, indent=2)
    for mark, name in {
        '"@instance_types@"': "instance_types", '"@launch_with@"': "launch_with", _DEPLOYMENT: "deployment",
        _ROLE: "role", "arn:aws:": "arn:${partition}:", f":{_REGION}:": ":${region}:", f":{_ACCOUNT}:": ":${account}:",
    }.items():  # fmt: skip
        text = text.replace(mark, name if "$" in name else f"${{{name}}}")
    return text + "\n"


def azure() -> str:
    """For the module of Azure."""
    group = "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/own/providers"

    def settings(**more: object) -> AzureSettings:
        return AzureSettings.model_validate({
            "subscription": group.split("/")[2], "resource_group": "vms", "region": "westeurope",
            "subnet": f"{group}/Microsoft.Network/virtualNetworks/own/subnets/workers",
            "security_group": f"{group}/Microsoft.Network/networkSecurityGroups/worker",
            "identity": f"{group}/Microsoft.ManagedIdentity/userAssignedIdentities/worker", "reaper": True,
            "reaper_sign": f"{group}/Microsoft.ManagedIdentity/userAssignedIdentities/reaper", **more,
        })  # fmt: skip

    found: dict[str, Any] = {}
    for name, public in (("public addresses", True), ("no public addresses", False)):
        roles = azure_policy.document(settings(public_address=public), "lab", "azure")["roles"]
        found[name] = {one["Name"].partition(": ")[2].lower(): one["Actions"] for one in roles}
    for name, path in (("images", "images/one"), ("images of galleries", "galleries/own/images/one/versions/1.0.0")):
        mine = settings(images={"x86_64": f"{group}/Microsoft.Compute/{path}"})
        found[name] = sorted(set(azure_policy.uses(mine)) - set(azure_policy.uses(settings())))
    return json.dumps(found, indent=2) + "\n"


def gcp() -> str:
    """For the module of Google Cloud: VMs with an account, in subnets, without an address of their own. What Terraform
    names is in the role's binding, not in the role."""
    settings = GcpSettings.model_validate({
        "project": "lab-000000", "regions": ["us-central1"], "subnets": {"us-central1": "workers"},
        "service_account": "worker@lab-000000.iam.gserviceaccount.com", "public_address": False,
    })  # fmt: skip
    return json.dumps({**role(settings, ""), "description": "Launches, watches and ends VMs"}, indent=2) + "\n"


def files() -> dict[Path, str]:
    """Every document with its text."""
    return {
        MODULES / "aws" / "policies" / "dispatcher.json.tftpl": aws(),
        MODULES / "azure" / "policies" / "dispatcher.json": azure(),
        MODULES / "gcp" / "policies" / "dispatcher.json": gcp(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    old = [path for path, text in files().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in old:
        print(f"{'differs' if asked.check else 'written'}: {path.relative_to(MODULES)}")
        if not asked.check:
            path.write_text(files()[path], encoding="utf-8")
    return int(bool(old) and asked.check)


if __name__ == "__main__":
    sys.exit(main())
