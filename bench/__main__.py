"""``python -m bench NAME [--json] [--repeat N]``: the command line of the benchmarks. Owns names, options, exit codes.

Exit codes: 0 measured (whether or not a target was met), 1 could not be measured or measured something untrue,
2 wrong usage, 3 measured with ``--strict`` and a target was missed.
"""

import argparse
import importlib
import signal
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from bench.processes import BenchmarkFailed
from bench.report import Metric, json_line, show, show_yardsticks
from bench.yardsticks import take

#: By name the module with ``measure(folder, repeat, quick) -> iterable of Metric``. ``all`` is these.
BENCHMARKS = {
    "boot": "bench.boot",
    "claims": "bench.claims",
    "e2e": "bench.e2e",
    "latency": "bench.latency",
    "launch-aws": "bench.launch_aws",
    "launch-multi": "bench.launch_multi",
    "list": "bench.listings",
    "market": "bench.market",
    "plan": "bench.plan",
    "restore": "bench.restore",
    "simulation": "bench.simulation",
    "spend": "bench.spend",
}
#: Without anything of ours: the peers and their faster settings, and the yardsticks.
EXTRA = {"peers": "bench.peers.alone", "yardsticks": "bench.yardsticks"}
DEFAULT_REPEAT = 3


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; wrong usage exits with 2."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks; see bench/README.md.")
    parser.add_argument("name", choices=(*BENCHMARKS, "all", *EXTRA), help="what to measure")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON a metric")
    parser.add_argument("--repeat", type=int, default=DEFAULT_REPEAT, metavar="N", help="interleaved repetitions")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: to try the harness, not to measure")
    parser.add_argument("--strict", action="store_true", help="exit with 3 when a target is missed")
    parser.add_argument("--folder", type=Path, help="where stores and servers live (must be on a real disk)")
    options = parser.parse_args(arguments)
    if options.repeat < 1:
        parser.error("--repeat must be at least 1")
    return options


def measure(names: Iterable[str], folder: Path, options: argparse.Namespace, console: Console) -> list[Metric]:
    """Run benchmarks one after another, showing each metric as soon as it is there."""
    metrics: list[Metric] = []
    for name in names:
        module = importlib.import_module({**BENCHMARKS, **EXTRA}[name])
        for metric in module.measure(folder, options.repeat, options.quick):
            show(console, [metric])
            metrics.append(metric)
    return metrics


def main(arguments: list[str]) -> int:
    """Run what was asked for; returns the exit code."""
    options = parse(arguments)
    # Tables go to standard error with --json, so that standard output is nothing but lines of JSON.
    console = Console(stderr=options.json, width=None if sys.stderr.isatty() else 140)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended on the way out
    names = tuple(BENCHMARKS) if options.name == "all" else (options.name,)
    with tempfile.TemporaryDirectory(prefix="cloud-dispatch-bench-", dir=options.folder) as folder:
        try:
            show_yardsticks(console, take(Path(folder)))
            metrics = [] if options.name == "yardsticks" else measure(names, Path(folder), options, console)
        except BenchmarkFailed as error:
            print(f"bench {options.name}: {error}", file=sys.stderr)
            return 1
    if options.json:
        for metric in metrics:
            print(json_line(metric))
    missed = any(metric.missed() for metric in metrics)
    return 3 if options.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
