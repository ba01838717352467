"""Configurations against the providers' official schemas, as far as `terraform validate` would say it where plugins
can't be had. Owns the findings: each says the file, the address, and what is wrong.

The schemas are an extract that `tools/provider_schemas.py` draws. What only a provider's plugin knows, as which values
an argument takes or that two exclude each other, is not seen here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from tests.terraform import hcl
from tests.terraform.hcl import Block, Configuration

SCHEMAS = Path(__file__).parent / "schemas"
_META = {"count", "for_each", "depends_on", "provider"}
_META_BLOCKS = {"lifecycle", "connection"}
#: What expressions may read that no block declares.
_OWN = {"each", "count", "path", "self", "terraform"}
_MODULE_META = {"source", "version", "providers", *_META}
#: What Terraform has itself: no plugin brings it.
_ANY = {"kind": "any", "required": False}
BUILT_IN: Mapping[str, Any] = {
    "resource": {"terraform_data": {"arguments": {"input": _ANY, "triggers_replace": _ANY}, "tells": ["id", "output"]}},
    "data": {},
}
_LOCAL_EXEC = {"command": True, "environment": False, "interpreter": False, "on_failure": False, "quiet": False,
               "when": False, "working_dir": False}  # fmt: skip
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True, order=True)
class Finding:
    """Something that is wrong."""

    file: str
    address: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.address}: {self.what}"


@cache
def schema(provider: str) -> Mapping[str, Any]:
    """The extract of a provider; FileNotFoundError for one that has none."""
    if provider == "terraform":
        return BUILT_IN
    found: Mapping[str, Any] = json.loads((SCHEMAS / f"{provider}.json").read_text(encoding="utf-8"))
    return found


def check(configuration: Configuration) -> list[Finding]:
    """All that is wrong with the configuration of one folder, modules below it by their inputs and outputs alone."""
    found: list[Finding] = []
    for block in configuration.blocks:
        found += (Finding(block.file, block.address, what) for what in _of_block(configuration, block))
    found += _unused(configuration)
    return sorted(set(found))


def _of_block(configuration: Configuration, block: Block) -> Iterator[str]:
    if block.kind in ("resource", "data"):
        yield from _of_resource(block)
    elif block.kind == "provider":
        yield from _of_body(schema(block.labels[0])["provider"], block.body, {"alias"})
    elif block.kind == "module":
        yield from _of_module(configuration, block)
    elif block.kind == "variable":
        yield from (f"has no {name}" for name in ("type", "description") if name not in block.body)
    elif block.kind == "output":
        yield from (f"has no {name}" for name in ("value", "description") if name not in block.body)
    elif block.kind == "terraform":
        yield from _of_requirements(block)
    yield from _of_reads(configuration, block)


def _of_resource(block: Block) -> Iterator[str]:
    kind = block.labels[0]
    try:
        known = schema(kind.split("_")[0])[block.kind]
    except FileNotFoundError:
        yield f"nothing is known of the provider of {kind}"
        return
    if kind not in known:
        yield f"the provider has no {block.kind} {kind}"
        return
    yield from _of_body(known[kind], block.body, _META)


def _of_body(said: Mapping[str, Any], body: Mapping[str, Any], extra: set[str] = frozenset()) -> Iterator[str]:  # type: ignore[assignment]
    """`said`: the arguments that the schema has for it."""
    arguments = said["arguments"]
    given: dict[str, Any] = {}
    for name, value in hcl.items(dict(body)):
        if name == "dynamic":
            for one in value:
                for label, inner in hcl.items(one):
                    given[hcl.unquoted(label)] = inner
        elif name == "provisioner":
            for one in value:
                yield from _of_provisioner(one)
        elif name not in extra and not (name in _META_BLOCKS and hcl.is_block(value)):
            given[name] = value
    yield from (f"lacks {name}" for name, one in arguments.items() if one["required"] and name not in given)
    for name, value in given.items():
        if name not in arguments:
            yield f"has no argument {name}"
        elif isinstance(value, dict) and "content" in value and "for_each" in value:
            yield from _of_dynamic(name, arguments[name], value)
        else:
            yield from (f"{name}: {what}" for what in _of_value(arguments[name], value))


def _of_provisioner(value: Mapping[str, Any]) -> Iterator[str]:
    """A command of the operator's machine. One that runs when its resource is destroyed sees nothing but that."""
    for label, body in hcl.items(dict(value)):
        if hcl.unquoted(label) != "local-exec":
            yield f"provisioner {label} is not for use here"
            continue
        given = {name for name, _ in hcl.items(body)}
        yield from (f"provisioner: has no argument {name}" for name in sorted(given - _LOCAL_EXEC.keys()))
        yield from (f"provisioner: lacks {name}" for name, must in _LOCAL_EXEC.items() if must and name not in given)
        if hcl.unquoted(str(body.get("when", ""))).strip("${}") == "destroy":
            strange = {f"{root}.{name}" for root, name, _ in hcl.reads(body) if root != "self"}
            yield from (f"provisioner: reads {name} where only self is known" for name in sorted(strange))


