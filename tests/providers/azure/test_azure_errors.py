"""Azure's errors by code, not by status, with the scope that they speak of."""

from __future__ import annotations

from socket import gaierror
from typing import Any, cast

import pytest
import requests
from azure.core import exceptions as sdk
from urllib3.exceptions import MaxRetryError, NameResolutionError, NewConnectionError, ReadTimeoutError

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider import errors
from cloud_dispatch.provider.errors import Scope
from cloud_dispatch_azure.errors import (
    EXISTS,
    Asked,
    of_answer,
    of_document,
    of_exception,
    of_failure,
    retry_after_ms,
)
from tests.providers.azure.scenes import FAMILY, REGION, SIZE, ZONE, offering

LAUNCH = Asked("launch", changes=True, offering=offering())
GET, TAG = Asked("get", vm=True), Asked("tag", changes=True, vm=True)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("AllocationFailed", 200, errors.CapacityUnavailable),
        ("ZonalAllocationFailed", 200, errors.CapacityUnavailable),
        ("OverconstrainedAllocationRequest", 200, errors.CapacityUnavailable),
        ("SkuNotAvailable", 409, errors.CapacityUnavailable),
        ("SpotPriceGreaterThanProvidedMaxPrice", 409, errors.CapacityUnavailable),
        ("QuotaExceeded", 409, errors.QuotaExceeded),
        ("OverConstrainedAllocationRequest", 409, errors.CapacityUnavailable),
        ("PublicIPCountLimitReached", 400, errors.QuotaExceeded),
        ("NetworkInterfaceLimitReached", 400, errors.QuotaExceeded),
        ("SubnetIsFull", 400, errors.CapacityUnavailable),
        ("TooManyRequests", 429, errors.RateLimited),
        ("RetryableError", 429, errors.RateLimited),
        ("RetryableErrorDueToAnotherOperation", 429, errors.Transient),
        ("ReferencedResourceNotProvisioned", 429, errors.Transient),
        ("AnotherOperationInProgress", 429, errors.Transient),
        ("AuthorizationFailed", 403, errors.CredentialsRejected),
        ("ExpiredAuthenticationToken", 401, errors.CredentialsRejected),
        ("SubscriptionNotFound", 404, errors.CredentialsRejected),
        ("RequestDisallowedByPolicy", 403, errors.InvalidRequest),
        ("InvalidParameter", 400, errors.InvalidRequest),
        ("OperationNotAllowed", 409, errors.InvalidRequest),
        ("ResourceGroupNotFound", 404, errors.InvalidRequest),
        ("Conflict", 409, errors.Transient),
        ("AnotherOperationInProgress", 409, errors.Transient),
        ("ConflictingConcurrentWriteNotAllowed", 409, errors.Transient),
        ("InternalServerError", 500, errors.InDoubt),
        ("", 503, errors.InDoubt),
        ("", 408, errors.InDoubt),
        ("SomethingNew", 400, errors.InvalidRequest),
    ],
)
def test_a_launch_by_its_code(code: str, status: int, kind: type[errors.ProviderError]) -> None:
    found = of_answer(code, "words", status, {}, LAUNCH)
    assert type(found) is kind
    assert found.scope.covers(offering())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("OSProvisioningTimedOut", errors.Transient),
        ("OSProvisioningInternalError", errors.Transient),
        ("VMStartTimedOut", errors.Transient),
        ("InternalDiskManagementError", errors.Transient),
        ("DiskServiceInternalError", errors.Transient),
        ("InternalExecutionError", errors.Transient),
        ("NetworkingInternalOperationError", errors.Transient),
        ("OperationPreempted", errors.Transient),
        ("canceled", errors.Transient),
        ("SomethingNew", errors.Transient),
        ("AllocationFailed", errors.CapacityUnavailable),
        ("QuotaExceeded", errors.QuotaExceeded),
        ("OperationThrottled", errors.RateLimited),
        ("LinkedAuthorizationFailed", errors.CredentialsRejected),
        ("OSProvisioningClientError", errors.InvalidRequest),
        ("RequestDisallowedByPolicy", errors.InvalidRequest),
        ("InvalidParameter", errors.InvalidRequest),
        ("PlatformImageNotFound", errors.InvalidRequest),
        ("ResourceNotFound", errors.InvalidRequest),
        ("OperationNotAllowed", errors.InvalidRequest),
    ],
)
def test_what_fails_after_it_was_accepted(code: str, kind: type[errors.ProviderError]) -> None:
    """The request was well formed: only what somebody has to mend is wrong, and what nobody knows is tried again."""
    found = of_failure(code, "words", Asked("resume", offering=offering()))
    assert (type(found), found.code) == (kind, code)


def test_a_server_that_fails_has_refused_nothing() -> None:
    """Whatever code comes with it: a launch may have been carried out."""
    assert type(of_answer("BadRequest", "words", 500, {}, LAUNCH)) is errors.InDoubt


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("is not allowed on VM 'x' since the VM is marked for deletion.", errors.Transient),
        ("The VM 'x' is being deleted.", errors.Transient),
        ("is not allowed on VM 'x' since another operation is in progress.", errors.Transient),
        ("An ongoing operation is changing power state of Virtual Machine x", errors.Transient),
        ("is not allowed on Image 'y' since the Image is marked for deletion.", errors.InvalidRequest),
        ("Azure Spot is not supported for the VM size x.", errors.InvalidRequest),
    ],
)
def test_a_vm_that_another_hand_is_at_is_no_request_that_is_wrong(words: str, kind: type[errors.ProviderError]) -> None:
    """It is told under a code that says much else: asked again, there is no such VM, or it can be done."""
    assert type(of_answer("OperationNotAllowed", words, 409, {}, TAG)) is kind


