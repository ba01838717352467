"""The log of an attempt: order, bounds, and what is said about what is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_dispatch.agent.logs import MEMORY_BYTES, TAIL_BYTES, LogStream


def drain(stream: LogStream) -> bytes:
    seen = b""
    while piece := stream.peek():
        seen += piece
        stream.advance(len(piece))
    return seen


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 150_000), st.booleans()), max_size=20))
def test_what_goes_in_comes_out_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]]
) -> None:
    """Whatever is in memory or on disk, and however sending and writing alternate."""
    stream = LogStream(str(tmp_path_factory.mktemp("log") / "spill"), 1 << 30)
    written, seen = b"", b""
    for number, (size, send) in enumerate(steps):
        piece = bytes([number % 251]) * size
        written += piece
        stream.feed(piece)
        if send:
            chunk = stream.peek()
            stream.feed(b"!")  # more comes while the chunk is on its way
            written += b"!"
            stream.advance(len(chunk))
            seen += chunk
    stream.finish()
    seen += drain(stream)
    assert seen == written
    assert stream.offset == len(written)
    stream.close()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 90_000), min_size=1, max_size=40), st.sampled_from([0, 100, TAIL_BYTES, 200_000]))
def test_past_the_limit_head_and_tail_are_kept(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int
) -> None:
    """The bytes kept are a prefix and a suffix, and the line between counts exactly what is missing."""
    stream = LogStream(str(tmp_path_factory.mktemp("log") / "spill"), limit)
    written = b"".join(bytes([number % 251]) * size for number, size in enumerate(sizes))
    at = 0
    for size in sizes:
        stream.feed(written[at : at + size])
        at += size
    stream.finish()
    seen = drain(stream)
    if len(written) <= limit:
        assert seen == written
        return
    head = max(limit - TAIL_BYTES, 0)
    tail = min(limit, TAIL_BYTES)
    missing = len(written) - head - tail
    line = b"\n[cloud-dispatch: %d bytes of output were dropped here]\n" % missing
    assert seen == written[:head] + line + (written[-tail:] if tail else b"")
    stream.close()


def test_a_full_disk_drops_and_says_so() -> None:
    """Where nothing can be written to disk, what exceeds memory is dropped and counted; nothing raises."""
    stream = LogStream("/proc/no/such/place", 1 << 30)
    for _ in range(20):
        stream.feed(b"x" * 100_000)
    stream.finish()
    seen = drain(stream)
    assert len(seen) <= MEMORY_BYTES + 100
    stream.close()


def test_the_file_on_disk_goes(tmp_path: Path) -> None:
    """It exists only while there is more than memory holds."""
    path = tmp_path / "spill"
    stream = LogStream(str(path), 1 << 30)
    stream.feed(b"x" * (MEMORY_BYTES + 1))
    assert path.stat().st_size == MEMORY_BYTES + 1
    drain(stream)
    assert path.stat().st_size == 0
    stream.close()
    assert not path.exists()


@pytest.mark.parametrize("more", [1_000, MEMORY_BYTES + 1], ids=["in memory", "on disk"])
def test_what_was_lost_at_the_other_end_is_said(tmp_path: Path, more: int) -> None:
    """A line in its place; what was not sent yet follows it, and what comes later that."""
    stream = LogStream(str(tmp_path / "spill"), 1 << 30)
    stream.feed(b"a" * 500)
    stream.advance(500)
    stream.feed(b"b" * more)
    stream.go_back(100)
    assert stream.offset == 100
    stream.feed(b"c" * 10)
    stream.finish()
    said = b"\n[cloud-dispatch: 400 bytes of output were lost here]\n"
    assert drain(stream) == said + b"b" * more + b"c" * 10
    assert stream.offset == 100 + len(said) + more + 10
    stream.close()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 150_000), max_size=20), st.sampled_from([300_000, 1 << 30]), st.integers(0, 3),
    st.integers(0, 1),
)  # fmt: skip
def test_what_there_is_no_time_for_is_told(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, sent: int, lost: int
) -> None:
    """A chunk that is on its way arrives as it was, the tail follows, and the line between counts what is missing,
    whatever of it was dropped before."""
    stream = LogStream(str(tmp_path_factory.mktemp("log") / "spill"), limit)
    written = b"".join(bytes([65 + number]) * size for number, size in enumerate(sizes))
    at, seen = 0, b""
    for number, size in enumerate(sizes):
        stream.feed(written[at : at + size])
        at += size
        if number < sent:
            seen += (piece := stream.peek())
            stream.advance(len(piece))
    stream.finish()
    if lost and len(seen) > 10:
        stream.go_back(len(seen) - 10)
        seen = seen[:-10]
    going = stream.peek()
    stream.abridge()
    assert stream.peek()[: len(going)] == going
    seen += drain(stream)
    assert stream.offset == len(seen)
    kept = re.sub(rb"\n\[cloud-dispatch: \d+ bytes of output were (?:dropped|lost) here\]\n", b"", seen)
    missing = sum(int(words) for words in re.findall(rb"dispatch: (\d+) bytes", seen))
    assert len(kept) + missing == len(written)
    assert lost or seen.endswith(written[-TAIL_BYTES:])
    assert len(seen) <= limit + 300
    stream.close()
