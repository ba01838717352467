"""A dispatcher of several profiles as `up` runs it, and somebody on its loop who watches:
``python -m bench.watched_clouds CONFIG INSTANCES``.

As ``bench.watched_dispatcher``, and says too when the last VM of each profile had come.
"""

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.watched_dispatcher import Watch
from cloud_dispatch import bootstrap
from cloud_dispatch.config import TomlFile, load
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider import registry
from cloud_dispatch.reconcile.context import Context


class WatchOfMany(Watch):
    """Who watches one dispatcher with these profiles."""

    def __init__(self, config: Path, instances: int, profiles: frozenset[ProfileName]) -> None:
        super().__init__(config, instances)
        self._profiles = profiles
        self._there: Counter[ProfileName] = Counter()
        self._last: dict[ProfileName, float] = {}

    def _listed(self, context: Context) -> bool:
        views = [context.profiles.get(name) for name in self._profiles]
        return all(view is not None and view.listed_ms is not None and view.offerings for view in views)

    def _all_there(self, context: Context) -> bool:
        there = Counter(row.profile for row in context.store.instances().values() if row.vm)
        for name, count in there.items():
            if count > self._there[name]:
                self._last[name] = time.perf_counter()
        self._there = there
        return there.total() >= self._instances

    def _told(self) -> dict[str, Any]:
        return {"by": self._last, "there": self._there}


def main(path: Path, instances: int) -> int:
    """Run the dispatcher until it is told to stop."""
    config = load(TomlFile(path), registry.plugin)
    WatchOfMany(path, instances, frozenset(map(ProfileName, config.profiles))).install()
    return bootstrap.serve(config)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
