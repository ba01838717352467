"""The fake's way in, and the services around EC2: credentials, permissions, parameters, quotas, prices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from tests.fakes.asking import IMAGE, launch, listed, refusal
from tests.fakes.aws.auth import Key
from tests.fakes.aws.model import service
from tests.fakes.clock import SetClock
from tests.fakes.control import running
from tests.fakes.ec2 import FakeEc2, Settings
from tests.fakes.ec2.operations import OPERATIONS
from tests.fakes.ec2.session import Handled
from tests.fakes.ec2.settings import KEY

OTHER = Key("AKIAOTHEROTHEROTHER0", "other-secret", "210987654321", "arn:aws:iam::210987654321:user/other")
ROLE = "arn:aws:iam::210987654321:role/dispatch"


def _as(credentials: dict[str, str]) -> dict[str, str]:
    return {
        "aws_access_key_id": credentials["AccessKeyId"],
        "aws_secret_access_key": credentials["SecretAccessKey"],
        "aws_session_token": credentials["SessionToken"],
    }


#: Operations that answer only what they are asked for.
ASKED = ("DescribeInstanceAttribute", "DescribeKeyPairs")


# loudness


def test_what_is_not_modelled_fails_the_test(aws: FakeEc2, ec2: Any) -> None:
    """An operation, a parameter of one, an attribute: none of them answers 200, and all are remembered."""
    assert refusal(ec2.describe_vpcs) == "UnmodelledOperation"
    good = {"ImageId": IMAGE, "InstanceType": "m6i.large", "MinCount": 1, "MaxCount": 1}
    assert refusal(ec2.run_instances, **good, Ipv6AddressCount=1) == "UnmodelledOperation"
    assert refusal(ec2.run_instances, **good, Placement={"HostId": "h"}) == "UnmodelledOperation"
    with pytest.raises(AssertionError, match=r"DescribeVpcs.*Ipv6AddressCount.*Placement.HostId"):
        aws.check()
    assert aws.all_instances() == []
    aws.unmodelled.clear()


@contextmanager
def _planted(name: str, answer: dict[str, Any]) -> Iterator[None]:
    """The operation answers this instead."""
    before = OPERATIONS["ec2", name]
    OPERATIONS["ec2", name] = Handled(lambda session, params: answer, before.heeds, before.call)
    try:
        yield
    finally:
        OPERATIONS["ec2", name] = before


def test_an_answer_that_the_model_does_not_have_fails_the_test(aws: FakeEc2, ec2: Any) -> None:
    """A bug planted in the fake is found as one, not parsed away by boto3."""
    with _planted("DescribeInstances", {"Reservations": [{"Instances": [{"Colour": "red"}]}]}):
        assert refusal(ec2.describe_instances) == "InternalFailure"
    with pytest.raises(AssertionError, match="no member Colour"):
        aws.check()
    aws.bugs.clear()


def test_every_describe_operation_answers_within_its_model(aws: FakeEc2, ec2: Any) -> None:
    """With something of everything there; the names of its filters are in the model too."""
    (vm,) = launch(ec2, InstanceMarketOptions={"MarketType": "spot"})
    ec2.create_tags(Resources=[vm["InstanceId"]], Tags=[{"Key": "a", "Value": "b"}])
    aws.hold_address()
    aws.keep_snapshot()
    ec2.create_launch_template(LaunchTemplateName="one", LaunchTemplateData={"ImageId": "ami-1"})
    for of, name in OPERATIONS:
        operation = service("ec2").operation(name) if of == "ec2" else None
        if operation is not None and name.startswith("Describe") and name not in ASKED:
            words = [part.lower() for part in _words(name)]
            answer = getattr(ec2, "_".join(words))()
            assert any(isinstance(value, list) and value for value in answer.values()), name


def _words(name: str) -> list[str]:
    starts = [at for at, letter in enumerate(name) if letter.isupper()] + [len(name)]
    return [name[start:end] for start, end in pairwise(starts)]


# who calls


def test_a_call_needs_a_good_signature(aws: FakeEc2) -> None:
    """An unknown key and a wrong secret are refused in the words of each service."""
    for wrong in ({"aws_secret_access_key": "wrong"}, {"aws_access_key_id": "AKIANOBODY"}, {"aws_session_token": "x"}):
        assert refusal(aws.client(**wrong).describe_instances) == "AuthFailure"
        assert refusal(aws.client("sts", **wrong).get_caller_identity) == "InvalidClientTokenId"
        assert refusal(aws.client("ssm", **wrong).get_parameter, Name="/x") == "UnrecognizedClientException"


def test_accounts_and_regions_see_their_own_only() -> None:
    """The signature says which account and region a call is for."""
    with FakeEc2(Settings(keys=(KEY, OTHER))) as aws:
        launch(aws.client(), 1)
        launch(aws.client(region="eu-west-1"), 2)
        theirs = {"aws_access_key_id": OTHER.id, "aws_secret_access_key": OTHER.secret}
        assert len(listed(aws.client())) == 1
        assert len(listed(aws.client(region="eu-west-1"))) == 2
        assert listed(aws.client(**theirs)) == []
        assert refusal(aws.client(region="ap-south-1").describe_instances) == "AuthFailure"


def test_a_role_acts_in_its_account_until_its_credentials_expire() -> None:
    """With the external id that the role wants."""
    with FakeEc2(Settings(roles={ROLE: "secret-word"}), SetClock()) as aws:
        sts = aws.client("sts")
        asked = {"RoleArn": ROLE, "RoleSessionName": "dispatch", "DurationSeconds": 900}
        assert refusal(sts.assume_role, **asked) == "AccessDenied"
        assert refusal(sts.assume_role, **asked, ExternalId="wrong") == "AccessDenied"
        assert refusal(sts.assume_role, **{**asked, "RoleArn": f"{ROLE}2"}, ExternalId="secret-word") == "AccessDenied"
        credentials = _as(sts.assume_role(**asked, ExternalId="secret-word")["Credentials"])
        who = aws.client("sts", **credentials).get_caller_identity()
        assert who["Arn"] == "arn:aws:sts::210987654321:assumed-role/dispatch/dispatch"
        launch(aws.client(**credentials))
        assert listed(aws.client()) == []
        aws.advance(900_000)
        assert refusal(aws.client(**credentials).describe_instances) == "RequestExpired"
        assert refusal(aws.client("sts", **credentials).get_caller_identity) == "ExpiredToken"


def test_a_web_identity_needs_no_key(aws: FakeEc2) -> None:
    """Its call is not signed."""
    from botocore import UNSIGNED
    from botocore.config import Config

    sts = aws.client("sts", config=Config(signature_version=UNSIGNED))
    asked = {"RoleArn": ROLE, "RoleSessionName": "dispatch"}
    credentials = _as(sts.assume_role_with_web_identity(**asked, WebIdentityToken="a-token")["Credentials"])
    assert aws.client("sts", **credentials).get_caller_identity()["Account"] == "210987654321"
    assert refusal(sts.assume_role_with_web_identity, **asked, WebIdentityToken="expired") == "ExpiredTokenException"


def test_an_action_can_be_denied(aws: FakeEc2, ec2: Any) -> None:
    """A dry run tells, as it tells of what is allowed."""
    asked = {"ImageId": IMAGE, "InstanceType": "m6i.large", "MinCount": 1, "MaxCount": 1, "DryRun": True}
    assert refusal(ec2.run_instances, **asked) == "DryRunOperation"
    aws.denied |= {"ec2:RunInstances", "service-quotas:ListServiceQuotas", "sts:AssumeRole"}
    assert refusal(ec2.run_instances, **asked) == "UnauthorizedOperation"
    quotas = aws.client("service-quotas")
    assert refusal(quotas.list_service_quotas, ServiceCode="ec2") == "AccessDeniedException"
    role = {"RoleArn": ROLE, "RoleSessionName": "dispatch"}
    assert refusal(aws.client("sts").assume_role, **role) == "AccessDenied"


# what the other services tell


def test_ssm_names_images(aws: FakeEc2, ec2: Any) -> None:
    """By path, in SSM and in RunInstances itself."""
    path = "/aws/service/debian/release/12/latest/amd64"
    ssm = aws.client("ssm")
    image = ssm.get_parameter(Name=path)["Parameter"]["Value"]
    assert ssm.get_parameters(Names=[path, "/x"])["InvalidParameters"] == ["/x"]
    assert refusal(ssm.get_parameter, Name="/x") == "ParameterNotFound"
    assert launch(ec2, ImageId=f"resolve:ssm:{path}")[0]["ImageId"] == image
    assert ec2.describe_images(ImageIds=[image])["Images"][0]["Architecture"] == "x86_64"


def test_quotas_are_told_by_code() -> None:
    """The codes that EC2's vCPU quotas have."""
    with FakeEc2(Settings(quotas={"L-1216C47A": 32})) as aws:
        quotas = aws.client("service-quotas")
        told = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-1216C47A")["Quota"]
        assert (told["Value"], told["QuotaName"]) == (
            32, "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        )  # fmt: skip
        pages = quotas.get_paginator("list_service_quotas").paginate(
            ServiceCode="ec2", PaginationConfig={"PageSize": 5}
        )
        assert len([quota for page in pages for quota in page["Quotas"]]) == 16
        asked = {"ServiceCode": "ec2", "QuotaCode": "L-00000000"}
        assert refusal(quotas.get_service_quota, **asked) == "NoSuchResourceException"


def test_the_price_list_tells_what_a_type_costs(aws: FakeEc2) -> None:
    """As JSON in strings, as the real one."""
    fields = {"instanceType": "m6i.large", "regionCode": "us-east-1", "operatingSystem": "Linux"}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]
    answer = aws.client("pricing").get_products(ServiceCode="AmazonEC2", Filters=filters)
    (product,) = (json.loads(text) for text in answer["PriceList"])
    (term,) = product["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert dimension["pricePerUnit"] == {"USD": "0.0960000000"}
    pages = aws.client("pricing").get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2", Filters=filters[1:], PaginationConfig={"PageSize": 10}
    )  # fmt: skip
    told = [json.loads(text)["product"]["attributes"] for page in pages for text in page["PriceList"]]
    anybodys = [one["instanceType"] for one in told if one["marketoption"] == "OnDemand"]
    assert sorted(anybodys) == sorted(aws.settings.types)
    assert [one["instanceType"] for one in told if one["marketoption"] == "CapacityBlock"] == ["p4d.24xlarge"]


