"""Where outputs go: the rule by which each attempt stores under a name of its own (promise P1), for who takes a URL in
and for who stores there.

What stands in a URL is not what is addressed: a file has no query, and nobody is sent a fragment.
"""

from __future__ import annotations

import posixpath
from typing import Tuple  # noqa: UP035
from urllib.parse import unquote, urlsplit

#: What becomes the fencing token of an attempt.
PLACE = "{token}"


def marked(url: str, token: int) -> str:
    """The URL of an output for the attempt with `token`, which stands in place of `{token}`; a file without that gets
    it as a suffix."""
    if PLACE not in url and urlsplit(url).scheme == "file":
        return "%s.%d" % (url, token)
    return url.replace(PLACE, str(token))


def tells_attempts_apart(url: str) -> bool:
    """Whether two attempts that store an output at `url` address two files. ValueError where it can't be read."""
    return _addressed(marked(url, 1)) != _addressed(marked(url, 2))


def _addressed(url: str) -> Tuple[str, ...]:
    """What tells the file of `url` from others: the path without what it goes back on, over http host and query too."""
    parts = urlsplit(url)
    path = posixpath.normpath(unquote(parts.path))
    return (path,) if parts.scheme == "file" else (parts.netloc.rpartition("@")[2], path, parts.query)
