"""Log records as people read them: nothing in them that a terminal obeys, whoever's words they are."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Iterator

import pytest
import structlog

from cloud_dispatch.telemetry import log

ODD = ["\x1b[31mred", "\x1b]0;title\x07", "\x9b31m", "a\x08\x08b", "a\u202eb", "a\0b", "a\nb", "a b\x1b[2J", "a\udcffb"]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.expandtabs().split("\n"))


@pytest.mark.parametrize("word", ODD)
def test_a_record_has_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str], word: str) -> None:
    """Escape sequences of a VM's words are quoted, on one line, in its traceback too; plain words are as they were."""
    log.configure("info", "text")
    structlog.get_logger().info("instance.failed", detail=word, instance="b1-0")
    said = capsys.readouterr().err
    assert harmless(said)
    assert said.count("\n") == 1
    assert said.rstrip().endswith(f"detail={word!r} instance=b1-0")
    try:
        raise ValueError(word)
    except ValueError as error:
        structlog.get_logger().error("api.failed", exc_info=error)
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert harmless(said)


@pytest.mark.parametrize("word", ODD)
def test_a_record_of_json_says_all_of_it(capsys: pytest.CaptureFixture[str], word: str) -> None:
    log.configure("info", "json")
    structlog.get_logger().info("instance.failed", detail=word)
    said = capsys.readouterr().err
    assert harmless(said)
    assert json.loads(said)["detail"] == word


class Narrow(io.StringIO):
    """A file that takes nothing while it is full, whole lines or none."""

    error: Exception | None = None

    def write(self, text: str) -> int:
        if self.error is not None:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), BrokenPipeError(), ValueError()])
def test_who_logs_goes_on_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """It is told meanwhile, and once there is room again how much was lost."""
    file = Narrow()
    monkeypatch.setattr("sys.stderr", file)
    records = log.configure("info", "json")
    logger = structlog.get_logger()
    file.error = error
    logger.info("instance.idle", instance="b1-0")
    logger.error("instance.failed", instance="b1-0")
    assert ["2 records are lost" in told for told in records.troubles()] == [True]
    file.error = None
    logger.info("instance.gone", instance="b1-0")
    said = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [one["event"] for one in said] == ["instance.gone", "log.lost"]
    assert said[1]["records"] == 2
    assert not records.troubles()


def test_a_command_goes_on_where_its_records_can_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Narrow()
    file.error = BrokenPipeError()
    monkeypatch.setattr("sys.stderr", file)
    log.to_stderr()
    structlog.get_logger().info("prices.read")
    file.error = None
    structlog.get_logger().info("prices.read")
    assert "prices.read" in file.getvalue()
