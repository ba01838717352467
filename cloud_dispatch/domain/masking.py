"""Texts that people read, without the secrets that may stand in them. Owns by which form a secret is known.

For what comes from outside and is shown or kept all the same: a URL, a console, what a database says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

MASK = "***"
#: A value: quoted, or up to the next blank or separator.
_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s"'&}]+)"""
_NAMES = r"token|secret|passw|pwd|signature|credential|private[_-]?key|access[_-]?key|api[_-]?key|account[_-]?key"
_USER = re.compile(r"://[^\s:/@]*:")


def _without_password(word: re.Match[str]) -> str:
    user = _USER.search(word[0])
    return f"{word[0][: user.end()]}{MASK}@" if user else word[0]


#: Each looks at a character a few times at most, however long the text: strangers write some of what is masked. So a
#: name and a word are looked at from their beginning only, and once they are read, no shorter one is tried.
_FORMS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), MASK),
    (re.compile(r"\bcd[a-z]\d\.[\w.-]+"), MASK),  # our own tokens
    (re.compile(r"(?<=Bearer )[^\s\"']+"), MASK),
    # Who is named in a URL is no secret, except on the web, where a token may stand in its place.
    (re.compile(r"(?i)(?<=https://)[^\s/?#@]+@|(?<=http://)[^\s/?#@]+@"), f"{MASK}@"),
    (re.compile(r"(?<!\S)\S+@"), _without_password),
    (
        re.compile(rf"(?i)(?<![\w.-])((?=[\w.-]*?(?:{_NAMES}))[\w.-]++[\"']?+\s*+[:=]\s*+){_VALUE}"),
        rf"\1{MASK}",
    ),
    (re.compile(r"(?i)([?&](?:sig|key)=)[^\s\"'&]+"), rf"\1{MASK}"),
)


def masked(text: str, known: Iterable[str | None] = ()) -> str:
    """`text` with what looks like a secret made unreadable, and what is `known` to be one."""
    for secret in known:
        if secret:
            text = text.replace(secret, MASK)
    for form, instead in _FORMS:
        text = form.sub(instead, text)
    return text
