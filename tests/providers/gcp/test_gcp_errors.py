"""What Google's refusals mean to the dispatcher: answers, errors inside operations, and what never got there."""

from __future__ import annotations

from dataclasses import replace
from http.client import RemoteDisconnected
from socket import gaierror
from typing import Any, cast

import pytest
import requests
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.cloud import compute_v1
from google.protobuf.json_format import ParseError
from urllib3.exceptions import NameResolutionError

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider import errors
from cloud_dispatch.provider.errors import ProviderError, Scope
from cloud_dispatch_gcp.errors import Asked, of_answer, of_exception, of_operation
from tests.providers.gcp import scenes

OFFERING = scenes.offering()
LAUNCH = Asked("instances.insert", changes=True, offering=OFFERING)
GET = Asked("instances.get", vm=True)
READ = Asked("zones.list")
DELETE = Asked("instances.delete", changes=True, vm=True)
NO_SUCH_NAME = NameResolutionError("compute.googleapis.com", cast(Any, None), gaierror(-2))
QUOTA = "Quota '{}' exceeded.  Limit: 24.0 in region us-central1."


@pytest.mark.parametrize(
    ("reason", "status", "asked", "kind"),
    [
        ("rateLimitExceeded", 403, LAUNCH, errors.RateLimited),
        ("userRateLimitExceeded", 403, READ, errors.RateLimited),
        ("", 429, READ, errors.RateLimited),
        ("quotaExceeded", 403, LAUNCH, errors.QuotaExceeded),
        ("forbidden", 403, LAUNCH, errors.CredentialsRejected),
        ("accessNotConfigured", 403, READ, errors.CredentialsRejected),
        ("authError", 401, READ, errors.CredentialsRejected),
        ("", 401, READ, errors.CredentialsRejected),
        ("", 403, READ, errors.CredentialsRejected),
        ("notFound", 404, GET, errors.VmNotFound),
        ("notFound", 404, DELETE, errors.VmNotFound),
        ("notFound", 404, LAUNCH, errors.InvalidRequest),
        ("alreadyExists", 409, LAUNCH, errors.InvalidRequest),
        ("invalid", 400, LAUNCH, errors.InvalidRequest),
        ("resourceNotReady", 400, DELETE, errors.Transient),
        ("conditionNotMet", 412, DELETE, errors.Transient),
        ("conditionNotMet", 412, LAUNCH, errors.InvalidRequest),
        ("", 412, LAUNCH, errors.InvalidRequest),
        ("backendError", 503, READ, errors.Transient),
        ("backendError", 503, LAUNCH, errors.InDoubt),
        ("internalError", 500, DELETE, errors.InDoubt),
        ("ZONE_RESOURCE_POOL_EXHAUSTED", 503, LAUNCH, errors.CapacityUnavailable),
        ("zoneResourcePoolExhausted", 503, LAUNCH, errors.CapacityUnavailable),
    ],
)
def test_answers_by_what_to_do(reason: str, status: int, asked: Asked, kind: type[ProviderError]) -> None:
    found = of_answer(reason, "words", status, "", asked)
    assert type(found) is kind
    assert found.scope.covers(OFFERING)


@pytest.mark.parametrize(
    ("metric", "scope"),
    [
        ("N2_CPUS", Scope(family="N2_CPUS", region="us-central1")),
        ("PREEMPTIBLE_CPUS", Scope(market="spot", region="us-central1")),
        ("CPUS_ALL_REGIONS", Scope()),
        ("CPUS_PER_VM_FAMILY", Scope(family="N2_CPUS", region="us-central1")),
        ("N9_CPUS", Scope(family="N2_CPUS", region="us-central1")),
        ("PREEMPTIBLE_N2_CPUS", Scope(family="N2_CPUS", market="spot", region="us-central1")),
        ("SSD_TOTAL_GB", Scope(region="us-central1")),
        ("IN_USE_ADDRESSES", Scope(region="us-central1")),
    ],
)
def test_a_quota_speaks_of_what_its_name_says(metric: str, scope: Scope) -> None:
    found = of_answer("quotaExceeded", QUOTA.format(metric), 403, "", LAUNCH)
    assert (type(found), found.scope) == (errors.QuotaExceeded, scope)


@pytest.mark.parametrize(
    ("metric", "scope"),
    [
        ("CPUS", Scope(family="CPUS", region="us-central1")),
        ("E2_CPUS", Scope(type="e2-medium", region="us-central1")),
        ("CPUS_PER_VM_FAMILY", Scope(type="e2-medium", region="us-central1")),
    ],
)
def test_a_quota_of_one_of_the_families_that_count_together_is_not_of_all(metric: str, scope: Scope) -> None:
    plain = scenes.offering("e2-medium")
    ordinary = replace(plain, type=replace(plain.type, family="CPUS"))
    found = of_answer("quotaExceeded", QUOTA.format(metric), 403, "", Asked("instances.insert", True, ordinary))
    assert (type(found), found.scope) == (errors.QuotaExceeded, scope)


