"""The suite for a real project works: it runs against the fake here, and it is not run unasked."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.gce import FakeGce
from tests.providers.live import check_that_it_has_to_be_asked_for, check_that_it_passes


def test_a_real_project_is_asked_only_on_request() -> None:
    """Without the marker nothing of it is run; with it and no project it fails and says what is missing."""
    check_that_it_has_to_be_asked_for("gcp")


def test_the_suite_passes_where_the_driver_is_right(fake: FakeGce, tmp_path: Path) -> None:
    """Both markets, and nothing is left in the project."""
    (tmp_path / "config.toml").write_text(
        f"""
[profiles.gcp]
driver = "gcp"
project = "fake-project"
regions = ["us-central1"]
endpoint_url = "{fake.url}"
credentials_file = "{fake.write_key(tmp_path)}"
instance_types = ["e2-micro"]
consistency = "0s"
operation_poll = "100ms"
caps = {{instances = 1}}
budget = {{total = "$1"}}
"""
    )
    check_that_it_passes("gcp", tmp_path / "config.toml")
    assert fake.all_instances() == []
    assert len(fake.ever()) == 2
