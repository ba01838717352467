"""What an agent is told of how to behave. Owns how a pool's rules and a machine's size become a wire policy."""

from __future__ import annotations

from dataclasses import replace

from cloud_dispatch.api.services import Terms
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.wire.messages import HealthCheck, Policy


def bare(instance: Instance) -> bool:
    """Whether it is not known yet what its machine has, as of one that was adopted before its profile's offerings were
    known: its policy leaves room for no task."""
    return instance.machine.capacity.cpus_milli == 0


def policy_for(instance: Instance, terms: Terms) -> Policy:
    """The policy of `instance`: timing from the template, ends and health checks from its pool (where that is
    still there), capacities from its machine."""
    capacity = instance.machine.capacity
    policy = replace(
        terms.policy,
        cpus_milli=capacity.cpus_milli,
        memory=capacity.memory,
        disk=capacity.disk,
        gpus=capacity.gpus,
        max_tasks_at_once=instance.machine.max_tasks,
    )
    pool = terms.pools.get(instance.pool)
    if pool is None:
        return policy
    checks = [
        HealthCheck(list(check.argv), check.interval_ms, check.timeout_ms, check.failures)
        for check in pool.health_checks
    ]
    return replace(
        policy,
        idle_ms=pool.end.idle_ms,
        max_tasks=pool.end.max_tasks,
        empty_claims=pool.end.empty_claims,
        lifetime_ms=pool.end.lifetime_ms,
        health_checks=checks,
    )
