import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.money import HOUR_MS
from cloud_dispatch.spend.windows import DAY_MS, FOREVER_MS, Span, Window, span_at, spans

MOMENTS = st.integers(min_value=0, max_value=4_000_000_000_000)


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("window", "moment", "start", "end"),
    [
        (Window.HOUR, "2026-11-21T22:59:59.999", "2026-11-21T22:00", "2026-11-21T23:00"),
        (Window.DAY, "2026-11-21T23:00", "2026-11-21T00:00", "2026-11-22T00:00"),
        (Window.MONTH, "2026-11-21T23:00", "2026-11-01T00:00", "2026-12-01T00:00"),
        (Window.MONTH, "2026-12-31T23:59:59.999", "2026-12-01T00:00", "2027-01-01T00:00"),
        (Window.MONTH, "2028-02-29T12:00", "2028-02-01T00:00", "2028-03-01T00:00"),
    ],
)
def test_windows_are_those_of_utc(window: Window, moment: str, start: str, end: str) -> None:
    assert span_at(window, at(moment)) == Span(at(start), at(end))


def test_the_total_has_no_end() -> None:
    assert span_at(Window.TOTAL, at("2026-11-21T22:00")) == Span(0, FOREVER_MS)


@given(st.sampled_from(Window), MOMENTS)
def test_a_window_holds_the_moment_it_was_asked_for(window: Window, moment: int) -> None:
    span = span_at(window, moment)
    assert span.start_ms <= moment < span.end_ms
    assert span_at(window, span.start_ms) == span == span_at(window, span.end_ms - 1)


@given(st.sampled_from(Window), MOMENTS, st.integers(min_value=0, max_value=100 * DAY_MS))
def test_spans_cover_a_stretch_without_gap_or_overlap(window: Window, start: int, length: int) -> None:
    found = list(spans(window, start, start + length))
    assert found[0] == span_at(window, start)
    assert all(one.end_ms == next_.start_ms for one, next_ in pairwise(found))
    assert found[-1].start_ms < max(start + length, start + 1) <= found[-1].end_ms
    assert sum(span.overlap_ms(start, start + length) for span in found) == length


def test_an_overlap_is_never_negative() -> None:
    assert Span(0, HOUR_MS).overlap_ms(HOUR_MS, 2 * HOUR_MS) == 0
    assert Span(0, HOUR_MS).overlap_ms(5, 3) == 0
    assert Span(0, HOUR_MS).overlap_ms(-5, 3) == 3


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose clock on the wall is eleven hours ahead."""
    monkeypatch.setenv("TZ", "XXX-11")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_months_are_those_of_utc_wherever_a_dispatcher_runs() -> None:
    assert span_at(Window.MONTH, at("1999-12-31T23:59")) == Span(at("1999-12-01T00:00"), at("2000-01-01T00:00"))
