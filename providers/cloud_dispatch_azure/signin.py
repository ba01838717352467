"""What is wrong with credentials, in words: which places have none and why, and what to read next. Pure."""

from __future__ import annotations

from collections.abc import Mapping

#: Where an operator reads what to do.
_PAGE = '(docs/how-to/use-azure.md, "Credentials")'
#: The SDK's links and what it says around them are no help in a line of a log.
_LINK = "https://"
_LONGEST = 300


def tried(text: str) -> str:
    """The SDK's error in one line: what it says, and of a chain each place that it has tried with its reason."""
    first, *rest = text.strip().splitlines() or [""]
    places = [_reason(line) for line in rest if line.startswith("\t")]
    said = f"no credentials in any place: {'; '.join(places)}" if places else _sentences(first)
    return f"{said} {_PAGE}"


def unset(environment: Mapping[str, str]) -> str:
    """Which variables a client's secret or certificate needs and the environment has not, "" where it has all."""
    wanted = [("AZURE_TENANT_ID",), ("AZURE_CLIENT_ID",), ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH")]
    missing = [" or ".join(names) for names in wanted if not any(environment.get(name) for name in names)]
    return f"the environment has no {', no '.join(missing)}" if missing else ""


def _reason(line: str) -> str:
    place, _, why = line.strip().partition(": ")
    return f"{place}: {_sentences(why.removeprefix(f'{place} authentication unavailable. '))}"


def _sentences(text: str) -> str:
    kept = [one for one in text.strip().split(". ") if _LINK not in one]
    return ". ".join(kept or [text]).rstrip(".")[:_LONGEST]
