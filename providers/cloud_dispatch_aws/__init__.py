"""The AWS provider: VMs are EC2 instances, rented through boto3.

Owns the plugin object and nothing else: importing it loads no settings model, no driver, no SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloud_dispatch.provider.spi import HardEnd, Host, ProfileContext, Provider

_AT = "http://169.254.169.254/latest"
_HEADER = "X-aws-ec2-metadata-token"
#: A session of the metadata service (version 2, the only one that our VMs answer), then the signed document: one
#: request brings what is signed and the signature.
PROOF = (
    {"url": f"{_AT}/api/token", "method": "PUT", "headers": {f"{_HEADER}-ttl-seconds": "60"}},
    {"url": f"{_AT}/dynamic/instance-identity/rsa2048", "headers": {_HEADER: "{answer}"}},
)


class AwsPlugin:
    """What the entry point `aws` of `cloud_dispatch.providers` names."""

    name = "aws"
    #: Pages of a thousand VMs are parsed here: in the dispatcher's process that would slow its loop.
    host = Host.PROCESS
    #: The best that a profile can have: with `reaper = true`.
    hard_end = HardEnd.EXTENDABLE

    @property
    def settings(self) -> type[Any]:
        from cloud_dispatch_aws.settings import AwsSettings

        return AwsSettings

    def create(self, context: ProfileContext) -> Provider:
        """A driver for one account and region. ImportError without boto3."""
        from cloud_dispatch_aws.driver import AwsProvider

        return AwsProvider(context)

    def template_variables(self) -> Mapping[str, Any]:
        """cloud-init knows the instance's id by itself; a guest that powers off ends its VM, as it was launched so."""
        return {"proof": [dict(step) for step in PROOF]}


plugin = AwsPlugin()
