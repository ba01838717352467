"""The configuration: every wrong setting is named with its place, every right one becomes a domain value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from cloud_dispatch import meaning
from cloud_dispatch.config import Config, Embedded, InvalidConfig, TomlFile, find_source, load
from cloud_dispatch.config.quantities import parse_size
from cloud_dispatch.demand.settings import configured_targets
from cloud_dispatch.demand.targets import ScheduleRule
from cloud_dispatch.domain.durations import format_duration, parse_duration
from cloud_dispatch.domain.errors import InvalidInput, NotFound
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps, TypeFilter
from cloud_dispatch.domain.pricing import OwnPrice
from cloud_dispatch.domain.resources import GIB, Resources, format_size
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.spi import HardEnd


class DriverSettings(BaseModel):
    """The own keys of the driver that these tests plug in."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    region: str = "here"
    boot_delay: float = 0.0


class _Plugin:
    name = "local"
    settings = DriverSettings
    bills = False
    keeps_ends = True


def plugins(driver: str) -> Any:
    if driver != "local":
        raise LookupError(driver)
    return _Plugin()


def load_text(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load(TomlFile(path), plugins)


def problems_of(folder: Path, text: str) -> list[str]:
    """The lines of the error, each without the folder."""
    with pytest.raises(InvalidConfig) as caught:
        load_text(folder, text)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def test_embedded_defaults_give_one_pool_of_the_local_provider() -> None:
    """Without any file there is a pool `default` that rents from the profile `local`."""
    config = load(Embedded(), plugins)
    (pool,) = config.pools()
    assert (pool.name, pool.profiles) == ("default", ("local",))
    assert config.profiles["local"].settings == DriverSettings()
    assert config.base_url == "https://127.0.0.1:7717"


def test_file_without_profiles_and_pools_keeps_the_default_ones(tmp_path: Path) -> None:
    """Setting only a timing must not leave a dispatcher without anything to rent from."""
    config = load_text(tmp_path, '[timing]\nheartbeat = "2s"\n')
    assert [pool.name for pool in config.pools()] == ["default"]
    assert config.timing.heartbeat_ms == 2_000


FULL = """
caps = {instances = 20, vcpus = 64}
[dispatcher]
state_dir = "state"
listen = "0.0.0.0:8000"
advertise = "https://10.0.0.5:8000/"
[profiles.local]
driver = "local"
region = "there"
caps = {instances = 5}
types = {deny = ["huge*"]}
[pools.cpu]
profiles = ["local"]
markets = ["spot", "on-demand"]
types = {allow = ["small*"]}
labels = {tier = "b", disk = "ssd"}
min = 1
target = 2
reserve = {cpus = 0.25, memory = "1GiB"}
price_factor = 1.25
end = {idle = "90s", max_tasks = 7, lifetime = "1h30m"}
health_checks = [{command = "test -d /", interval = "30s"}, {command = ["true"]}]
schedule = [{days = "fri-mon", from = "22:00", to = "06:00", timezone = "Europe/Berlin", target = 3}]
"""


def test_pools_become_domain_values(tmp_path: Path) -> None:
    """Every setting of a pool arrives in the planner's words and units."""
    config = load_text(tmp_path, FULL)
    (pool,) = config.pools()
    assert pool.markets == (Market.SPOT, Market.ON_DEMAND)
    assert pool.types == TypeFilter(("small*",), ())
    assert pool.labels == (("disk", "ssd"), ("tier", "b"))
    assert pool.reserve == Resources(250, GIB, 0, 0)
    assert pool.price_factor_percent == 125
    assert (pool.end.idle_ms, pool.end.max_tasks, pool.end.lifetime_ms) == (90_000, 7, 5_400_000)
    assert [check.argv for check in pool.health_checks] == [("/bin/sh", "-c", "test -d /"), ("true",)]
    assert config.caps() == Caps(20, 64)
    assert config.profile_caps() == {"local": Caps(5, None)}
    assert config.profile_types() == {"local": TypeFilter((), ("huge*",))}
    (targets,) = configured_targets(config)
    assert (targets.pool, targets.target) == ("cpu", 2)
    assert targets.schedule == (ScheduleRule(3, frozenset({4, 5, 6, 0}), 1320, 360, "Europe/Berlin"),)


def test_policy_of_a_pool_says_how_its_agents_behave(tmp_path: Path) -> None:
    """The worker's policy joins the pool's end rules with the common timing, without capacities."""
    policy = load_text(tmp_path, FULL).policy("cpu")
    assert (policy.heartbeat_ms, policy.lease_ms, policy.idle_ms, policy.lifetime_ms) == (
        10_000,
        300_000,
        90_000,
        5_400_000,
    )
    assert policy.health_checks[0].argv == ["/bin/sh", "-c", "test -d /"]
    assert (policy.cpus_milli, policy.memory) == (0, 0)


def test_relative_state_folder_is_relative_to_the_file(tmp_path: Path) -> None:
    """The same file means the same folder, wherever the command is typed."""
    config = load_text(tmp_path, FULL)
    assert config.state_dir == tmp_path / "state"
    assert config.store_url == f"sqlite:///{tmp_path}/state/store.sqlite"
    assert (config.base_url, config.advertise_url) == ("https://127.0.0.1:8000", "https://10.0.0.5:8000")


@pytest.mark.parametrize(
    "told",
    [
        "tls = false",
        "tls = false\nadvertise = 'http://localhost:1'",
        "tls = false\nadvertise = 'https://proxy.example'",
        "listen = '0.0.0.0:1'\nadvertise = 'https://10.0.0.5:1'\npin = false",
        "listen = '[::1]:1'\ntls = false",
    ],
)
def test_plain_http_stays_on_this_machine(tmp_path: Path, told: str) -> None:
    """What is allowed: loopback, behind a proxy that speaks TLS, or TLS itself."""
    config = load_text(tmp_path, f"[dispatcher]\n{told}")
    assert config.base_url.startswith("https" if config.dispatcher.tls else "http:")


def test_files_of_a_certificate_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load_text(tmp_path, "[dispatcher]\ncertificate = 'tls/c.pem'\nkey = '/k.pem'")
    assert (config.dispatcher.certificate, config.dispatcher.key) == (tmp_path / "tls" / "c.pem", Path("/k.pem"))
    assert config.certificate_file == tmp_path / "tls" / "c.pem"


def test_description_reads_back_as_the_same_configuration(tmp_path: Path) -> None:
    """What `config show` prints is itself a valid configuration with the same meaning."""
    config = load_text(tmp_path, FULL)
    assert load(Embedded(config.describe(), config.origin), plugins) == config


CASES = [
    (
        "[pools.a]\nprofiles = []\n[profiles.local]\ndriver = 'local'",
        "config.toml:2: pools.a.profiles: expected a list of at least 1, got 0",
    ),
    ("[dispatcher]\nstate_dir = 5", "config.toml:2: dispatcher.state_dir: expected a path, as text, got 5"),
    ("[dispatcher]\ntls = 'maybe'", "config.toml:2: dispatcher.tls: expected true or false, got 'maybe'"),
    ("[timing]\nheartbeet = 1", "config.toml:2: timing.heartbeet: no such key (did you mean 'heartbeat'?)"),
    ("[timing]\n\nlease = 'soon'", "config.toml:3: timing.lease: expected a duration"),
    ("[timing]\nlease = '20s'", "config.toml:2: timing.lease: expected at least 3 heartbeats (30s), got 20s"),
    ("[timing]\npoll = '5m'", "config.toml:2: timing.poll: expected less than the lease"),
    ("[timing]\nsilence = '1s'", "config.toml:2: timing.silence: expected at least the lease"),
    ("[dispatcher]\nlisten = 'here'", "config.toml:2: dispatcher.listen: expected HOST:PORT"),
    ("[dispatcher]\nlisten = 'h:70000'", "config.toml:2: dispatcher.listen: expected HOST:PORT"),
    ("[dispatcher]\nnames = ['https://x']", "config.toml:2: dispatcher.names"),
    ("[dispatcher]\ntls = false\nnames = ['x']", "config.toml:3: dispatcher.names: expected nothing"),
    ("[dispatcher]\nadvertise = 'x'", "config.toml:2: dispatcher.advertise: expected a URL"),
    ("[dispatcher]\nadvertise = 'https://h:99999'", "config.toml:2: dispatcher.advertise: expected a port from 1"),
    ("[dispatcher]\nadvertise = 'https://h:abc'", "config.toml:2: dispatcher.advertise: expected a port from 1"),
    (
        "[dispatcher]\nlisten = '0.0.0.0:1'\ntls = false",
        "config.toml:3: dispatcher.tls: expected `true` where other machines can connect",
    ),
    (
        "[dispatcher]\nadvertise = 'http://10.0.0.5:1'",
        "config.toml:2: dispatcher.advertise: expected https://..., since the dispatcher speaks TLS",
    ),
    (
        "[dispatcher]\ntls = false\nadvertise = 'http://10.0.0.5:1'",
        "config.toml:3: dispatcher.advertise: expected https://..., since tokens must not cross a network",
    ),
    ("[dispatcher]\ncertificate = 'x'", "config.toml:1: dispatcher.key: expected `certificate` and `key` together"),
    (
        "[dispatcher]\ntls = false\ncertificate = 'x'\nkey = 'y'",
        "config.toml:3: dispatcher.certificate: expected nothing where `tls` is false",
    ),
    ("[dispatcher]\ndeployment = 'a b'", "config.toml:2: dispatcher.deployment: expected a name"),
    ("[store]\nurl = 'mysql://x'", 'config.toml:2: store.url: expected "sqlite:///PATH"'),
    ("[stor]\nurl = ''", "config.toml:1: stor: no such key (did you mean 'store'?)"),
    ("origin = 'x'", "config.toml:1: origin: no such key"),
    ("caps = 3", "config.toml:1: caps: expected a table"),
    ("[caps]\ninstances = -1", "config.toml:2: caps.instances: expected at least 0, got -1"),
    ("[caps]\ninstances = true", "config.toml:2: caps.instances: expected a whole number, got True"),
    ("[profiles.a]\nregion = 1", "config.toml:1: profiles.a.driver: is missing"),
    ("[profiles.a]\ndriver = 'azur'", "config.toml:2: profiles.a.driver: no such driver 'azur'"),
    (
        "[profiles.a]\ndriver = 'local'\nregoin = 'x'",
        "config.toml:3: profiles.a.regoin: no such key (did you mean 'region'?)",
    ),
    ("[pools.p]\nmin = 1", "config.toml:1: pools.p.profiles: is missing"),
    ("[pools.p]\nprofiles = []", "config.toml:2: pools.p.profiles"),
    (
        "[profiles.local]\ndriver = 'local'\n[pools.p]\nprofiles = ['locl']",
        "config.toml:4: pools.p.profiles[0]: no such profile 'locl' (did you mean 'local'?)",
    ),
    ("[pools.p]\nprofiles = ['x']\nmarkets = ['spott']", "config.toml:3: pools.p.markets[0]: expected 'on-demand' or"),
    ("[pools.p]\nprofiles = ['x']\nprice_factor = 0.5", "config.toml:3: pools.p.price_factor: expected a factor of"),
    ("[pools.p]\nprofiles = ['x']\nend = {lifetime = 0}", "config.toml:3: pools.p.end.lifetime: expected a duration"),
    (
        "[profiles.x]\ndriver='local'\n[pools.p]\nprofiles = ['x']\ncaps.instances = 1\nmin = 2",
        "config.toml:6: pools.p.min: expected at most caps.instances (1), got 2",
    ),
    (
        "[[pools.p.schedule]]\ntarget = 1\n[[pools.p.schedule]]\ntarget = 1\ndays = 'caturday'",
        "config.toml:5: pools.p.schedule[1].days: expected days",
    ),
    (
        "[[pools.p.schedule]]\ntarget = 1\ntimezone = 'Mars/Base'",
        "config.toml:3: pools.p.schedule[0].timezone: expected a time zone",
    ),
    ("[pools.p.boot]\nnvidea = true", "config.toml:2: pools.p.boot.nvidea: no such key (did you mean 'nvidia'?)"),
    (
        "[pools.p.boot]\nscripts = ['gone.sh']",
        "config.toml:2: pools.p.boot.scripts[0]: expected a file that can be read: No such file",
    ),
    (
        "[pools.p.boot]\ncloud_config = ['config.toml']",
        "config.toml:2: pools.p.boot.cloud_config[0]: expected a file that begins with #cloud-config",
    ),
    (
        "[[pools.p.boot.mounts]]\nkind = 'nfs'\npath = '/d'\nsource = 'h'",
        "config.toml:1: pools.p.boot.mounts[0]: expected source = HOST:/PATH for nfs",
    ),
    (
        "[[pools.p.boot.mounts]]\nkind = 'tmpfs'\npath = '/a b'",
        "config.toml:3: pools.p.boot.mounts[0].path: expected printable ASCII without spaces",
    ),
    (
        "[[pools.p.boot.mounts]]\nkind = 'tmpfs'\npath = '/a/../..'",
        "config.toml:3: pools.p.boot.mounts[0].path: expected",
    ),
    ("[pools.p.boot]\nproxy.http = 'http://u:p@h:1'", "config.toml:2: pools.p.boot.proxy.http: expected no password"),
    (
        "[pools.p.boot]\nnvidia_packages = ['a; rm']",
        "config.toml:2: pools.p.boot.nvidia_packages[0]: expected the name",
    ),
    ("[pools.'a b']\nprofiles = ['x']", "config.toml:1: pools.a b"),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[expected.split(": ")[1] for _, expected in CASES])
def test_wrong_setting_is_named_with_file_line_and_key(tmp_path: Path, text: str, expected: str) -> None:
    """An error says where, and what was expected."""
    assert any(line.startswith(expected) for line in problems_of(tmp_path, text))


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    """Nobody has to start the check once a mistake."""
    lines = problems_of(
        tmp_path, "[timing]\nleese = 1\npoll = 'x'\n[profiles.a]\ndriver = 'nope'\n[pools.b]\nmin = -1\n"
    )
    assert [line.split(": ")[1] for line in lines] == [
        "timing.poll",
        "timing.leese",
        "pools.b.profiles",
        "pools.b.min",
        "profiles.a.driver",
    ]


def test_broken_toml_is_named_with_its_line(tmp_path: Path) -> None:
    """A syntax error has its line too."""
    with pytest.raises(InvalidInput, match=r"config\.toml:2: expected TOML"):
        load_text(tmp_path, "[timing]\nlease = = 3\n")


def test_file_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    """Bytes that are no text are an input error, not a crash."""
    path = tmp_path / "config.toml"
    path.write_bytes(b"[timing]\n# \xff\n")
    with pytest.raises(InvalidInput, match=r"config\.toml:2: expected UTF-8"):
        load(TomlFile(path), plugins)


def test_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A file asked for by name is never silently replaced by defaults."""
    with pytest.raises(NotFound, match=r"no configuration file .*absent\.toml"):
        load(TomlFile(tmp_path / "absent.toml"), plugins)


def test_file_named_on_the_command_line_beats_the_environment(tmp_path: Path) -> None:
    """The nearer word wins: option, then variable."""
    environment = {"CLOUD_DISPATCH_CONFIG": str(tmp_path / "b.toml")}
    assert find_source(tmp_path / "a.toml", environment) == TomlFile(tmp_path / "a.toml")
    assert find_source(None, environment) == TomlFile(tmp_path / "b.toml")


def test_configuration_never_changes(tmp_path: Path) -> None:
    """A loaded configuration is frozen, whoever holds it."""
    config = load_text(tmp_path, FULL)
    with pytest.raises(ValueError, match="frozen"):
        config.timing.lease_ms = 1


@given(st.integers(min_value=0, max_value=10**12))
def test_durations_and_sizes_read_back_exactly(number: int) -> None:
    """The text of a quantity loses nothing."""
    assert parse_duration(format_duration(number)) == number
    assert parse_size(format_size(number)) == number


@pytest.mark.parametrize("value", ["", "ten", "-1s", "1w", "1.0005s", True, None, "9" * 40])
def test_what_is_no_duration_is_refused(value: object) -> None:
    """Nonsense never becomes a number."""
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(value)


class _Billing(_Plugin):
    name = "aws"
    bills = True


def load_billing(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load(TomlFile(path), lambda driver: _Billing() if driver == "aws" else plugins(driver))


BILLED = '[pools.a]\nprofiles = ["eu"]\n[profiles.eu]\ndriver = "aws"\n'


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ("", ["caps", "budget"]),
        ("caps.instances = 5\n", ["budget"]),
        ('budget.day = "10"\n', ["caps"]),
        ("[drivers.aws.caps]\nvcpus = 8\n", ["budget"]),
        ('caps.vcpus = 8\n[budget]\nmonth = "10"\n', ["budget"]),  # a limit of everything is none of its own
        ("caps.instances = 5\nbudget.notify = 0.5\n", ["budget"]),
    ],
)
def test_a_profile_that_can_bill_does_not_start_without_a_cap_and_a_limit(
    tmp_path: Path, more: str, missing: list[str]
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load_billing(tmp_path, BILLED + more)
    assert [line.partition(": ")[0] for line in str(caught.value).splitlines()] != []
    assert [word for word in ("caps", "budget") if f"profiles.eu.{word}" in str(caught.value)] == missing


@pytest.mark.parametrize(
    "more",
    [
        'caps.instances = 5\nbudget.total = "100"\n',
        '[drivers.aws]\ncaps.vcpus = 8\nbudget.hour = "0.50"\n',
        'caps.instances = 0\n[drivers.aws.budget]\nday = "$10"\n',
    ],
)
def test_one_that_carries_both_itself_or_with_its_driver_starts(tmp_path: Path, more: str) -> None:
    assert load_billing(tmp_path, BILLED + more).budgets()


def test_limits_become_budgets_of_whom_they_are_set_for(tmp_path: Path) -> None:
    config = load_billing(
        tmp_path,
        'budget = {total = "$1000", notify = 0.7, stop_launches = 0.9, drain = 0.95}\n' + BILLED
        + 'caps.instances = 5\nbudget.day = "12.5"\n[drivers.aws]\ncaps.vcpus = 64\nbudget.month = 300\n'
        + '[pools.a.budget]\nhour = "0.000001"\n[projects."Genomes & co".budget]\nmonth = 20\n'
        + "[users.ann]\nbudget.day = 2\n",
    )  # fmt: skip
    assert [(budget.name, budget.limit) for budget in config.budgets()] == [
        ("total", 1_000_000_000),
        ("driver aws month", 300_000_000),
        ("profile eu day", 12_500_000),
        ("pool a hour", 1),
        ("project Genomes & co month", 20_000_000),
        ("user ann day", 2_000_000),
    ]
    first = config.budgets()[0]
    assert (first.notify_percent, first.no_launch_percent, first.drain_percent) == (70, 90, 95)
    assert config.driver_caps() == {"aws": Caps(vcpus=64)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budget.day = 1.5\n", "budget.day: expected dollars as text"),
        ('budget.day = "-1"\n', "budget.day: expected dollars as text"),
        ('budget.day = "1.0000001"\n', "budget.day: expected dollars as text"),
        (f'budget.day = "1{"0" * 300}"\n', "budget.day: expected at most 1000000000 dollars"),
        (f"budget.day = {10**9 + 1}\n", "budget.day: expected at most 1000000000 dollars"),
        ("budget.notify = 1.01\n", "budget.notify: expected a part of the limit"),
        ("budget = {notify = 0.9, drain = 0.5}\n", "expected notify <= stop_launches <= drain"),
        ('[projects.""]\nbudget.day = 1\n', "expected a name as tasks carry it"),
        ("[users.ann]\ncaps.instances = 1\n", "users.ann.caps"),
        ("[drivers.gcp.caps]\ninstances = 1\n", "drivers.gcp: no profile uses this driver (used: local)"),
    ],
)
def test_a_wrong_limit_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert said in "\n".join(problems_of(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('pricing = {"m7i.*" = -0.15}\n', "expected dollars an hour or a discount as text"),
        ('pricing = {"m7i.*" = "0"}\n', "expected dollars an hour or a discount as text"),
        ('pricing = {"m7i.*" = "+5%"}\n', "expected dollars an hour or a discount as text"),
        (f'pricing = {{"m7i.*" = "1{"0" * 300}"}}\n', "expected at most 1000000 dollars"),
        ('pricing = {"sopt:m7i.*" = "-5%"}\n', "expected a type or a pattern"),
    ],
)
def test_prices_of_ones_own_are_checked(tmp_path: Path, text: str, said: str) -> None:
    """A line that means nothing would leave the list price, or a price of nothing, to count."""
    with pytest.raises(InvalidConfig) as caught:
        load_billing(tmp_path, BILLED + 'caps.instances = 5\nbudget.total = "100"\n' + text)
    assert said in str(caught.value)
    assert "pricing" in str(caught.value)


def test_prices_of_ones_own_are_shown_as_they_are_written(tmp_path: Path) -> None:
    """In every profile, whatever its driver."""
    text = (
        'caps.instances = 5\nbudget.total = "100"\n[profiles.eu.pricing]\n"m7i.*" = "-15%"\n"spot:c7i.large" = "0.03"\n'
    )
    config = load_billing(tmp_path, BILLED + text)
    assert config.own_prices("eu") == (
        OwnPrice("m7i.*", off=1_500), OwnPrice("c7i.large", Rate(30_000_000), market=Market.SPOT),
    )  # fmt: skip
    assert config.describe()["profiles"]["eu"]["pricing"] == {"m7i.*": "-15%", "spot:c7i.large": "0.03"}


class _Unkept(_Billing):
    keeps_ends = False


def load_unkept(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load(TomlFile(path), lambda _: _Unkept())


def test_vms_that_cost_money_and_that_only_their_own_timer_ends_have_to_be_accepted(tmp_path: Path) -> None:
    bounded = BILLED + 'caps.instances = 5\nbudget.total = "100"\n'
    with pytest.raises(InvalidConfig) as caught:
        load_unkept(tmp_path, bounded)
    assert [str(problem.path[-1]) for problem in caught.value.problems] == ["guest_enforced"]
    assert "no hand but their own timer ends them" in str(caught.value)
    accepted = load_unkept(tmp_path, bounded + "guest_enforced = true\n")
    assert accepted.guest_enforced_pools() == ("a",)
    assert load_billing(tmp_path, bounded).guest_enforced_pools() == ()


@pytest.mark.parametrize("accepted", [True, False])
def test_what_only_a_driver_knows_of_its_hand_is_asked_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    """A driver whose settings leave it without a hand that others of its kind have."""
    config = load_billing(
        tmp_path, BILLED + f'caps.instances = 5\nbudget.total = "100"\nguest_enforced = {str(accepted).lower()}\n'
    )
    monkeypatch.setattr(registry, "plugin", lambda driver: _Billing())
    name = ProfileName("eu")
    assert meaning.guest_enforced(config, {name: HardEnd.FIXED}) == frozenset()
    if accepted:
        assert meaning.guest_enforced(config, {name: HardEnd.NONE}) == {name}
    else:
        with pytest.raises(InvalidInput, match="no hand but their own timer"):
            meaning.guest_enforced(config, {name: HardEnd.NONE})
