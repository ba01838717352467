"""Log records as people read them: nothing in them that a terminal obeys, whoever's words they are."""

from __future__ import annotations

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