@pytest.mark.parametrize(
    ("metric", "market", "scope"),
    [
        ("NVIDIA_T4_GPUS", Market.ON_DEMAND, Scope(gpu="t4", market="on-demand", region="us-central1")),
        ("PREEMPTIBLE_NVIDIA_T4_GPUS", Market.SPOT, Scope(gpu="t4", market="spot", region="us-central1")),
        ("NVIDIA_T4_GPUS", Market.SPOT, Scope(gpu="t4", region="us-central1")),  # there is none of spot's own
        ("GPUS_ALL_REGIONS", Market.SPOT, Scope(gpu="t4")),
    ],
)
def test_a_quota_of_gpus_speaks_of_all_types_with_them(metric: str, market: Market, scope: Scope) -> None:
    """What has none is not kept from the region."""
    plain = scenes.offering("n1-standard-4", market)
    gpus = replace(plain.type.capacity, gpus=1)
    card = replace(plain, type=replace(plain.type, capacity=gpus, gpu_type="t4"))
    found = of_answer("quotaExceeded", QUOTA.format(metric), 403, "", Asked("instances.insert", True, card))
    assert (type(found), found.scope) == (errors.QuotaExceeded, scope)
    assert found.scope.covers(card)
    assert not found.scope.covers(plain)


def test_capacity_is_of_the_type_the_zone_and_the_market() -> None:
    """A zone that has no spot machines of a type may have them on demand."""
    spot = Asked("instances.insert", changes=True, offering=scenes.offering(market=Market.SPOT))
    found = of_answer("ZONE_RESOURCE_POOL_EXHAUSTED", "", 0, "", spot)
    assert found.scope == Scope(type="n2-standard-2", zone="us-central1-a", market="spot")
    assert not found.scope.covers(OFFERING)


def test_a_pause_that_was_asked_for_is_made() -> None:
    assert of_answer("rateLimitExceeded", "", 403, "7", READ).retry_after_ms == 7_000
    assert of_answer("rateLimitExceeded", "", 403, "soon", READ).retry_after_ms == 1_000


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", errors.CapacityUnavailable),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", errors.CapacityUnavailable),
        ("QUOTA_EXCEEDED", errors.QuotaExceeded),
        ("RATE_LIMIT_EXCEEDED", errors.RateLimited),
        ("INTERNAL_ERROR", errors.Transient),
        ("PERMISSIONS_ERROR", errors.CredentialsRejected),
        ("CONDITION_NOT_MET", errors.InvalidRequest),
    ],
)
def test_an_operation_that_failed_made_nothing(code: str, kind: type[ProviderError]) -> None:
    """It has ended: nobody is in doubt, whatever its error says of servers."""
    status = {"INTERNAL_ERROR": 500, "CONDITION_NOT_MET": 412}.get(code, 400)
    found = of_operation([compute_v1.Errors(code=code, message="words")], status, LAUNCH)
    assert type(found) is kind


def test_an_operation_without_errors_is_none() -> None:
    assert of_operation([], 0, LAUNCH) is None
    assert isinstance(of_operation([], 503, LAUNCH), errors.Transient)


@pytest.mark.parametrize(
    ("raised", "asked", "kind"),
    [
        (auth.RefreshError("no", retryable=False), LAUNCH, errors.CredentialsRejected),
        (auth.RefreshError("later", retryable=True), LAUNCH, errors.Transient),
        (auth.DefaultCredentialsError("none"), READ, errors.CredentialsRejected),
        (auth.TransportError("no way"), READ, errors.Transient),
        (requests.ConnectTimeout(), LAUNCH, errors.Transient),
        (requests.ReadTimeout(), LAUNCH, errors.InDoubt),
        (requests.ReadTimeout(), READ, errors.Transient),
        (requests.ConnectionError("Connection aborted"), LAUNCH, errors.InDoubt),
        (requests.exceptions.SSLError("the answer broke off"), LAUNCH, errors.InDoubt),
        (requests.exceptions.ProxyError(RemoteDisconnected("gone")), LAUNCH, errors.InDoubt),
        (
            requests.ConnectionError(NameResolutionError("compute", cast(Any, None), gaierror(-2))),
            LAUNCH,
            errors.Transient,
        ),
        (ParseError("Failed to load JSON"), LAUNCH, errors.InDoubt),
        (ParseError("Failed to load JSON"), READ, errors.Transient),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), DELETE, errors.InDoubt),
        (FileNotFoundError("key.json"), READ, errors.CredentialsRejected),
        (api.ServiceUnavailable("x"), READ, errors.Transient),
        (api.Forbidden("x", errors=[{"reason": "rateLimitExceeded"}]), READ, errors.RateLimited),
        (api.Conflict("x", errors=[{"reason": "alreadyExists"}]), LAUNCH, errors.InvalidRequest),
    ],
    ids=repr,
)
def test_what_the_libraries_raise(raised: Exception, asked: Asked, kind: type[ProviderError]) -> None:
    assert type(of_exception(raised, asked)) is kind


def test_bugs_are_not_hidden() -> None:
    with pytest.raises(KeyError):
        of_exception(KeyError("x"), READ)