def _of_dynamic(name: str, argument: Mapping[str, Any], value: Mapping[str, Any]) -> Iterator[str]:
    if "block" not in argument:
        yield f"{name} is no block, and can't be dynamic"
        return
    for content in value["content"]:
        yield from (f"{name}: {what}" for what in _of_body(argument, content))


def _of_value(argument: Mapping[str, Any], value: Any) -> Iterator[str]:
    if "block" not in argument:
        yield from ["is no block"] if hcl.is_block(value) else _of_kind(argument["kind"], value)
        return
    if argument["block"] and not hcl.is_block(value):
        yield "is a block, not an argument"
        return
    if hcl.is_expression(value) or value is None:
        return
    parts = value if isinstance(value, list) else [value]
    if argument["kind"] == "object" and len(parts) > 1:
        yield "may be given once"
    for one in parts:
        if isinstance(one, dict):
            yield from _of_body(argument, {hcl.unquoted(name): inner for name, inner in one.items()})
        elif not hcl.is_expression(one):
            yield f"takes {argument['kind']}, not {one!r}"


def _of_kind(kind: str, value: Any) -> Iterator[str]:
    """A value that is no block, of an argument of this kind."""
    if value is None or hcl.is_expression(value) or kind == "any":
        return
    many, _, inner = kind.partition(" of ")
    if inner:
        parts = {"list": list, "map": dict}[many]
        if not isinstance(value, parts):
            yield f"takes a {kind}, not {value!r}"
            return
        for one in value if many == "list" else [found for _, found in hcl.items(value)]:
            yield from _of_kind(inner, one)
    elif not _fits(kind, value):
        yield f"takes a {kind}, not {value!r}"


def _fits(kind: str, value: Any) -> bool:
    """Whether Terraform makes a literal into such a primitive."""
    if isinstance(value, list | dict):
        return False
    text = hcl.unquoted(value) if hcl.is_text(value) else None
    if text is not None and "${" in text:
        return True
    if kind == "boolean":
        return isinstance(value, bool) or text in ("true", "false")
    if kind == "number":
        return (isinstance(value, int | float) and not isinstance(value, bool)) or bool(_NUMBER.fullmatch(text or ""))
    return True


def _of_module(configuration: Configuration, block: Block) -> Iterator[str]:
    source = hcl.unquoted(block.body["source"]) if "source" in block.body else ""
    folder = configuration.folder / source
    if not source.startswith(".") or not folder.is_dir():
        yield f"its source {source!r} is no folder here"
        return
    inputs = hcl.load(folder).named("variable")
    given = {name for name, _ in hcl.items(block.body)} - _MODULE_META
    yield from (f"the module has no variable {name}" for name in sorted(given - inputs.keys()))
    yield from (f"lacks {name}" for name, one in inputs.items() if "default" not in one.body and name not in given)


