"""AWS's error codes as the SPI's classes, with their scopes."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider import errors
from cloud_dispatch.provider.errors import ProviderError, Scope
from cloud_dispatch_aws.errors import Asked, of_answer, of_exception
from tests.providers.aws.scenes import REGION, ZONE, offering

LAUNCH = Asked("RunInstances", changes=True, offering=offering())
SPOT = Asked("RunInstances", changes=True, offering=offering(market=Market.SPOT))
READ = Asked("DescribeInstances")
CHANGE = Asked("TerminateInstances", changes=True)


def of(code: str, asked: Asked = LAUNCH, status: int = 400, retry_after: str = "") -> ProviderError:
    return of_answer(code, "why", status, retry_after, asked)


@pytest.mark.parametrize(
    ("code", "asked", "kind", "scope"),
    [
        ("InsufficientInstanceCapacity", LAUNCH, errors.CapacityUnavailable, Scope("m5.large", ZONE, "on-demand")),
        ("InsufficientInstanceCapacity", SPOT, errors.CapacityUnavailable, Scope("m5.large", ZONE, "spot")),
        ("SpotMaxPriceTooLow", SPOT, errors.CapacityUnavailable, Scope("m5.large", ZONE, "spot")),
        ("InsufficientReservedInstanceCapacity", LAUNCH, errors.CapacityUnavailable,
         Scope("m5.large", ZONE, "on-demand")),
        ("InsufficientCapacityOnOutpost", SPOT, errors.CapacityUnavailable, Scope("m5.large", ZONE, "spot")),
        ("InsufficientVolumeCapacity", LAUNCH, errors.CapacityUnavailable, Scope(zone=ZONE)),
        ("InsufficientAddressCapacity", LAUNCH, errors.CapacityUnavailable, Scope(region=REGION)),
        ("Unsupported", LAUNCH, errors.CapacityUnavailable, Scope("m5.large", ZONE)),
        ("InsufficientFreeAddressesInSubnet", LAUNCH, errors.CapacityUnavailable, Scope(zone=ZONE)),
        ("VcpuLimitExceeded", LAUNCH, errors.QuotaExceeded,
         Scope(family="standard", market="on-demand", region=REGION)),
        ("MaxSpotInstanceCountExceeded", SPOT, errors.QuotaExceeded,
         Scope(family="standard", market="spot", region=REGION)),
        ("InstanceLimitExceeded", LAUNCH, errors.QuotaExceeded, Scope("m5.large", market="on-demand", region=REGION)),
        ("VolumeLimitExceeded", LAUNCH, errors.QuotaExceeded, Scope(region=REGION)),
        ("NetworkInterfaceLimitExceeded", LAUNCH, errors.QuotaExceeded, Scope(region=REGION)),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", SPOT, errors.QuotaExceeded,
         Scope(market="spot", region=REGION)),
    ],
)  # fmt: skip
def test_a_refusal_speaks_of_what_it_is_about(code: str, asked: Asked, kind: type[ProviderError], scope: Scope) -> None:
    """Capacity is of a type in a zone on a market, disks of a zone, addresses of the region, quotas of a family on a
    market in the region. That there is too little of something is a refusal with a server's status, too."""
    error = of(code, asked, 500 if "Capacity" in code else 400)
    assert (type(error), error.scope, error.code) == (kind, scope, code)
    assert asked.offering is not None
    assert error.scope.covers(asked.offering)


def test_an_account_without_the_role_for_spot_vms_is_told_how_to_make_it() -> None:
    """Types one by one would be tried for nothing, each in each zone: there are hundreds."""
    error = of("AuthFailure.ServiceLinkedRoleCreationNotPermitted", SPOT, 403)
    assert "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com" in error.message
    assert not error.scope.covers(offering())
    assert error.scope.covers(offering("c5.large", Market.SPOT, zone="us-east-1b"))


