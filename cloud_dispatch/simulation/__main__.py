"""`python -m cloud_dispatch.simulation`: run seeds, replay one, shrink a failure. Owns the arguments and the words."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TextIO

import msgspec

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.simulation.crashes import every
from cloud_dispatch.simulation.faults import POINTS
from cloud_dispatch.simulation.generate import THEMES, generate, of_theme
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Scenario, encode, read
from cloud_dispatch.simulation.shrink import shrink

_LAST_LINES = 40


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0 when every promise held, 1 when one was broken, 2 for arguments that make no sense."""
    asked = _parser().parse_args(arguments)
    try:
        return int(asked.act(asked))
    except InvalidInput as error:
        _say(str(error), sys.stderr)
        return 2


def _say(line: str, to: TextIO | None = None) -> None:
    stream = to or sys.stdout
    stream.write(line + "\n")
    stream.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cloud_dispatch.simulation")
    acts = parser.add_subparsers(required=True)
    seeds = acts.add_parser("seeds", help="run scenarios made from seeds")
    seeds.add_argument("--first", type=int, default=0)
    seeds.add_argument("--count", type=int, default=100)
    seeds.add_argument("--theme", choices=sorted(THEMES))
    seeds.set_defaults(act=_seeds)
    replay = acts.add_parser("replay", help="run one scenario again and print its journal")
    _add_scenario(replay)
    replay.add_argument("--quiet", action="store_true", help="no journal")
    replay.set_defaults(act=_replay)
    deaths = acts.add_parser("crashes", help="let the dispatcher die at every step and effect of a scenario in turn")
    _add_scenario(deaths)
    deaths.add_argument("--point", choices=POINTS, action="append", help="only there (default: everywhere)")
    deaths.add_argument("--stride", type=int, default=1)
    deaths.set_defaults(act=_crashes)
    smaller = acts.add_parser("shrink", help="make a failing scenario small, and print it")
    _add_scenario(smaller)
    smaller.add_argument("--tries", type=int, default=200)
    smaller.set_defaults(act=_shrink)
    return parser


def _add_scenario(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int)
    which.add_argument("--scenario", type=Path, help="a file with its JSON")
    parser.add_argument("--theme", choices=sorted(THEMES))


def _chosen(asked: argparse.Namespace) -> Scenario:
    if asked.scenario is not None:
        return read(asked.scenario)
    return _of_seed(asked.seed, asked.theme)


def _of_seed(seed: int, theme: str | None) -> Scenario:
    return generate(seed) if theme is None else of_theme(theme, seed)


def _seeds(asked: argparse.Namespace) -> int:
    failed = 0
    for seed in range(asked.first, asked.first + asked.count):
        outcome = run(_of_seed(seed, asked.theme), keep=_LAST_LINES)
        if not outcome.ok:
            failed += 1
            _say(explain(outcome, seed, asked.theme))
    _say(f"{asked.count} scenarios, {failed} of them broke a promise")
    return 1 if failed else 0


def _crashes(asked: argparse.Namespace) -> int:
    scenario, count, failed = _chosen(asked), 0, 0
    for point in asked.point or POINTS:
        for outcome in every(scenario, point, stride=max(asked.stride, 1)):
            count += 1
            if not outcome.ok:
                failed += 1
                _say("\n".join([f"{outcome.scenario.name}:", *(f"  {finding}" for finding in outcome.findings)]))
                _say(f"  its scenario: {msgspec.json.encode(outcome.scenario).decode()}")
    _say(f"{count} deaths, {failed} of them broke a promise")
    return 1 if failed else 0


def explain(outcome: Outcome, seed: int, theme: str | None = None) -> str:
    """What was found, and the one command that shows it again."""
    again = f"--seed {seed}" + (f" --theme {theme}" if theme else "")
    lines = [f"{outcome.scenario.name}:", *(f"  {finding}" for finding in outcome.findings)]
    lines += [
        f"  replay: python -m cloud_dispatch.simulation replay {again}",
        f"  shrink: python -m cloud_dispatch.simulation shrink {again}",
    ]
    return "\n".join(lines)


def _replay(asked: argparse.Namespace) -> int:
    outcome = run(_chosen(asked))
    if not asked.quiet:
        sys.stdout.write(outcome.journal.text())
    for finding in outcome.findings:
        _say(str(finding))
    _say(f"{outcome.scenario.name}: {outcome.virtual_ms} ms, {outcome.steps} steps, journal {outcome.digest}")
    return 0 if outcome.ok else 1


def _shrink(asked: argparse.Namespace) -> int:
    outcome = run(_chosen(asked), keep=_LAST_LINES)
    if outcome.ok:
        _say(f"{outcome.scenario.name} breaks no promise", sys.stderr)
        return 0
    small = shrink(outcome, tries=asked.tries)
    sys.stdout.write(encode(small.scenario).decode() + "\n")
    for finding in small.outcome.findings:
        _say(str(finding), sys.stderr)
    before, after = outcome.scenario.size, small.scenario.size
    _say(f"(faults, tasks, ms) {before} became {after} in {small.tries} runs", sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
