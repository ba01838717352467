"""Which URLs of outputs are another file for each attempt."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from cloud_dispatch.wire.places import marked, tells_attempts_apart

#: Of one file, whichever attempt stores there.
ALIKE = (
    "file:///res?{token}",
    "file:///res#{token}",
    "file:///res?x",
    "file:///res#x",
    "file:///{token}/../res",
    "file:///{token}/%2e%2e/res",
    "file://{token}/res",
    "https://h/x",
    "https://h/x#{token}",
    "https://{token}@h/x",
    "https://h/{token}/../x",
)
APART = (
    "file:///res",
    "file:///{token}/res",
    "file:///res-{token}?x",
    "file:///folder/",
    "https://h/{token}",
    "https://h/x?{token}#x",
    "https://{token}.h/x",
)


@pytest.mark.parametrize("url", ALIKE + APART)
def test_what_counts_is_what_is_addressed(url: str) -> None:
    """Not where the token stands in the URL."""
    assert tells_attempts_apart(url) == (url in APART)


@pytest.mark.parametrize("url", ["file:///folder/", "file:///folder?x/", "https://h/{token}/", "https://h/x#{token}/"])
def test_a_folder_s_url_tells_attempts_apart_where_its_files_do(url: str) -> None:
    """So what was taken in with a task is not refused when its files have their names."""
    assert tells_attempts_apart(url) == tells_attempts_apart(url + quote("a b/c?{token}#d"))


def test_a_file_without_the_token_gets_it_as_a_suffix() -> None:
    assert marked("file:///res", 42) == "file:///res.42"
    assert marked("file:///res-{token}/{token}", 42) == "file:///res-42/42"
    assert marked("https://h/{token}", 42) == "https://h/42"
