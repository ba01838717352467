"""Bare boto3: ``python -m bench.bare_ec2 URL REQUESTS``, told what to do by lines on standard input.

The peer of the benchmarks of the AWS driver: what the same calls take of a program that does nothing else. REQUESTS is
a file with the parameters that the driver gave. The client is warm, and its settings are the driver's.

``launch THREADS`` makes all the launches of the file from so many threads, ``list`` lists by the file's filters, page
after page. The answer is how long that took, and how many instances it brought.
"""

import base64
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3

from bench.fake_ec2 import REGION
from cloud_dispatch_aws.calls import config_of

PAGE = 1_000


def client(url: str) -> Any:
    """One that sends a request once, as the driver's does."""
    return boto3.Session(region_name=REGION).client("ec2", endpoint_url=url, config=config_of(1))


def launch(ec2: Any, requests: list[dict[str, Any]], threads: int) -> tuple[float, int]:
    """Seconds from the first request to the last answer, and how many instances were made."""
    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        answers = list(pool.map(lambda one: ec2.run_instances(**one), requests))
        taken = time.perf_counter() - began
    return taken, sum(len(answer["Instances"]) for answer in answers)


def listing(ec2: Any, filters: list[dict[str, Any]]) -> tuple[float, int]:
    """Seconds from the first page to the last, and how many instances are on them."""
    began = time.perf_counter()
    found: list[Any] = []
    more: dict[str, str] = {}
    while True:
        page = ec2.describe_instances(Filters=filters, MaxResults=PAGE, **more)
        found += page["Reservations"]
        if not page.get("NextToken"):
            break
        more = {"NextToken": page["NextToken"]}
    return time.perf_counter() - began, sum(len(one["Instances"]) for one in found)


def main(url: str, requests: Path) -> None:
    """A measurement a line."""
    ec2 = client(url)
    nobody = [{"Name": "tag:nobody", "Values": ["nobody"]}]
    ec2.describe_instances(Filters=nobody, MaxResults=PAGE)  # warm
    sys.stdout.write('{"ready": true}\n')
    sys.stdout.flush()
    for line in sys.stdin:
        word, *arguments = line.split()
        known = json.loads(requests.read_text())
        if word == "launch":
            known = [{**one, "UserData": base64.b64decode(one["UserData"])} for one in known]
            seconds, instances = launch(ec2, known, int(arguments[0]))
        else:
            seconds, instances = listing(ec2, known)
        sys.stdout.write(json.dumps({"seconds": seconds, "instances": instances}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