def test_key_pairs_that_the_account_has_are_told() -> None:
    """None but those of the settings, where there are any."""
    with FakeEc2(Settings(key_pairs=frozenset({"mine"}))) as aws:
        ec2 = aws.client()
        assert [pair["KeyName"] for pair in ec2.describe_key_pairs()["KeyPairs"]] == ["mine"]
        assert refusal(ec2.describe_key_pairs, KeyNames=["theirs"]) == "InvalidKeyPair.NotFound"


def test_types_and_where_they_are_offered() -> None:
    """All of moto's table can be had; what a zone does not offer is not told of it."""
    with FakeEc2(Settings(types=("*",), unoffered=frozenset({("m6i.large", "us-east-1c")}))) as aws:
        ec2 = aws.client()
        pages = ec2.get_paginator("describe_instance_types").paginate()
        types = {info["InstanceType"]: info for page in pages for info in page["InstanceTypes"]}
        assert len(types) > 1000
        assert types["m6i.large"]["MemoryInfo"]["SizeInMiB"] == 8192
        offered = ec2.describe_instance_type_offerings(
            LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["m6i.large"]}]
        )["InstanceTypeOfferings"]
        assert [offer["Location"] for offer in offered] == ["us-east-1a", "us-east-1b"]
        assert refusal(ec2.describe_instance_types, InstanceTypes=["m1.small2"]) == "InvalidInstanceType"


