"""Empty statestores that were migrated before, so that a test which is not about migrations does not wait for them."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from cloud_dispatch.statestore.engine import make_engine, parse_url
from cloud_dispatch.statestore.migrate import upgrade


def migrated_store(path: Path) -> str:
    """The URL of the store at `path`; where there is none yet, of a new one with this version's tables."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(_tables())
    return f"sqlite:///{path}"


def migrate(url: str) -> None:
    """Bring the database at `url` to this version's tables, and leave it."""
    engine = make_engine(parse_url(url))
    with engine.begin() as connection:
        upgrade(connection)
    engine.dispose()


@cache
def _tables() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        migrate(f"sqlite:///{path}")
        assert [one.name for one in path.parent.iterdir()] == [path.name], "what was written is not all in the file"
        return path.read_bytes()
