"""The AWS provider: VMs are EC2 instances, rented through boto3.

Owns the plugin object and nothing else: importing it loads no settings model, no driver, no SDK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from cloud_dispatch.provider.spi import HardEnd, Host, ProfileContext, Provider

_AT = "http://169.254.169.254/latest"
_HEADER = "X-aws-ec2-metadata-token"
_WITH_TOKEN = {_HEADER: "{answer}"}
#: A session of the metadata service (version 2, the only one that our VMs answer), then the signed document: one
#: request brings what is signed and the signature.
PROOF = (
    {"url": f"{_AT}/api/token", "method": "PUT", "headers": {f"{_HEADER}-ttl-seconds": "60"}},
    {"url": f"{_AT}/dynamic/instance-identity/rsa2048", "headers": _WITH_TOKEN},
)
#: Of the longest kind: asked again only when it is refused.
_SESSION = {"url": f"{_AT}/api/token", "method": "PUT", "headers": {f"{_HEADER}-ttl-seconds": "21600"}}
#: What a spot VM hears: two minutes before it is taken back, and, earlier or never, that it is likely to be.
#: (EC2 User Guide, "Spot Instance interruption notices" and "EC2 instance rebalance recommendations".)
NOTICES = (
    {
        "steps": (_SESSION, {"url": f"{_AT}/meta-data/spot/instance-action", "headers": _WITH_TOKEN}),
        "field": "time",
        "in_ms": 120_000,
    },
    {
        "steps": (_SESSION, {"url": f"{_AT}/meta-data/events/recommendations/rebalance", "headers": _WITH_TOKEN}),
        "advice": True,
    },
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

    def policy(self, settings: Any, deployment: str, profile: str) -> Mapping[str, Any]:
        """An IAM policy. Needs no SDK."""
        from cloud_dispatch_aws.policy import document

        return document(settings, deployment)

    def notes(self, settings: Any) -> Sequence[str]:
        """What may be wrong with a profile. ImportError without boto3; imports it not."""
        from cloud_dispatch_aws.regions import doubt

        if find_spec("boto3") is None:
            raise ModuleNotFoundError("No module named 'boto3'", name="boto3")
        found = [f"region: {said}"] if (said := doubt(settings.region)) else []
        if settings.reaper and not settings.reaper_sign:
            from cloud_dispatch.provider.hand import UNHEARD

            found.append(f"reaper: {UNHEARD}")
        return tuple(found)

    def check_secret(self, name: str) -> None:
        """ValueError for what names nothing in Secrets Manager."""
        from cloud_dispatch_aws.secret import check

        check(name)

    def secret(self, name: str) -> str:
        """What Secrets Manager keeps under this name. ImportError without the SDK."""
        from cloud_dispatch_aws.secret import value

        return value(name)

    def template_variables(self) -> Mapping[str, Any]:
        """cloud-init knows the instance's id by itself; a guest that powers off ends its VM, as it was launched so."""
        return {"proof": [dict(step) for step in PROOF], "notices": [dict(source) for source in NOTICES]}


plugin = AwsPlugin()
