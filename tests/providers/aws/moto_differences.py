"""What moto does otherwise than EC2, and all that follows from it: the one list by which a test is skipped on moto, or
runs there in another way. The fake of our own (`tests/fakes/ec2`) has none of these differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from botocore.exceptions import ClientError

from cloud_dispatch.provider.spi import LaunchRequest
from cloud_dispatch_aws.settings import DEFAULT_IMAGES

#: A boto3 client of a service, by its name.
Client = Callable[[str], Any]
TYPE = "m5.large"
_LATEST = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
#: More than any account may have unasked.
_TOO_MANY = 300
#: Dollars an hour: no machine costs less.
_LEAST = 0.0001


@dataclass(frozen=True, slots=True)
class Difference:
    """`still` asks an emulator itself: an entry that moto has mended fails. The rest is what the entry changes."""

    name: str
    moto: str
    still: Callable[[Client], bool]
    skips: tuple[str, ...] = ()  # tests of the suite of drivers
    skips_using: tuple[str, ...] = ()  # all that use a fixture of that name
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the profile
    launch: Callable[[LaunchRequest], LaunchRequest] | None = None  # what is asked for instead


def _launch(client: Client, **more: Any) -> list[str]:
    ec2 = client("ec2")
    image = client("ssm").get_parameter(Name=_LATEST)["Parameter"]["Value"]
    asked = {"ImageId": image, "InstanceType": TYPE, "MinCount": 1, "MaxCount": 1, **more}
    return [vm["InstanceId"] for vm in ec2.run_instances(**asked)["Instances"]]


def _refused(call: Callable[..., Any], *args: Any, **more: Any) -> bool:
    try:
        call(*args, **more)
    except ClientError:
        return True
    return False


def _launches_again(client: Client) -> bool:
    return len({*_launch(client, ClientToken="one"), *_launch(client, ClientToken="one")}) == 2


def _takes_another(client: Client) -> bool:
    _launch(client, ClientToken="two")
    return not _refused(_launch, client, ClientToken="two", MaxCount=2)


def _makes_the_least(client: Client) -> bool:
    return len(_launch(client, MinCount=1, MaxCount=3)) == 1


def _refuses_nothing(client: Client) -> bool:
    spot = {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.000001"}}
    too_many = {"InstanceType": "p4d.24xlarge", "MinCount": _TOO_MANY, "MaxCount": _TOO_MANY}
    return not _refused(_launch, client, InstanceMarketOptions=spot) and not _refused(_launch, client, **too_many)


def _shows_at_once(client: Client) -> bool:
    (vm,) = _launch(client)
    return not _refused(client("ec2").describe_instances, InstanceIds=[vm])


def _costs_next_to_nothing(client: Client) -> bool:
    asked = {"InstanceTypes": [TYPE], "ProductDescriptions": ["Linux/UNIX"]}
    found = client("ec2").describe_spot_price_history(**asked)["SpotPriceHistory"]
    return any(float(one["SpotPrice"]) < _LEAST for one in found)


def _has_no_prices(client: Client) -> bool:
    return _refused(client("pricing").get_products, ServiceCode="AmazonEC2")


def _lacks_the_image(client: Client) -> bool:
    return _refused(client("ssm").get_parameter, Name=DEFAULT_IMAGES["x86_64"].removeprefix("ssm:"))


def _bills_images_as_nothing(client: Client) -> bool:
    image = client("ssm").get_parameter(Name=_LATEST)["Parameter"]["Value"]
    (told,) = client("ec2").describe_images(ImageIds=[image])["Images"]
    return not {"PlatformDetails", "UsageOperation"} & set(told)


def _tags_nothing(client: Client) -> bool:
    return not _refused(client("ec2").create_tags, Resources=["i-0123456789abcdef0"], Tags=[{"Key": "a", "Value": "b"}])


DIFFERENCES = (
    Difference(
        "client token",
        "client tokens are echoed, not honoured",
        _launches_again,
        skips=(
            "test_a_repeated_launch_makes_nothing_new", "test_launches_of_one_batch_at_once_make_it_once",
            "test_a_launch_repeated_later_answers_the_same_vms",
        ),
    ),
    Difference(
        "client token of something else",
        "a client token is taken again with other parameters",
        _takes_another,
        skips=("test_a_repeat_that_asks_for_something_else_makes_nothing_new",),
    ),
    Difference(
        "count",
        "as many instances as the least that is asked for, where EC2 makes as many of the most as it can",
        _makes_the_least,
        launch=lambda request: replace(request, min_slots=max(request.slots, 1)) if request.min_slots == 1 else request,
    ),
    Difference(
        "refusals",
        "nothing is refused for want of capacity or quota or for a price, nor does it misbehave on request",
        _refuses_nothing,
        skips_using=("faults",),
    ),
    Difference(
        "tags of nothing",
        "it tags what it does not have",
        _tags_nothing,
        skips=("test_tags_of_no_vm_are_not_found", "test_a_vm_that_is_not_there_keeps_no_other_from_its_tags"),
    ),
    Difference(
        "consistency", "what was done is seen at once", _shows_at_once, settings={"consistency": "0s"}
    ),
    Difference(
        "spot prices",
        "spot machines of any type cost a hundredth of a thousandth of a dollar",
        _costs_next_to_nothing,
        skips=("test_offerings_have_distinct_keys_and_whole_prices",),
    ),
    Difference(
        "price list", "the service with the price list is not there", _has_no_prices, settings={"price_list": False}
    ),
    Difference(
        "default image",
        "of public parameters those of Amazon Linux alone are there",
        _lacks_the_image,
        settings={"images": {"x86_64": f"ssm:{_LATEST}"}},
    ),
    Difference(
        "billing of images",
        "as what an image is billed is not told, so that no price is known but what the profile says, and no bid",
        _bills_images_as_nothing,
        settings={"prices": {TYPE: "0.096", "m5.xlarge": "0.192", "c5.large": "0.085"}},
    ),
)  # fmt: skip


def skipped(test: str, fixtures: list[str]) -> str:
    """Why a test of the suite has no meaning on moto, "" where it has."""
    for one in DIFFERENCES:
        if test in one.skips or set(one.skips_using) & set(fixtures):
            return one.moto
    return ""


def settings() -> dict[str, Any]:
    """What a profile on moto says otherwise."""
    return {name: value for one in DIFFERENCES for name, value in one.settings.items()}


def launch(request: LaunchRequest) -> LaunchRequest:
    """What has to be asked of moto to get what this asks for."""
    for one in DIFFERENCES:
        request = one.launch(request) if one.launch else request
    return request
