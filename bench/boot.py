"""``boot``: from the first boot command of a VM to its first task, and what the agent takes of its VM from then on.

A local VM boots through the product's own template, rendered by a real dispatcher with TLS as by default: timer, fetch,
supervisor, agent, registration, first claim. The yardstick is a bare ``python3 -c pass`` of the same interpreter,
started between the boots with a VM's environment, since a shared machine's speed changes within seconds; medians are
compared. The clock runs from the moment at which the VM's machine writes down that it runs its boot commands to the one
that the first task's command prints. The other metrics are amounts, held against their aims as they stand.
"""

import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import product
from bench.footprint import Service, cpu_seconds, find_service, proportional_bytes
from bench.processes import BenchmarkFailed, wait_until
from bench.report import Metric, Repetition, Target
from bench.yardsticks import take
from cloud_dispatch.agentzip import build

BOOTS = 15
#: Bare starts before and after each boot.
BARE_STARTS = 4
BARE = "python3 -c pass"
AIM = "aim"
FIRST_TASK = (Target(BARE, 30.0),)
WITHIN = (Target(AIM, 1.0),)
ZIPAPP_KB = 100.0
MEMORY_MB = 40.0
IDLE_PERCENT = 0.1
TASKS_AT_ONCE = 8
IDLE_SECONDS = 60.0
#: After the last start: what was started has come to rest.
SETTLE_SECONDS = 5.0
GIVE_UP_SECONDS = 60.0
#: The task stays for a second, so that the VM still runs when it is looked at.
TELL = ["sh", "-c", "date +%s%N; sleep 1"]
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
CONFIGURATION = """
[profiles.local]
driver = "local"
isolate_tasks = {isolated}
[profiles.local.catalogue."bench.8"]
cpus = 8
memory = "16GiB"
price = "0.10"
[pools.bench]
profiles = ["local"]
min = {least}
caps = {{ instances = 1 }}
end = {{ idle = "1h", max_tasks = {most_tasks} }}
"""


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """Boots first, then what the agent weighs, holds and uses; where tasks can be users of their own, both ways."""
    modes = {"": False, "_isolated": True} if os.geteuid() == 0 else {"": False}
    for mode, isolated in modes.items():
        boots = BOOTS // 5 if quick else BOOTS
        yield Metric("boot", "first_task" + mode, "ms", False, first_tasks(folder, repeat, boots, isolated), FIRST_TASK)
    yield _amount(folder, "zipapp", "kB", len(build()[0]) / 1e3, ZIPAPP_KB)
    for mode, isolated in modes.items():
        held = memory(_home(folder, "memory", isolated), isolated)
        yield _amount(folder, "memory_8_tasks" + mode, "MB", held / 1e6, MEMORY_MB)
    for mode, isolated in modes.items():
        seconds = IDLE_SECONDS / 10 if quick else IDLE_SECONDS
        percent = idle_percent(_home(folder, "idle", isolated), seconds, isolated)
        yield _amount(folder, "idle_cpu" + mode, "% of a core", percent, IDLE_PERCENT)


def configuration(isolated: bool, least: int = 0, most_tasks: int = 0) -> str:
    """A pool of at most one local instance of eight cpus, which is there all the time if `least` is 1."""
    return CONFIGURATION.format(isolated=product.toml_value(isolated), least=least, most_tasks=most_tasks)


def first_tasks(folder: Path, repeat: int, boots: int, isolated: bool) -> tuple[Repetition, ...]:
    """Milliseconds from the first boot command to the first task, each VM booted for one task."""
    repetitions = []
    home = _home(folder, "boots", isolated)
    with product.dispatcher(home, configuration(isolated, most_tasks=1), tls=True) as started:
        boot(started)  # warm: what was never read from the disk is no part of this
        for number in range(1, repeat + 1):
            yardsticks = take(folder)
            taken, bare = [], bare_starts()
            for _ in range(boots):
                taken.append(boot(started))
                bare += bare_starts()
            ours, yard = statistics.median(taken) * 1e3, statistics.median(bare) * 1e3
            spread = f"{min(taken) * 1e3:.0f} to {max(taken) * 1e3:.0f} ms"
            print(f"repetition {number}: {ours:.0f} ms ({spread}), bare {yard:.1f} ms", file=sys.stderr, flush=True)
            repetitions.append(Repetition(ours, {BARE: yard}, yardsticks))
    product.check_store(started.store, 1 + boots * repeat)
    return tuple(repetitions)


