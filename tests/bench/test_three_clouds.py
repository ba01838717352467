"""The benchmarks of all three cloud drivers on the fakes, on fleets too small to measure anything."""

from pathlib import Path

import pytest

from bench import launch_multi, listings
from bench.processes import BenchmarkFailed
from bench.three_clouds import sky


@pytest.mark.process
@pytest.mark.timeout(240)
def test_three_clouds_launch_at_once_what_each_is_asked_for(tmp_path: Path) -> None:
    """Each VM is where its task wanted it, and it is known when the last of each cloud was there."""
    found = launch_multi.run(tmp_path / "all", {"aws": 9, "gcp": 8, "azure": 7})
    assert set(found.by) == {"aws", "gcp", "azure"}
    assert min(found.by.values()) > launch_multi.LATENCY_MS / 1e3
    assert found.seconds == max(found.by.values())


@pytest.mark.process
def test_a_cloud_that_made_others_than_wanted_is_no_measurement(tmp_path: Path) -> None:
    """A figure for VMs that are not there must never be printed."""
    with sky(tmp_path, 0, ("gcp",)) as clouds, pytest.raises(BenchmarkFailed, match="3 VMs were to be launched, GCE"):
        clouds.check({"gcp": 3})


@pytest.mark.parametrize("instances", [1_000, 100, 3])
def test_the_split_is_even(instances: int) -> None:
    """Nobody gets more than one VM more than another."""
    shares = launch_multi.share(instances).values()
    assert sum(shares) == instances
    assert max(shares) - min(shares) <= 1


@pytest.mark.process
@pytest.mark.timeout(240)
def test_drivers_and_bare_sdks_list_the_same_vms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a page of each (AWS's pages apart, which have a thousand): a listing that lacks one is refused."""
    monkeypatch.setattr(listings, "VMS", 6_000)
    metrics = list(listings.measure(tmp_path, 1, quick=True))
    assert [metric.metric for metric in metrics] == ["aws_6000", "gcp_6000", "azure_6000"]
    assert all(one.ours > 0 and one.peers[listings.BARE] > 0 for metric in metrics for one in metric.repetitions)


class Liar:
    """A helper that lists one VM too few."""

    def say(self, word: str) -> None:
        self.word = word

    def hear(self) -> dict[str, float]:
        return {"vms": 9, "seconds": 0.1}


def test_a_listing_that_lacks_a_vm_is_no_measurement() -> None:
    """However fast it was."""
    with pytest.raises(BenchmarkFailed, match="9 of 10 VMs of gcp were listed"):
        listings.listed(Liar(), "gcp", 10)  # type: ignore[arg-type]
