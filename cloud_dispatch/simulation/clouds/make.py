"""Opens accounts. Owns which dialect speaks for which cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cloud_dispatch.reapers.rounds import look
from cloud_dispatch.simulation.clouds import arm, ec2, gce
from cloud_dispatch.simulation.clouds.account import Account, Dialect
from cloud_dispatch.simulation.clouds.faults import Fault
from cloud_dispatch.simulation.clouds.hands import Look
from cloud_dispatch.simulation.clouds.settings import AccountSettings, Cloud
from cloud_dispatch.simulation.ports import SimClock, Streams

_DIALECTS: dict[Cloud, Callable[[], Dialect]] = {Cloud.EC2: ec2.Ec2, Cloud.GCE: gce.Gce, Cloud.ARM: arm.Arm}
_DEFAULTS = {Cloud.EC2: ec2.defaults, Cloud.GCE: gce.defaults, Cloud.ARM: arm.defaults}


def open_account(
    clock: SimClock, streams: Streams, settings: AccountSettings, faults: Iterable[Fault] = (), *, hand: Look = look
) -> Account:
    """An account with its faults, for one run. `hand` is what each independent reaper of EC2 and ARM does."""
    return Account(clock, streams, settings, _DIALECTS[settings.cloud](), faults, hand)


def defaults(cloud: Cloud, name: str = "") -> AccountSettings:
    """An account as this cloud usually is, named after the cloud unless told otherwise; change it by `replace`."""
    return _DEFAULTS[cloud](name or cloud)