def boot(started: product.Dispatcher) -> float:
    """Seconds of one VM's boot to its first task. Returns when the VM is gone."""
    (task,) = started.submit([{"command": TELL}])
    said, _ = started.raw("GET", f"/v1/tasks/{task}/logs?offset=0&wait_ms={GIVE_UP_SECONDS * 500:.0f}")
    if not said.strip().isdigit():
        raise BenchmarkFailed(f"task {task} did not tell when it began, but {said!r}; see {started.folder}")
    (vm,) = _vms(started)
    began_ns = (vm / "machine.json").stat().st_mtime_ns
    wait_until(lambda: not _vms(started), "end of the VM", timeout_seconds=GIVE_UP_SECONDS)
    return (int(said) - began_ns) / 1e9


def bare_starts() -> list[float]:
    """Seconds of some starts of Python that does nothing."""
    taken = []
    for _ in range(BARE_STARTS):
        begun = time.perf_counter()
        os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-c", "pass"], ENVIRONMENT), 0)
        taken.append(time.perf_counter() - begun)
    return taken


def memory(folder: Path, isolated: bool) -> float:
    """Bytes that agent and supervisor hold while so many tasks run, shared pages divided among their holders."""
    with product.dispatcher(folder, configuration(isolated), tls=True) as started:
        started.submit([{"command": ["sleep", "600"], "cpus": 1}] * TASKS_AT_ONCE)
        wait_for_running(started, TASKS_AT_ONCE)
        time.sleep(SETTLE_SECONDS)
        service = service_of(started)
        held = {name: proportional_bytes(pid) for name, pid in service._asdict().items()}
        _tell(folder, {name: f"{size / 1e6:.1f} MB" for name, size in held.items()})
    return sum(held.values())


def wait_for_running(started: product.Dispatcher, count: int) -> None:
    """Wait until exactly ``count`` tasks run."""
    wait_until(
        lambda: started.counts().get("running") == count,
        f"{count} running tasks",
        timeout_seconds=GIVE_UP_SECONDS,
        watch={started.log: started.process},
    )


def idle_percent(folder: Path, seconds: float, isolated: bool) -> float:
    """Percent of a core that agent and supervisor use, together, while there is nothing to do."""
    with product.dispatcher(folder, configuration(isolated, least=1), tls=True) as started:
        product.wait_for_instances(started, 1)
        time.sleep(SETTLE_SECONDS)
        service = service_of(started)
        before = {name: cpu_seconds(pid) for name, pid in service._asdict().items()}
        begun = time.perf_counter()
        time.sleep(seconds)
        passed = time.perf_counter() - begun
        used = {name: (cpu_seconds(pid) - before[name]) / passed * 100 for name, pid in service._asdict().items()}
        _tell(folder, {name: f"{percent:.3f} % of a core" for name, percent in used.items()})
    return sum(used.values())


def service_of(started: product.Dispatcher) -> Service:
    """The processes of the compute service of the one VM."""
    (vm,) = _vms(started)
    return find_service(vm)


def _vms(started: product.Dispatcher) -> list[Path]:
    return list((started.folder / "state" / "providers" / "local" / "vms").glob("*"))


def _home(folder: Path, what: str, isolated: bool) -> Path:
    """A dispatcher's folder, which the users of tasks must be able to pass through."""
    folder.chmod(0o711)
    return folder / f"{what}-{'isolated' if isolated else 'together'}"


def _amount(folder: Path, metric: str, unit: str, amount: float, aim: float) -> Metric:
    """What is held against a figure of the aim's, and no other program's."""
    return Metric("boot", metric, unit, False, (Repetition(amount, {AIM: aim}, take(folder)),), WITHIN)


def _tell(folder: Path, parts: dict[str, str]) -> None:
    """Who has how much of a sum."""
    print(f"{folder.name}: " + ", ".join(f"{name} {part}" for name, part in parts.items()), file=sys.stderr, flush=True)
