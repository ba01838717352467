"""Tags: EC2's limits on them, and which resources a launch may tag."""

from __future__ import annotations

from typing import Any

from tests.fakes.aws.errors import AwsError
from tests.fakes.ec2.records import Tags

MOST, KEY_CHARS, VALUE_CHARS = 50, 128, 256
_AT_LAUNCH = frozenset({"instance", "volume", "network-interface", "spot-instances-request"})


def checked(items: list[dict[str, str]]) -> dict[str, str]:
    """A TagList as a dict, or the error for what EC2 does not take."""
    tags: dict[str, str] = {}
    for item in items:
        key, value = item.get("Key", ""), item.get("Value", "")
        if not key:
            raise AwsError("InvalidParameterValue", "Tag key cannot be empty")
        if key.lower().startswith("aws:"):
            raise AwsError("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
        if len(key) > KEY_CHARS:
            raise AwsError("InvalidParameterValue", f"Tag key exceeds the maximum length of {KEY_CHARS} characters")
        if len(value) > VALUE_CHARS:
            raise AwsError("InvalidParameterValue", f"Tag value exceeds the maximum length of {VALUE_CHARS} characters")
        if key in tags:
            raise AwsError("InvalidParameterValue", f"Duplicate tag key '{key}' specified.")
        tags[key] = value
    if len(tags) > MOST:
        raise AwsError("TagLimitExceeded", f"a resource has at most {MOST} tags")
    return tags


def tags_at_launch(specifications: list[dict[str, Any]], *, spot: bool) -> dict[str, Tags]:
    """Tags by the type of resource."""
    found: dict[str, Tags] = {}
    for specification in specifications:
        kind = specification.get("ResourceType")
        if kind is None:
            raise AwsError("InvalidParameterValue", "Tag specification resource type must have a value")
        if kind not in _AT_LAUNCH or (kind == "spot-instances-request" and not spot):
            raise AwsError(
                "InvalidParameterValue", f"'{kind}' is not a valid taggable resource type for this operation."
            )
        if kind in found:
            raise AwsError("InvalidParameterValue", f"Tag specification for resource type {kind} is given twice")
        tags = checked(specification.get("Tags", []))
        if not tags:
            raise AwsError("InvalidParameterValue", "Tag specification must have at least one tag")
        found[kind] = Tags(tags)
    return found
