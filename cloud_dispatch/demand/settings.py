"""From the configuration to what the demand sources take. Owns that translation only."""

from __future__ import annotations

from cloud_dispatch.config import Config
from cloud_dispatch.config.schema import PoolSection
from cloud_dispatch.demand.submission import SubmissionLimits
from cloud_dispatch.demand.targets import PoolTargets, ScheduleRule
from cloud_dispatch.domain.ids import PoolName


def configured_targets(config: Config) -> tuple[PoolTargets, ...]:
    """What the configuration says of the numbers of instances wanted, in order of pool."""
    return tuple(_targets(name, section) for name, section in sorted(config.pool_sections.items()))


def submission_limits(config: Config) -> SubmissionLimits:
    """The bounds on one submission."""
    limits = config.limits
    return SubmissionLimits(limits.tasks_per_submission, limits.environment_bytes, limits.task_bytes_per_submission)


def _targets(name: str, section: PoolSection) -> PoolTargets:
    rules = (
        ScheduleRule(rule.target, rule.days, rule.from_minute, rule.to_minute, rule.timezone)
        for rule in section.schedule
    )
    return PoolTargets(PoolName(name), section.target or 0, tuple(rules))
