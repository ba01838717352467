"""Templates as Terraform would fill them in. They keep to places with a name (`${name}`), so that this is all there is
to it: anything else of Terraform's language in one is an error here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

MODULES = Path(__file__).resolve().parents[2] / "terraform" / "modules"
EXAMPLES = MODULES.parent / "examples"
_PLACE = re.compile(r"(?<!\$)\$\{([^}]*)\}")
_DIRECTIVE = re.compile(r"(?<!%)%\{")


def rendered(path: Path, values: Mapping[str, object]) -> str:
    """The template with its values. ValueError for a directive, a place without a value, a value without a place."""
    text = path.read_text(encoding="utf-8")
    if _DIRECTIVE.search(text):
        raise ValueError(f"{path.name} has a directive in it")
    named = set(_PLACE.findall(text))
    if named != set(values):
        raise ValueError(f"{path.name}: places {sorted(named - set(values))}, values {sorted(set(values) - named)}")
    return _PLACE.sub(lambda place: str(values[place[1]]), text).replace("$${", "${").replace("%%{", "%{")
