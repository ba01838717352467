"""The sections of the configuration as typed, frozen values. Owns names, types, defaults and bounds of every setting.

Each key of the file is the field's alias: fields carry their unit in their name (`heartbeat_ms`), keys do not
(`heartbeat = "10s"`). Knows neither files nor drivers: a profile's own keys were validated by its driver's plugin.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Secret,
    Strict,
    model_validator,
)

from cloud_dispatch.config.boot import BootSection
from cloud_dispatch.config.places import BUCKET, BUCKET_FORMS
from cloud_dispatch.config.quantities import Cpus, Dollars, Duration, Percent, Size
from cloud_dispatch.config.secrets import FORMS, is_reference
from cloud_dispatch.domain.masking import masked
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pricing import parse_price, parse_types
from cloud_dispatch.spend.windows import Window

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_HOST_NAME = re.compile(
    r"(?=.{1,253}$)([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
)
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("expected a name of letters, digits, '-' and '_' (at most 63, the first a letter or digit)")
    return text


def _payer(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("expected a name as tasks carry it, on one line")
    return text


def _listen(text: str) -> str:
    match = _HOST_PORT.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        raise ValueError('expected HOST:PORT (e.g. "127.0.0.1:7717")')
    return text


def _web_address(text: str) -> str:
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError('expected a URL (e.g. "https://10.0.0.5:7717") or nothing')
    try:
        good = parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ValueError("expected a port from 1 to 65535 (or none: that of its scheme)")
    if "@" in parts.netloc:
        raise ValueError("expected no user and no password: whoever can read a VM's user data would have them")
    return text.rstrip("/")


def _host_name(text: str) -> str:
    try:
        ip_address(text)
    except ValueError:
        if not _HOST_NAME.fullmatch(text):
            raise ValueError('expected a host name or an address (e.g. "dispatch.example.org")') from None
    return text.lower()


class StoreUrl(Secret[str]):
    """The URL of a database: it may hold a password, so that it prints without. Where it is kept is no secret."""

    def _display(self) -> str:
        told = self.get_secret_value()
        return told if is_reference(told) else masked(told)


def _store_url(url: StoreUrl) -> StoreUrl:
    text = url.get_secret_value()
    if text and not text.startswith(("sqlite:///", "postgresql")) and not is_reference(text):
        raise ValueError(f'expected "sqlite:///PATH", "postgresql://...", {FORMS} or nothing')
    return url


class SecretName(Secret[str]):
    """Where a secret is found. Prints, but not where it is refused: somebody may have written the secret itself."""

    def _display(self) -> str:
        return self.get_secret_value()


def _secret_name(name: SecretName) -> SecretName:
    text = name.get_secret_value()
    if text and not is_reference(text):
        raise ValueError(f"expected where the secret is ({FORMS}) or nothing, and not the secret itself")
    return name


def parse_days(value: object) -> frozenset[int]:
    """Days of the week (0 is Monday) from `"mon-fri"`, `"sat,sun"`, `"daily"`; `"fri-mon"` goes over the weekend."""
    if isinstance(value, frozenset):
        return value
    if not isinstance(value, str) or not value.strip():
        raise ValueError('expected days (e.g. "mon-fri", "sat,sun", "daily")')
    days: set[int] = set()
    for part in value.lower().replace(" ", "").split(","):
        first, _, last = ("mon-sun" if part == "daily" else part).partition("-")
        if first not in DAYS or (last or first) not in DAYS:
            raise ValueError('expected days (e.g. "mon-fri", "sat,sun", "daily")')
        start, end = DAYS.index(first), DAYS.index(last or first)
        days.update((start + step) % 7 for step in range((end - start) % 7 + 1))
    return frozenset(days)


def parse_clock(value: object) -> int:
    """Minutes since midnight from `"08:30"`; `"24:00"` is the day's end."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1440:
        return value
    match = _CLOCK.fullmatch(value.strip()) if isinstance(value, str) else None
    minutes = int(match[1]) * 60 + int(match[2]) if match else 1441
    if minutes > 1440:
        raise ValueError('expected a time of day from "00:00" to "24:00"')
    return minutes


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (OSError, ValueError):  # ZoneInfoNotFoundError is a KeyError
        raise ValueError('expected a time zone (e.g. "UTC", "Europe/Berlin")') from None
    except KeyError:
        raise ValueError('expected a time zone that this machine knows (e.g. "UTC", "Europe/Berlin")') from None
    return name


def _command(value: object) -> object:
    """A command as text is for the shell; as a list it is argv."""
    return ("/bin/sh", "-c", value) if isinstance(value, str) and value.strip() else value


def _positive(milliseconds: int) -> int:
    if milliseconds <= 0:
        raise ValueError("expected a duration longer than zero")
    return milliseconds


def _at_least_one(percent: int) -> int:
    if percent < 100:
        raise ValueError("expected a factor of at least 1")
    return percent