def test_a_question_that_a_server_failed_at_is_transient() -> None:
    assert type(of_answer("InternalServerError", "words", 500, {}, GET)) is errors.Transient
    assert type(of_answer("", "words", 502, {}, TAG)) is errors.Transient


def test_there_is_no_vm_only_where_a_vm_was_asked_for() -> None:
    """A group that is not there is no proof that a VM is gone."""
    assert type(of_answer("ResourceNotFound", "", 404, {}, GET)) is errors.VmNotFound
    assert type(of_answer("ResourceGroupNotFound", "", 404, {}, GET)) is errors.InvalidRequest
    assert type(of_answer("ResourceNotFound", "", 404, {}, Asked("skus"))) is errors.InvalidRequest


@pytest.mark.parametrize(
    ("code", "message", "market", "scope"),
    [
        (
            "OperationNotAllowed", f"... results in exceeding approved {FAMILY} Cores quota.", Market.ON_DEMAND,
            Scope(family=FAMILY, market="on-demand", region=REGION),
        ),
        (
            "OperationNotAllowed", "... exceeding approved Total Regional Cores quota.", Market.ON_DEMAND,
            Scope(market="on-demand", region=REGION),
        ),
        (
            "QuotaExceeded", "... exceeding approved LowPriorityCores quota.", Market.SPOT,
            Scope(market="spot", region=REGION),
        ),
        ("QuotaExceeded", "words", Market.ON_DEMAND, Scope(family=FAMILY, market="on-demand", region=REGION)),
        ("AllocationFailed", "words", Market.SPOT, Scope(type=SIZE, zone=ZONE, market="spot")),
    ],
)  # fmt: skip
def test_a_refusal_says_what_it_speaks_of(code: str, message: str, market: Market, scope: Scope) -> None:
    asked = Asked("launch", changes=True, offering=offering(market=market))
    assert of_answer(code, message, 409, {}, asked).scope == scope


def test_when_to_come_again() -> None:
    found = of_answer("TooManyRequests", "", 429, {"Retry-After": "17"}, GET)
    assert found.retry_after_ms == 17_000
    assert of_answer("TooManyRequests", "", 429, {}, GET).retry_after_ms > 0
    held = of_answer("RetryableErrorDueToAnotherOperation", "", 429, {"Retry-After": "14"}, GET)
    assert held.retry_after_ms == 14_000
    assert retry_after_ms({"x-ms-retry-after-ms": "250", "retry-after": "9"}) == 250
    assert retry_after_ms({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}) == 0


def test_of_several_errors_the_one_that_says_why() -> None:
    inner = {"code": "SkuNotAvailable", "message": "none there"}
    document = {"error": {"code": "DeploymentFailed", "message": "no", "details": [{"code": "x"}, inner]}}
    assert of_document(document) == ("SkuNotAvailable", "none there")
    held = {"code": "RetryableErrorDueToAnotherOperation", "message": "PutSubnetOperation is updating it"}
    document = {"error": {"code": "RetryableError", "message": "A retryable error occurred.", "details": [held]}}
    assert of_document(document) == (held["code"], held["message"])
    assert of_document({"code": "A", "message": "b"}) == ("A", "b")
    assert of_document({"error": "text"}) == ("", "")


NO_SUCH_NAME = NameResolutionError("management.azure.com", cast(Any, None), gaierror(-2))


def unsent(told: Exception) -> sdk.ServiceRequestError:
    """The SDK's own word for most of what goes wrong with a connection, whenever it does."""
    return sdk.ServiceRequestError(told, error=told)


@pytest.mark.parametrize(
    ("error", "asked", "kind"),
    [
        (unsent(NewConnectionError(cast(Any, None), "refused")), LAUNCH, errors.Transient),
        (unsent(requests.ConnectionError(MaxRetryError(cast(Any, None), "u", NO_SUCH_NAME))), LAUNCH, errors.Transient),
        (unsent(requests.exceptions.SSLError("the answer broke off")), LAUNCH, errors.InDoubt),
        (unsent(requests.ConnectionError(ReadTimeoutError(cast(Any, None), "u", "late"))), LAUNCH, errors.InDoubt),
        (unsent(requests.ConnectionError(ReadTimeoutError(cast(Any, None), "u", "late"))), GET, errors.Transient),
        (unsent(requests.ConnectionError(ConnectionResetError())), TAG, errors.InDoubt),
        (sdk.ServiceResponseError("no answer"), LAUNCH, errors.InDoubt),
        (sdk.ServiceResponseError("no answer"), GET, errors.Transient),
        (sdk.IncompleteReadError("cut short"), TAG, errors.InDoubt),
        (sdk.ClientAuthenticationError("AADSTS7000215: wrong"), LAUNCH, errors.CredentialsRejected),
        (FileNotFoundError("token"), LAUNCH, errors.CredentialsRejected),
    ],
)
def test_what_never_was_an_answer(error: Exception, asked: Asked, kind: type[errors.ProviderError]) -> None:
    """Not sent: nothing was done. Sent and not answered: a change may have been made."""
    assert type(of_exception(error, asked)) is kind


def test_a_condition_that_does_not_hold_is_told_by_its_status_too() -> None:
    """Whoever answers a repeat with 412 alone says as much as ARM does with its code."""
    assert of_answer("", "words", 412, {}, LAUNCH).code in EXISTS


def test_a_bug_of_ours_is_not_hidden() -> None:
    with pytest.raises(KeyError):
        of_exception(KeyError("x"), LAUNCH)
