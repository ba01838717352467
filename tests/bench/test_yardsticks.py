"""The yardsticks measure something on every machine; how much is nobody's business here."""

from pathlib import Path

from bench.yardsticks import take


def test_all_four_yardsticks_are_positive_and_leave_no_file_but_the_log(tmp_path: Path) -> None:
    """Each one runs for real, the echo server included, which is gone afterwards."""
    yardsticks = take(tmp_path)
    assert all(milliseconds > 0 for milliseconds in yardsticks.as_milliseconds().values())
    assert [path.name for path in tmp_path.iterdir()] == ["echo.log"]
