"""Which drivers there are. Owns finding plugins by entry point; loads one only when it is asked for.

A driver's SDK is an optional extra: without it the plugin still loads, and making the driver says what to install.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from cloud_dispatch.domain.errors import NotFound, Unavailable
from cloud_dispatch.provider import secrets
from cloud_dispatch.provider.spi import HardEnd, Host, Plugin, ProfileContext, Provider

GROUP = "cloud_dispatch.providers"


def names() -> tuple[str, ...]:
    """The drivers that are installed, whether or not their SDKs are; loads none."""
    return tuple(sorted(entry_points(group=GROUP).names))


def plugin(driver: str) -> LoadedPlugin:
    """The plugin of `driver`. NotFound when no such driver is installed, Unavailable when it can't be loaded.

    `create` of the plugin raises Unavailable, naming the extra to install, where the driver's SDK is missing.
    """
    point = _find(driver)
    try:
        loaded: Plugin = point.load()
    except ImportError as error:
        raise _missing(point, error) from error
    except AttributeError as error:
        raise Unavailable(f"driver {driver} is broken: {point.value} does not exist", place=_origin(point)) from error
    return LoadedPlugin(loaded, point)


class LoadedPlugin:
    """A plugin whose missing SDK is an error that an operator can act on. `host`: where its drivers want to run;
    `bills`: whether its VMs cost money; `keeps_ends`: whether a hand other than the guest's own can end them; `target`:
    where a process finds it (`module:attribute`)."""

    def __init__(self, inner: Plugin, point: EntryPoint) -> None:
        self._inner = inner
        self._point = point
        self.name = inner.name
        self.template_variables = inner.template_variables
        self.host = Host(getattr(inner, "host", Host.THREAD))
        self.bills = bool(getattr(inner, "bills", True))
        self.keeps_ends = HardEnd(getattr(inner, "hard_end", HardEnd.EXTENDABLE)) is not HardEnd.NONE
        self.target = point.value

    @property
    def settings(self) -> type[Any]:
        return self._inner.settings

    def policy(self, settings: Any, deployment: str, profile: str) -> Mapping[str, Any] | None:
        """The least that the dispatcher's credentials must be allowed; None where the driver has no words for it."""
        make = getattr(self._inner, "policy", None)
        try:
            return None if make is None else make(settings, deployment, profile)
        except ImportError as error:
            raise self.missing(error) from error

    def notes(self, settings: Any) -> Sequence[str]:
        """What may be wrong with a profile, as far as can be told without asking its provider."""
        make = getattr(self._inner, "notes", None)
        try:
            return () if make is None else tuple(make(settings))
        except ImportError as error:
            return (str(self.missing(error)),)

    def check_secret(self, name: str) -> None:
        """ValueError for what can't be the name of a secret of this cloud; NotFound where the driver asks for none."""
        check = getattr(self._inner, "check_secret", None)
        if check is None:
            raise NotFound(f"driver {self.name} knows no store of secrets")
        check(name)

    def secret(self, name: str) -> str:
        """A secret of this cloud's own store, asked for by whoever this machine is."""
        try:
            return secrets.ask(self.target, name)
        except secrets.NotInstalled as lacking:
            raise self.missing(ImportError(name=str(lacking))) from None

    def create(self, context: ProfileContext) -> Provider:
        try:
            return self._inner.create(context)
        except ImportError as error:
            raise self.missing(error) from error

    def missing(self, error: ImportError) -> Unavailable:
        """What to tell the operator of a module that could not be imported."""
        return _missing(self._point, error)


def _find(driver: str) -> EntryPoint:
    points = entry_points(group=GROUP, name=driver)
    if not points:
        raise NotFound(f"no such driver {driver!r}", hint=f"installed: {', '.join(names()) or 'none'}")
    return next(iter(points))


def _missing(point: EntryPoint, error: ImportError) -> Unavailable:
    needs = (error.name or str(error)).partition(".")[0]
    package = point.dist.name if point.dist else ""
    extras = (point.dist.metadata.get_all("Provides-Extra") or []) if point.dist else []
    hint = f"pip install '{package}[{point.name}]'" if point.name in extras else f"install {needs}"
    return Unavailable(f"driver {point.name} needs {needs}", hint=hint)


def _origin(point: EntryPoint) -> str:
    return point.dist.name if point.dist else GROUP
