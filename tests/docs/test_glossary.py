"""The glossary names the things of the domain, and the words that are not used stay out of it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import cloud_dispatch.domain
from tests.docs.pages import DOCS


def public_classes() -> set[str]:
    found = set()
    for module in pkgutil.iter_modules(cloud_dispatch.domain.__path__, "cloud_dispatch.domain."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if inspect.isclass(value) and value.__module__ == module.name and not name.startswith("_"):
                found.add(name)
    return found


def test_every_class_of_the_domain_is_in_the_glossary() -> None:
    """A new concept gets its word explained."""
    text = (DOCS / "glossary.md").read_text()
    classes = public_classes()
    assert len(classes) > 30
    assert sorted(name for name in classes if f"`{name}`" not in text) == []


def test_the_glossary_names_no_class_that_is_gone() -> None:
    """What stands in it as a class of the domain is one."""
    known = public_classes() | {"Rate", "Amount"}
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", (DOCS / "glossary.md").read_text()))
    assert sorted(named - known) == []
