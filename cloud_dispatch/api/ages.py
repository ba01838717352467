"""How old what an attempt has left is. Owns that it does not age while the attempt's claim is held: what was written
last may be long before the end, and it is from the end on that it is kept.

The age is the file's own time, which outlives a restart; it is set by whoever looks for what is old.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cloud_dispatch.domain.ids import FencingToken, TaskId

#: Whether a claim is a current one.
Held = Callable[[TaskId, FencingToken], bool]


class Ages:
    """Of the files, or folders, of one kind."""

    def __init__(self) -> None:
        self._held: set[tuple[TaskId, FencingToken]] = set()  # at the last look

    def old(self, path: Path, before_ms: int, task: TaskId, token: FencingToken, held: Held) -> bool:
        """Whether nothing was written there, and its claim not `held`, since the moment `before_ms`. Of a claim that is
        given back only the next look tells: from then on it ages."""
        claim = (task, token)
        is_held, was_held = held(task, token), claim in self._held
        if not is_held and not was_held:
            return path.stat().st_mtime_ns // 1_000_000 < before_ms
        (self._held.add if is_held else self._held.discard)(claim)
        os.utime(path)
        return False