def _own_types(types: str) -> str:
    parse_types(types)
    return types


def _own_price(price: object) -> object:
    if not isinstance(price, str):
        raise ValueError('expected dollars an hour or a discount as text (e.g. "0.096", "-15%")')
    parse_price(price)
    return price


Count = Annotated[int, Strict(), Field(ge=0)]
Number = Annotated[int, Strict(), Field(ge=1)]
Name = Annotated[str, AfterValidator(_name)]
PayerName = Annotated[str, AfterValidator(_payer)]
Span = Annotated[Duration, AfterValidator(_positive)]
Days = Annotated[
    frozenset[int],
    BeforeValidator(parse_days),
    PlainSerializer(lambda days: ",".join(DAYS[day] for day in sorted(days))),
]
Minute = Annotated[int, BeforeValidator(parse_clock), PlainSerializer(lambda at: f"{at // 60:02d}:{at % 60:02d}")]


class Section(BaseModel):
    """A table of the configuration: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Dispatcher(Section):
    """Who this dispatcher is and where it answers."""

    deployment: Annotated[str, AfterValidator(lambda text: text and _name(text))] = ""
    state_dir: Path = Path()
    listen: Annotated[str, AfterValidator(_listen)] = "127.0.0.1:7717"
    advertise: Annotated[str, AfterValidator(_web_address)] = ""
    names: tuple[Annotated[str, AfterValidator(_host_name)], ...] = ()
    tls: bool = True
    certificate: Path | None = None
    key: Path | None = None
    pin: bool = True
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    pause: bool = False

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    @property
    def called(self) -> tuple[str, ...]:
        """What this dispatcher is called by whoever connects, as far as the configuration knows."""
        own = () if self.host in ("0.0.0.0", "::") else (self.host,)
        advertised = urlsplit(self.advertise).hostname or ""
        return (*((advertised,) if advertised else ()), *own, *self.names, "localhost", "127.0.0.1", "::1")


class StoreSettings(Section):
    """Where the statestore is and how long it remembers what has ended. None keeps it for ever."""

    url: Annotated[StoreUrl, AfterValidator(_store_url)] = StoreUrl("")
    password: Annotated[SecretName, AfterValidator(_secret_name)] = SecretName("")
    commit: Literal["auto", "inline", "thread"] = "auto"
    retain_tasks_ms: Duration | None = Field(default=90 * 86_400_000, alias="retain_tasks")
    retain_events_ms: Duration | None = Field(default=90 * 86_400_000, alias="retain_events")
    retain_plans_ms: Duration | None = Field(default=30 * 86_400_000, alias="retain_plans")
    retain_logs_ms: Duration | None = Field(default=30 * 86_400_000, alias="retain_logs")


def _copies_place(text: str) -> str:
    if "://" in text and not BUCKET.fullmatch(text):
        raise ValueError(f"expected a folder, {BUCKET_FORMS}")
    return text


class BackupSettings(Section):
    """Where copies of the state go, and how many of them stay. An empty `into` is a folder in the state folder."""

    into: Annotated[str, AfterValidator(_copies_place)] = ""
    region: Annotated[str, Field(pattern=r"^([a-z0-9-]+)?$")] = ""
    keep: Number = 48
    what: Literal["everything", "keys"] = "everything"
    overdue_ms: Span = Field(default=3 * 3_600_000, alias="overdue")

    @property
    def in_bucket(self) -> bool:
        return "://" in self.into


class Timing(Section):
    """How often things are done and how long is too long. Milliseconds."""

    heartbeat_ms: Span = Field(default=10_000, alias="heartbeat")
    lease_ms: Span = Field(default=300_000, alias="lease")
    poll_ms: Span = Field(default=20_000, alias="poll")
    pass_interval_ms: Span = Field(default=5_000, alias="pass_interval")
    list_interval_ms: Span = Field(default=30_000, alias="list_interval")
    kill_grace_ms: Duration = Field(default=10_000, alias="kill_grace")
    silence_ms: Span = Field(default=600_000, alias="silence")
    doubt_ms: Span = Field(default=60_000, alias="doubt")


class Limits(Section):
    """Bounds on what comes in. Bytes, except numbers of tasks and connections."""

    log_bytes_per_attempt: Size = 16 * 2**20
    output_bytes_per_file: Size = 2**30
    output_bytes_per_attempt: Size = 16 * 2**30
    disk_reserve: Size = 256 * 2**20
    request_bytes: Annotated[Size, Field(ge=65_536)] = 64 * 2**20
    environment_bytes: Size = 128 * 2**10
    tasks_per_submission: Number = 100_000
    task_bytes_per_submission: Annotated[Size, Field(ge=65_536)] = 256 * 2**20
    connections: Annotated[int, Strict(), Field(ge=64)] = 8192
    connections_without_token: Annotated[int, Strict(), Field(ge=16)] = 512


class CapsSection(Section):
    """Upper bounds; None is no bound here."""

    instances: Count | None = None
    vcpus: Count | None = None


def _part(percent: int) -> int:
    if percent > 100:
        raise ValueError("expected a part of the limit, at most 1")
    return percent


Part = Annotated[Percent, AfterValidator(_part)]


class BudgetSection(Section):
    """Spending limits in each window of UTC, micro-dollars; None is no limit here. The thresholds are parts of every
    one of them."""

    total: Dollars | None = None
    month: Dollars | None = None
    day: Dollars | None = None
    hour: Dollars | None = None
    notify_percent: Part = Field(default=80, alias="notify")
    no_launch_percent: Part = Field(default=0, alias="stop_launches")
    drain_percent: Part = Field(default=0, alias="drain")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        stages = (self.notify_percent, self.no_launch_percent, self.drain_percent)
        set_ones = [percent for percent in stages if percent]
        if set_ones != sorted(set_ones):
            raise ValueError("expected notify <= stop_launches <= drain")
        return self

    @property
    def limits(self) -> dict[Window, int]:
        """The limits that are set."""
        limits = {Window.TOTAL: self.total, Window.MONTH: self.month, Window.DAY: self.day, Window.HOUR: self.hour}
        return {window: limit for window, limit in limits.items() if limit is not None}


class TypesSection(Section):
    """Shell patterns on names of instance types; an empty `allow` allows all, `deny` wins."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class DriverSection(Section):
    """What holds for all profiles of a driver together."""

    caps: CapsSection = CapsSection()
    budget: BudgetSection = BudgetSection()


