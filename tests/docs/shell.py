"""Command lines as a shell splits them: which programs are called, with which words. Owns that reading only."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

#: What stands for a substitution in the words of a command.
SUBSTITUTED = "$SUBSTITUTED"
_SEPARATORS = frozenset(";|&()")
_ARROWS = frozenset("<>&")
_KEYWORDS = frozenset(
    ("do", "done", "then", "fi", "else", "if", "while", "until", "for", "in", "{", "}", "!", "case", "esac")
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1(.*?)\n.*?^\s*\2$", re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[list[str]]:
    """Every simple command of `text`, also those inside `$(...)`, without redirections, assignments, keywords of the
    shell and `sudo`."""
    outer, inner = _taken_out(_HEREDOC.sub(r"\3", text))
    lines = outer.replace("\\\n", " ").splitlines()
    found = [words for line in lines for part in _parts(line) if (words := _bare(part))]
    return found + [each for one in inner for each in commands(one)]


def _taken_out(text: str) -> tuple[str, list[str]]:
    """`text` with a word for each substitution, and what was in them."""
    inner: list[str] = []
    while "$(" in text:
        first = text.index("$(") + 2
        depth, end = 1, first
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        inner.append(text[first : end - 1])
        text = f"{text[: first - 2]}{SUBSTITUTED}{text[end:]}"
    return text, inner


def _parts(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    part: list[str] = []
    for token in lexer:
        if token and set(token) <= _SEPARATORS:
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _bare(words: list[str]) -> list[str]:
    kept: list[str] = []
    target = False  # the next word is what a redirection names
    for word in words:
        if target:
            target = False
        elif word and set(word) <= _ARROWS:
            target = True
        elif kept or not (word in _KEYWORDS or word == "sudo" or _ASSIGNMENT.match(word)):
            kept.append(word)
    return kept