# as a process of its own


def test_the_fake_runs_as_a_process_with_a_back_door() -> None:
    """Faults, the clock and the inventory are had over HTTP."""
    import boto3

    with running(
        "tests.fakes.ec2", "--set-clock", "--settings", '{"pending_ms": 50, "quotas": {"L-1216C47A": 4}}'
    ) as fake:
        ec2 = boto3.session.Session().client(
            "ec2", region_name="us-east-1", endpoint_url=fake.url, aws_access_key_id=KEY.id,
            aws_secret_access_key=KEY.secret,
        )  # fmt: skip
        (vm,) = launch(ec2, ClientToken="b")
        fake.do("advance", ms=50)
        (known,) = fake.do("inventory")
        assert (known["id"], known["state"], known["token"]) == (vm["InstanceId"], "running", "b")
        fake.do(
            "faults", faults=[{"kind": "error", "operation": "TerminateInstances", "code": "OperationNotPermitted"}]
        )
        assert refusal(ec2.terminate_instances, InstanceIds=[vm["InstanceId"]]) == "OperationNotPermitted"
        with pytest.raises(RuntimeError, match="no fault 'hang'"):
            fake.do("faults", faults=[{"kind": "hang"}])
        assert fake.do("calls") == {"RunInstances": 1, "TerminateInstances": 1}
        assert fake.do("problems") == {"unmodelled": [], "bugs": []}
