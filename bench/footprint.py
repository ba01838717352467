"""The agent's processes on a local VM as /proc shows them: which they are, their memory, their cpu time.

Owns these readings; the agent takes no part in them. Linux only.
"""

from pathlib import Path
from typing import NamedTuple

from bench.processes import BenchmarkFailed
from cloud_dispatch_local.processes import of_vms

PROGRAM = b"agent.pyz"


class Service(NamedTuple):
    """The pids of a VM's compute service."""

    supervisor: int
    agent: int


def find_service(vm: Path) -> Service:
    """Supervisor and agent of the VM in ``vm``: the two that run the agent's program, one the other's child."""
    pids = [process.pid for process in of_vms([vm])[vm]]
    ours = {pid: parent(pid) for pid in pids if PROGRAM in Path(f"/proc/{pid}/cmdline").read_bytes()}
    children = [(above, pid) for pid, above in ours.items() if above in ours]
    if len(ours) != 2 or len(children) != 1:
        raise BenchmarkFailed(f"expected a supervisor and its agent in {vm}, found {ours} (pid: parent)")
    return Service(*children[0])


def parent(pid: int) -> int:
    """The parent of ``pid``."""
    return int(_after_name(Path(f"/proc/{pid}/stat"))[1])


def proportional_bytes(pid: int) -> int:
    """Resident memory, each page divided by how many processes have it."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise BenchmarkFailed(f"/proc/{pid}/smaps_rollup has no line Pss")


def cpu_seconds(pid: int) -> float:
    """Time on a cpu of all threads that live, user and system. From the scheduler, which counts in nanoseconds: the
    clock ticks of /proc/PID/stat are as coarse as what an idle agent uses in ten seconds."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _after_name(stat: Path) -> list[str]:
    return stat.read_text().rpartition(")")[2].split()