class PayerSection(Section):
    """What holds for all that is done for a project, or for a user."""

    budget: BudgetSection = BudgetSection()


class Profile(Section):
    """An account with a provider. `settings` are the driver's own keys, validated by its plugin's model."""

    driver: Name
    caps: CapsSection = CapsSection()
    budget: BudgetSection = BudgetSection()
    types: TypesSection = TypesSection()
    pricing: dict[Annotated[str, AfterValidator(_own_types)], Annotated[str, BeforeValidator(_own_price)]] = Field(
        default_factory=dict
    )
    guest_enforced: Annotated[bool, Strict()] = False
    settings: Any = None


class ScheduleSection(Section):
    """So many instances at these times; `to` before `from` goes over midnight."""

    days: Days = frozenset(range(7))
    from_minute: Minute = Field(default=0, alias="from")
    to_minute: Minute = Field(default=1440, alias="to")
    timezone: Annotated[str, AfterValidator(_zone)] = "UTC"
    target: Count


class ReserveSection(Section):
    """What a pool keeps for the system on each instance: millicpus, bytes."""

    cpus_milli: Cpus = Field(default=0, alias="cpus")
    memory: Size = 0
    disk: Size = 0


class EndSection(Section):
    """When a compute service ends by itself; 0 is no such limit, but the lifetime is never endless."""

    idle_ms: Duration = Field(default=60_000, alias="idle")
    max_tasks: Count = 0
    empty_claims: Count = 0
    lifetime_ms: Span = Field(default=86_400_000, alias="lifetime")


class HealthSection(Section):
    """A command that agents run at start and at intervals; text is for the shell, a list is argv."""

    command: Annotated[tuple[str, ...], BeforeValidator(_command), Field(min_length=1)]
    interval_ms: Span = Field(default=60_000, alias="interval")
    timeout_ms: Span = Field(default=10_000, alias="timeout")
    failures: Number = 3


class PoolSection(Section):
    """A named template for VMs."""

    profiles: Annotated[tuple[str, ...], Field(min_length=1)]
    types: TypesSection = TypesSection()
    markets: Annotated[tuple[Market, ...], Field(min_length=1)] = (Market.ON_DEMAND,)
    labels: dict[str, str] = Field(default_factory=dict)
    caps: CapsSection = CapsSection()
    budget: BudgetSection = BudgetSection()
    minimum: Count = Field(default=0, alias="min")
    target: Count | None = None
    schedule: tuple[ScheduleSection, ...] = ()
    reserve: ReserveSection = ReserveSection()
    max_tasks_per_instance: Count = 0
    price_factor_percent: Annotated[Percent, AfterValidator(_at_least_one)] = Field(default=150, alias="price_factor")
    target_drain_ms: Span = Field(default=600_000, alias="target_drain")
    min_work_per_boot_percent: Percent = Field(default=100, alias="min_work_per_boot")
    boot_deadline_ms: Span = Field(default=600_000, alias="boot_deadline")
    template: Name = "agent"
    boot: BootSection = BootSection()
    boot_allowance: Dollars = 5_000_000
    futility_allowance: Dollars = 10_000_000
    end: EndSection = EndSection()
    health_checks: tuple[HealthSection, ...] = ()
