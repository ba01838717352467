"""Tags as labels, in the SPI's words. How they are written is `cloud_dispatch.domain.labels`'."""

from __future__ import annotations

from collections.abc import Mapping

from cloud_dispatch.domain import labels
from cloud_dispatch.provider.errors import InvalidRequest


def of_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The labels that hold `tags`; InvalidRequest for what does not go into labels."""
    try:
        return labels.of_tags(tags)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error
