"""Public conformance suites for drivers and stores, this project's and third parties'. Assertions are explained as
those of tests are: pytest is told so before it imports them. Where there is no pytest, nothing is."""

from __future__ import annotations

import contextlib
import pkgutil

with contextlib.suppress(ModuleNotFoundError):
    import pytest

    pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))
