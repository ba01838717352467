"""The names of GPUs are the same whatever the cloud, and as the page says."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_dispatch.domain.resources import parse_bytes
from cloud_dispatch_gcp.machines import GPUS
from tests.docs.pages import DOCS
from tests.providers.aws.scenes import settings as aws_settings
from tests.providers.aws.test_aws_catalogue import info
from tests.providers.azure.scenes import settings as azure_settings
from tests.providers.azure.test_azure_translate import sku


def rows() -> list[list[str]]:
    """The page's table: name, memory, and what EC2, Google and Azure call it, "" for what they don't sell."""
    lines = [line for line in (DOCS / "reference" / "gpus.md").read_text().splitlines() if line.startswith("| `")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("row", rows(), ids=lambda row: " ".join(row[:2]))
def test_every_driver_calls_a_gpu_by_the_name_of_the_page(row: list[str]) -> None:
    from cloud_dispatch_aws.catalogue import instance_type
    from cloud_dispatch_azure.catalogue import size

    name, memory, ec2, google, azure = row
    found: list[Any] = []
    if ec2:
        mib = parse_bytes(memory) // 2**20
        cards = {"Gpus": [{"Name": ec2, "Manufacturer": "NVIDIA", "Count": 1, "MemoryInfo": {"SizeInMiB": mib}}]}
        made = instance_type(info("x1.large", GpuInfo=cards), aws_settings())
        found.append(made and (made.gpu_type, made.gpu_memory))
    if google:
        found.append((GPUS[google].name, GPUS[google].gib * 2**30))
    if azure:
        sold = size(sku(azure, capabilities={"GPUs": "1", "vCPUsAvailable": "4"}), azure_settings())
        found.append(sold and (sold.type.gpu_type, sold.type.gpu_memory))
    assert found
    assert set(found) == {(name, parse_bytes(memory))}


def test_every_card_that_googles_driver_knows_is_on_the_page() -> None:
    assert sorted(row[3] for row in rows() if row[3]) == sorted(GPUS)
