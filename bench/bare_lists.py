"""The bare SDKs of three clouds, listing: ``python -m bench.bare_lists CONFIG``, told a profile a line on its input.

The peers of ``list``: what the same pages take of a program that does nothing with them but count. Clients are warm and
send a request once, as the drivers' do. Google's answers are left as the library parses them, without its wrappers; of
Azure both listings are made that the driver needs, at once and in two threads, as the driver does.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.bare_ec2 import client, listing
from bench.three_clouds import AWS, AZURE, GCP
from cloud_dispatch.config import TomlFile, load
from cloud_dispatch.domain.tags import DEPLOYMENT
from cloud_dispatch.provider import registry

PAGE = 500


def aws(settings: Any) -> Callable[[], int]:
    """boto3."""
    ec2 = client(settings.endpoint_url)
    return lambda: listing(ec2, [{"Name": f"tag:{DEPLOYMENT}", "Values": ["bench"]}])[1]


def gcp(settings: Any) -> Callable[[], int]:
    """google-cloud-compute."""
    from google.cloud import compute_v1

    from cloud_dispatch_gcp import credentials, translate

    known, where = credentials.of_settings(settings), {"api_endpoint": settings.endpoint_url}
    instances = compute_v1.InstancesClient(credentials=known, client_options=where)
    asked = {"project": settings.project, "filter": translate.ours("bench"), "max_results": PAGE}

    def run() -> int:
        pages = [type(page).pb(page) for page in instances.aggregated_list(request=asked, retry=None, timeout=45).pages]
        return sum(len(scope.instances) for page in pages for scope in page.items.values())

    return run


def azure(settings: Any) -> Callable[[], int]:
    """azure-mgmt-compute."""
    from azure.mgmt.compute import ComputeManagementClient

    from cloud_dispatch_azure.calls import ARM, credentials

    compute = ComputeManagementClient(
        credentials(settings), settings.subscription, base_url=settings.endpoint_url, retry_total=0,
        credential_scopes=[f"{ARM}/.default"], connection_verify=str(settings.ca_file),
    )  # fmt: skip
    vms, threads = compute.virtual_machines, ThreadPoolExecutor(2)

    def count(found: Callable[[], Iterable[Any]]) -> int:
        return len(list(found()))

    def run() -> int:
        described = threads.submit(count, lambda: vms.list(settings.resource_group))
        states = threads.submit(count, lambda: vms.list_all(status_only="true"))
        return min(described.result(), states.result())

    return run


def main(path: Path) -> None:
    """A listing a line."""
    profiles = load(TomlFile(path), registry.plugin).profiles
    makers = {AWS: aws, GCP: gcp, AZURE: azure}
    ways = {name: make(profiles[name].settings) for name, make in makers.items()}
    for line in sys.stdin:
        began = time.perf_counter()
        found = ways[line.strip()]()
        taken = time.perf_counter() - began
        sys.stdout.write(json.dumps({"seconds": taken, "vms": found}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