def _of_requirements(block: Block) -> Iterator[str]:
    if "required_version" not in block.body:
        yield "does not say which Terraform it needs"
    for required in block.body.get("required_providers", []):
        for name, one in hcl.items(required):
            known = schema(name)
            source, version = hcl.unquoted(one.get("source", "")), hcl.unquoted(one.get("version", ""))
            if source != known["source"]:
                yield f"the provider {name} comes from {known['source']}, not from {source!r}"
            if not version or not SpecifierSet(version.replace("~> ", "~=")).contains(known["version"]):
                yield f"the provider {name} is checked in version {known['version']}, and {version!r} does not admit it"


def _of_reads(configuration: Configuration, block: Block) -> Iterator[str]:
    """Names that nothing declares, and attributes that nobody has."""
    loops = {hcl.unquoted(label) for label in _dynamic_labels(block.body)}
    for root, name, rest in hcl.reads(block.body):
        if root in _OWN or root in loops:
            continue
        if root == "var" and name not in configuration.named("variable"):
            yield f"reads var.{name}, which is not declared"
        elif root == "local" and name not in configuration.locals():
            yield f"reads local.{name}, which is not declared"
        elif root == "module":
            yield from _of_output(configuration, name, rest)
        elif root.partition("_")[0].removeprefix("data.") in _providers():
            yield from _of_attribute(configuration, root, name, rest)


def _dynamic_labels(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in hcl.items(value):
            if name == "dynamic" and isinstance(inner, list):
                for one in inner:
                    for label, content in hcl.items(one):
                        iterator = content.get("iterator")
                        yield iterator.removeprefix("${").removesuffix("}") if iterator else label
            yield from _dynamic_labels(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _dynamic_labels(inner)


@cache
def _providers() -> frozenset[str]:
    return frozenset(("terraform", *(file.stem for file in SCHEMAS.glob("*.json"))))


def _of_output(configuration: Configuration, name: str, rest: tuple[str, ...]) -> Iterator[str]:
    module = configuration.named("module").get(name)
    if module is None:
        yield f"reads module.{name}, which is not declared"
        return
    folder = configuration.folder / hcl.unquoted(module.body.get("source", '"."'))
    if rest and folder.is_dir() and rest[0] not in hcl.load(folder).named("output"):
        yield f"reads module.{name}.{rest[0]}, which the module does not tell"


def _of_attribute(configuration: Configuration, root: str, name: str, rest: tuple[str, ...]) -> Iterator[str]:
    kind = "data" if root.startswith("data.") else "resource"
    label = root.removeprefix("data.")
    if (label, name) not in {one.labels for one in configuration.of(kind)}:
        yield f"reads {root}.{name}, which is not declared"
        return
    known = schema(label.split("_")[0])[kind].get(label)
    # The schemas' packages write names in another way, in which an underscore beside a digit is lost.
    if known is not None and rest and rest[0].replace("_", "") not in {one.replace("_", "") for one in known["tells"]}:
        yield f"reads {root}.{name}.{rest[0]}, which it does not tell"


def _unused(configuration: Configuration) -> Iterator[Finding]:
    """What is declared and that nothing reads."""
    read = {(root, name) for block in configuration.blocks for root, name, _ in _read_of(block)}
    for block in configuration.of("variable"):
        if ("var", block.labels[0]) not in read:
            yield Finding(block.file, block.address, "nothing reads it")
    for block in configuration.of("data"):
        if (f"data.{block.labels[0]}", block.labels[1]) not in read:
            yield Finding(block.file, block.address, "nothing reads it")
    for block in configuration.of("locals"):
        for name, _ in hcl.items(block.body):
            if ("local", name) not in read:
                yield Finding(block.file, f"local.{name}", "nothing reads it")


def _read_of(block: Block) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """What a block reads; a variable that only its own validation reads is read by nobody."""
    return iter(()) if block.kind == "variable" else hcl.reads(block.body)
