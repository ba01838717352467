"""The public suites of `cloud_dispatch.testing` explain their failures as tests do. Told before any import."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("cloud_dispatch.testing")