@pytest.mark.parametrize(
    ("code", "status", "launch", "read"),
    [
        ("InternalError", 500, errors.InDoubt, errors.Transient),
        ("ServiceUnavailable", 503, errors.InDoubt, errors.Transient),
        ("Unavailable", 503, errors.InDoubt, errors.Transient),
        ("Odd", 502, errors.InDoubt, errors.Transient),
        ("IdempotentParameterMismatch", 400, errors.InDoubt, errors.InDoubt),
        ("IdempotentInstanceTerminated", 400, errors.InDoubt, errors.InDoubt),
        ("RequestExpired", 400, errors.Transient, errors.Transient),
        ("IncorrectInstanceState", 400, errors.Transient, errors.Transient),
        ("UnauthorizedOperation", 403, errors.CredentialsRejected, errors.CredentialsRejected),
        ("AuthFailure", 401, errors.CredentialsRejected, errors.CredentialsRejected),
        ("ExpiredToken", 400, errors.CredentialsRejected, errors.CredentialsRejected),
        ("ExpiredTokenException", 400, errors.CredentialsRejected, errors.CredentialsRejected),
        ("InvalidClientTokenId", 403, errors.CredentialsRejected, errors.CredentialsRejected),
        ("AccessDenied", 403, errors.CredentialsRejected, errors.CredentialsRejected),
        ("OptInRequired", 403, errors.CredentialsRejected, errors.CredentialsRejected),
        ("InvalidInstanceID.NotFound", 400, errors.InvalidRequest, errors.VmNotFound),
        ("InvalidInstanceID.Malformed", 400, errors.InvalidRequest, errors.VmNotFound),
        ("InvalidAMIID.NotFound", 400, errors.InvalidRequest, errors.InvalidRequest),
        ("InvalidParameterValue", 400, errors.InvalidRequest, errors.InvalidRequest),
        ("OperationNotPermitted", 400, errors.InvalidRequest, errors.InvalidRequest),
    ],
)
def test_a_launch_that_may_have_been_made_is_in_doubt(
    code: str, status: int, launch: type[ProviderError], read: type[ProviderError]
) -> None:
    """A server's error settles nothing of a launch; elsewhere it is asked again. What is wrong is wrong everywhere."""
    assert type(of(code, LAUNCH, status)) is launch
    assert type(of(code, READ, status)) is read


@pytest.mark.parametrize(
    ("code", "status"),
    [("RequestLimitExceeded", 503), ("Throttling", 400), ("ThrottlingException", 400), ("SlowDown", 503), ("Odd", 429)],
)
@pytest.mark.parametrize(("header", "pause_ms"), [("", 1000), ("7", 7000), ("0", 1000), ("soon", 1000)])
def test_throttling_is_no_servers_error_and_says_how_long(code: str, status: int, header: str, pause_ms: int) -> None:
    """Also of a launch, and with a 503: EC2 has done nothing. Where it does not say how long, a second."""
    error = of(code, LAUNCH, status, header)
    assert (type(error), error.retry_after_ms) == (errors.RateLimited, pause_ms)


def client_error(code: str, headers: dict[str, str] | None = None) -> sdk.ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": "why"},
        "ResponseMetadata": {"HTTPStatusCode": 503, "HTTPHeaders": headers or {}},
    }
    return sdk.ClientError(answer, "RunInstances")


def test_the_header_of_an_answer_is_read() -> None:
    error = of_exception(client_error("RequestLimitExceeded", {"retry-after": "3"}), LAUNCH)
    assert (type(error), error.retry_after_ms) == (errors.RateLimited, 3000)


@pytest.mark.parametrize(
    ("error", "launch", "read"),
    [
        (sdk.EndpointConnectionError(endpoint_url="u"), errors.Transient, errors.Transient),
        (sdk.ConnectTimeoutError(endpoint_url="u"), errors.Transient, errors.Transient),
        (sdk.ReadTimeoutError(endpoint_url="u"), errors.InDoubt, errors.Transient),
        (sdk.ConnectionClosedError(endpoint_url="u"), errors.InDoubt, errors.Transient),
        (sdk.SSLError(endpoint_url="u", error="e"), errors.InDoubt, errors.Transient),
        (sdk.HTTPClientError(error="e"), errors.InDoubt, errors.Transient),
        (ResponseParserError("no XML"), errors.InDoubt, errors.Transient),
        (FileNotFoundError(2, "No such file", "/token"), errors.CredentialsRejected, errors.CredentialsRejected),
        (sdk.NoCredentialsError(), errors.CredentialsRejected, errors.CredentialsRejected),
        (sdk.ProfileNotFound(profile="p"), errors.CredentialsRejected, errors.CredentialsRejected),
        (sdk.ParamValidationError(report="r"), errors.InvalidRequest, errors.InvalidRequest),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_no_answer_leaves_a_change_in_doubt_unless_nothing_was_sent(
    error: Exception, launch: type[ProviderError], read: type[ProviderError]
) -> None:
    """Without a connection nothing was asked; with one that broke nobody knows."""
    assert type(of_exception(error, LAUNCH)) is launch
    assert type(of_exception(error, CHANGE)) is launch
    assert type(of_exception(error, READ)) is read


def made_of(error: Exception, told: Exception) -> Exception:
    error.__context__ = told
    return error


def test_what_the_sdk_was_told_says_whether_anything_was_sent() -> None:
    """A refused certificate comes before the request; a proxy's connection may break behind it."""
    refused = made_of(sdk.SSLError(endpoint_url="u", error="e"), ssl.SSLCertVerificationError("self-signed"))
    broken = made_of(sdk.ProxyConnectionError(proxy_url="p", error="e"), ConnectionResetError())
    assert type(of_exception(refused, LAUNCH)) is errors.Transient
    assert type(of_exception(broken, LAUNCH)) is errors.InDoubt


def test_a_bug_is_not_hidden() -> None:
    with pytest.raises(KeyError):
        of_exception(KeyError("x"), READ)
