"""The services around EC2: SSM's parameters, STS, Service Quotas and the price list."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.fakes.aws.auth import Key
from tests.fakes.aws.errors import AwsError
from tests.fakes.ec2 import catalogue
from tests.fakes.ec2.records import moment
from tests.fakes.ec2.session import Session, operation
from tests.fakes.ec2.settings import ACCOUNT

_MADE = datetime(2026, 8, 1, tzinfo=UTC)
_ROLE_S = 3600


# SSM


def _parameter(session: Session, name: str) -> dict[str, Any] | None:
    value = session.region.parameters.get(name)
    if value is None:
        return None
    return {
        "Name": name,
        "Type": "String",
        "Value": value,
        "Version": 1,
        "LastModifiedDate": _MADE,
        "ARN": f"arn:aws:ssm:{session.region.name}::parameter{name}",
        "DataType": "aws:ec2:image",
    }


@operation("ssm", "GetParameter", "Name")
def get_parameter(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """GetParameter."""
    found = _parameter(session, params["Name"])
    if found is None:
        raise AwsError("ParameterNotFound", f"parameter {params['Name']} not found")
    return {"Parameter": found}


@operation("ssm", "GetParameters", "Names")
def get_parameters(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """GetParameters: what is not there is told apart."""
    found = {name: _parameter(session, name) for name in params["Names"]}
    return {
        "Parameters": [parameter for parameter in found.values() if parameter],
        "InvalidParameters": [name for name, parameter in found.items() if not parameter],
    }


@operation("ssm", "PutParameter", "Name", "Value", "Type", "Overwrite")
def put_parameter(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """PutParameter: one that is there already only where that is said."""
    if params["Name"] in session.region.parameters and not params.get("Overwrite"):
        raise AwsError("ParameterAlreadyExists", "The parameter already exists. To overwrite this value, set the "
                       "overwrite option in the request to true.")  # fmt: skip
    session.region.parameters[params["Name"]] = params["Value"]
    return {"Version": 2, "Tier": "Standard"}


# STS


@operation("sts", "GetCallerIdentity")
def identity(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """GetCallerIdentity."""
    key = session.key
    assert key is not None
    return {"Account": key.account, "Arn": key.arn, "UserId": key.user_id}


@operation("sts", "AssumeRole", "RoleArn", "RoleSessionName", "DurationSeconds", "ExternalId")
def assume(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """AssumeRole. A role may want an external id, and belongs to the account in its ARN."""
    roles, role = session.region.settings.roles, params["RoleArn"]
    who = session.key.arn if session.key else ""
    wanted = roles.get(role, "")
    if (roles and role not in roles) or (wanted and params.get("ExternalId") != wanted):
        raise AwsError("AccessDenied", f"User: {who} is not authorized to perform: sts:AssumeRole on resource: {role}")
    return _credentials(session, params)


@operation("sts", "AssumeRoleWithWebIdentity", "RoleArn", "RoleSessionName", "WebIdentityToken", "DurationSeconds")
def assume_by_web(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """AssumeRoleWithWebIdentity. Any token will do but an empty one and "expired"."""
    if params["WebIdentityToken"] == "expired":
        raise AwsError("ExpiredTokenException", "Token expired: current date/time must be before the expiration date")
    roles = session.region.settings.roles
    if roles and params["RoleArn"] not in roles:
        raise AwsError("AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
    return {**_credentials(session, params), "SubjectFromWebIdentityToken": "fake-subject", "Provider": "fake"}


def _credentials(session: Session, params: Mapping[str, Any]) -> dict[str, Any]:
    role = params["RoleArn"]
    parts = role.split(":")
    if len(parts) != 6 or not parts[5].startswith("role/"):
        raise AwsError("ValidationError", f"{role} is invalid")
    account, name = parts[4] or ACCOUNT, parts[5].rsplit("/", 1)[-1]
    number = len(session.cloud.keys)
    arn = f"arn:aws:sts::{account}:assumed-role/{name}/{params['RoleSessionName']}"
    expires_ms = session.now + params.get("DurationSeconds", _ROLE_S) * 1000
    user = f"AROAFAKE{number:08d}:{params['RoleSessionName']}"
    key = Key(f"ASIAFAKE{number:012d}", f"secret-{number}", account, arn, user, f"token-{number}", expires_ms)
    session.cloud.keys[key.id] = key
    return {
        "Credentials": {
            "AccessKeyId": key.id,
            "SecretAccessKey": key.secret,
            "SessionToken": key.token,
            "Expiration": moment(expires_ms),
        },
        "AssumedRoleUser": {"Arn": arn, "AssumedRoleId": user},
    }


# Service Quotas


def _quotas(session: Session) -> list[dict[str, Any]]:
    told = []
    for family, (on_demand, spot) in catalogue.QUOTAS.items():
        names = {on_demand: f"Running On-Demand {family} instances", spot: f"All {family} Spot Instance Requests"}
        for code, name in names.items():
            value = session.region.settings.quotas.get(code, catalogue.AMPLE)
            told.append(
                {
                    "ServiceCode": "ec2",
                    "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
                    "QuotaArn": f"arn:aws:servicequotas:{session.region.name}:{session.region.account}:ec2/{code}",
                    "QuotaCode": code,
                    "QuotaName": name,
                    "Value": float(value),
                    "Unit": "None",
                    "Adjustable": True,
                    "GlobalQuota": False,
                    "QuotaAppliedAtLevel": "ACCOUNT",
                }
            )
    return told


@operation("service-quotas", "ListServiceQuotas", "ServiceCode", "NextToken", "MaxResults")
def list_quotas(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """ListServiceQuotas of EC2: the vCPU quotas alone."""
    if params["ServiceCode"] != "ec2":
        raise AwsError("NoSuchResourceException", f"the service {params['ServiceCode']} has no quotas here")
    told, size = _quotas(session), params.get("MaxResults", 100)
    start = _start(params)
    more = start + size < len(told)
    return {"Quotas": told[start : start + size], "NextToken": _token(start + size) if more else None}


@operation("service-quotas", "GetServiceQuota", "ServiceCode", "QuotaCode")
def get_quota(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """GetServiceQuota."""
    for quota in _quotas(session):
        if (quota["ServiceCode"], quota["QuotaCode"]) == (params["ServiceCode"], params["QuotaCode"]):
            return {"Quota": quota}
    raise AwsError("NoSuchResourceException", "The request failed because the specified quota does not exist.")


def _token(start: int) -> str:
    return base64.urlsafe_b64encode(str(start).encode()).decode()


def _start(params: Mapping[str, Any]) -> int:
    token = params.get("NextToken")
    try:
        return int(base64.urlsafe_b64decode(token)) if token else 0
    except ValueError:
        raise AwsError("InvalidPaginationTokenException", "Invalid NextToken") from None


# the price list


@operation("pricing", "GetProducts", "ServiceCode", "Filters", "FormatVersion", "NextToken", "MaxResults")
def products(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """GetProducts of AmazonEC2: on-demand Linux on shared tenancy, for every region of the fake."""
    if params["ServiceCode"] != "AmazonEC2":
        raise AwsError("NotFoundException", f"Service not found: {params['ServiceCode']}")
    settings = session.region.settings
    known = catalogue.types(settings.types)
    attributes = [
        {**_attributes(known[name], region), **market}
        for region in settings.regions
        for name in sorted(known)
        for market in ({}, *([_IN_A_BLOCK] if "capacity-block" in known[name]["SupportedUsageClasses"] else []))
    ]
    for one in params.get("Filters", []):
        if one["Type"] not in ("TERM_MATCH", "EQUALS"):
            raise session.unmodelled(f"the filter type {one['Type']}")
        wanted = (one["Field"], one["Value"])
        attributes = [found for found in attributes if _has(found, *wanted)]
    start, size = _start(params), params.get("MaxResults", 100)
    page = attributes[start : start + size]
    more = start + size < len(attributes)
    told = [json.dumps(_product(found, known[found["instanceType"]])) for found in page]
    return {"FormatVersion": "aws_v1", "PriceList": told, "NextToken": _token(start + size) if more else None}


#: How the list tells what runs in a block of capacity that was paid for ahead: on demand, at nothing.
_IN_A_BLOCK = {"marketoption": "CapacityBlock", "operation": "RunInstances:CB"}


def _has(attributes: Mapping[str, str], name: str, value: str) -> bool:
    if name == "productFamily":
        return value == "Compute Instance"
    return attributes.get(name, "").lower() == value.lower()


def _attributes(info: dict[str, Any], region: str) -> dict[str, str]:
    return {
        "servicecode": "AmazonEC2",
        "servicename": "Amazon Elastic Compute Cloud",
        "instanceType": info["InstanceType"],
        "vcpu": str(catalogue.vcpus(info)),
        "memory": f"{info['MemoryInfo']['SizeInMiB'] // 1024} GiB",
        "regionCode": region,
        "location": {"us-east-1": "US East (N. Virginia)", "eu-west-1": "EU (Ireland)"}.get(region, region),
        "locationType": "AWS Region",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "licenseModel": "No License required",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "operation": "RunInstances",
        "usagetype": f"BoxUsage:{info['InstanceType']}",
    }


def _product(attributes: dict[str, str], info: dict[str, Any]) -> dict[str, Any]:
    said = f"{attributes['marketoption'][0]}{attributes['instanceType']}{attributes['regionCode']}"
    sku = base64.b32encode(said.encode()).decode()[:16]
    nano = 0 if attributes["marketoption"] == "CapacityBlock" else catalogue.on_demand_nano(info)
    term, rate = f"{sku}.JRTCKXETXF", f"{sku}.JRTCKXETXF.6YS6EN2CT7"
    dimension = {
        "unit": "Hrs",
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"on demand Linux {attributes['instanceType']} instance hour",
        "appliesTo": [],
        "rateCode": rate,
        "pricePerUnit": {"USD": f"{catalogue.dollars(nano)}0000"},
    }
    offer = {
        "sku": sku,
        "offerTermCode": "JRTCKXETXF",
        "effectiveDate": "2026-08-01T00:00:00Z",
        "priceDimensions": {rate: dimension},
        "termAttributes": {},
    }
    return {
        "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": sku},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {term: offer}},
        "version": "20260801000000",
        "publicationDate": "2026-08-01T00:00:00Z",
    }
