"""Where templates are. Owns the order in which folders are looked in; reads no template itself.

In a wheel the templates are resources of this package; in a checkout they are its `cloud-init/` folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

SUFFIX = ".yaml.j2"


def builtin() -> Path:
    """The folder of the templates that come with cloud-dispatch."""
    installed = Path(str(files("cloud_dispatch.cloudinit") / "templates"))
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / "cloud-init"


def folders(extra: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Where to look, first match wins: an operator's folders, then ours."""
    return (*extra, builtin())


def names(extra: Iterable[Path] = ()) -> tuple[str, ...]:
    """The templates that a pool may name. Those that begin with `_` are bases for others."""
    found = {path.name for folder in folders(extra) for path in folder.glob(f"*{SUFFIX}")}
    return tuple(sorted(name.removesuffix(SUFFIX) for name in found if not name.startswith("_")))
