"""What Terraform's providers take and tell, drawn from their official schemas. Owns the extract in
`tests/terraform/schemas`: names, kinds and which are required, for the resources that `terraform/` uses.

The schemas come in PyPI's `cdktf-cdktf-provider-{archive,aws,azurerm,google,random}`, 150 MB of generated classes: a
jsii assembly that has each argument with its type and Terraform's own name. `--packages DIR` is where the wheels are;
without it they are downloaded. `--check` writes nothing and fails where the extract is not what they say.

    .venv/bin/python -m tools.provider_schemas [--packages DIR] [--check]
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = ROOT / "tests" / "terraform" / "schemas"
PROVIDERS = {"archive": "11.0.1", "aws": "21.22.1", "azurerm": "14.23.1", "google": "16.12.1", "random": "12.0.1"}
_USE = re.compile(r'^\s*(resource|data)\s+"(\w+)"', re.MULTILINE)
_DOCS = re.compile(r"providers/([\w-]+/[\w-]+)/([\w.]+)/docs(?:/(resources|data-sources)/(\w+))?#(\w+)")
_BLOCK = re.compile(r"^\w+ block\.$")
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_PROVIDER = re.compile(r"\.provider\.\w+ProviderConfig$")
_META = "cdktf.TerraformMetaArguments"
_SECTIONS = {"resource": "resources", "data": "data-sources"}

Types = Mapping[str, Any]


def used(folder: Path) -> dict[str, set[str]]:
    """By `resource` and `data`, the types in all configurations below `folder`."""
    found: dict[str, set[str]] = {"resource": set(), "data": set()}
    for file in sorted(folder.rglob("*.tf")):
        for kind, name in _USE.findall(file.read_text(encoding="utf-8")):
            found[kind].add(name)
    return found


def assembly(wheel: Path) -> Types:
    """The types of the jsii assembly in a wheel, by their full names."""
    with zipfile.ZipFile(wheel) as archive:
        (packed,) = (name for name in archive.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(archive.read(packed))) as tar:
            member = tar.extractfile("package/.jsii")
            assert member is not None
            types: Types = json.load(member)["types"]
    return types


def extract(provider: str, types: Types, wanted: Mapping[str, set[str]]) -> dict[str, Any]:
    """What the provider says of itself and of the wanted types that are its own."""
    found: dict[str, Any] = {"provider": {}, "resource": {}, "data": {}}
    for name, one in types.items():
        docs = next(filter(None, map(_docs, one.get("properties", ()))), None)
        if docs is None:
            continue
        source, version, section, page, _ = docs
        found["source"], found["version"] = source, version
        if _PROVIDER.search(name):
            found["provider"] = _block(types, one)
        if _META not in one.get("interfaces", ()):
            continue  # a part of another
        for kind, folder in _SECTIONS.items():
            label = f"{provider}_{page}"
            if section == folder and label in wanted[kind]:
                found[kind][label] = {**_block(types, one), "tells": sorted(_told(types, name))}
    return found


def _docs(prop: Mapping[str, Any]) -> tuple[str, str, str | None, str | None, str] | None:
    said = prop.get("docs", {})
    found = list(_DOCS.finditer(f"{said.get('summary', '')}\n{said.get('remarks', '')}"))
    if not found:
        return None
    match = found[-1]  # the text before it may point elsewhere
    return match[1], match[2], match[3], match[4], match[5]


def _block(types: Types, struct: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their names, each with its kind and whether it is required."""
    return {"arguments": dict(sorted(_arguments(types, struct)))}


def _arguments(types: Types, struct: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for prop in struct.get("properties", ()):
        docs = _docs(prop)
        if docs is None:
            continue  # Terraform's own: count, for_each, lifecycle
        many, inner = _kind(prop["type"])
        found: dict[str, Any] = {"required": not prop.get("optional", False)}
        if inner in types:
            found["kind"] = "list" if many == "array" else many or "object"
            found |= {"block": bool(_BLOCK.match(prop["docs"].get("summary", ""))), **_block(types, types[inner])}
        else:
            found["kind"] = {"array": f"list of {inner}", "map": f"map of {inner}"}.get(many, inner)
        yield docs[-1], found


def _kind(said: Mapping[str, Any]) -> tuple[str, str]:
    """`array`, `map` or "", and the name of what is in it: of a primitive or of a type."""
    if "union" in said:
        rest = [one for one in said["union"]["types"] if one.get("fqn") != "cdktf.IResolvable"]
        # several ways to say it: the one that has more in it
        return max((_kind(one) for one in rest), key=lambda kind: (kind[0] == "array", "." in kind[1]))
    if "collection" in said:
        return said["collection"]["kind"], _kind(said["collection"]["elementtype"])[1]
    return "", said.get("primitive") or said["fqn"]


def _told(types: Types, config: str) -> Iterator[str]:
    """Names that an expression may read of it."""
    whole = types[config.removesuffix("Config")]
    names = {prop["name"] for prop in whole["properties"] if not prop.get("static")}
    given = {prop["name"]: docs[-1] for prop in types[config]["properties"] if (docs := _docs(prop))}
    for name in names:
        if not (name.endswith("Input") and name.removesuffix("Input") in names):
            yield given.get(name) or _CAPITAL.sub("_", name).lower()


def download(folder: Path) -> None:
    """The wheels, into `folder`."""
    wanted = [f"cdktf-cdktf-provider-{name}=={version}" for name, version in PROVIDERS.items()]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--dest", str(folder), *wanted], check=True)


def texts(folder: Path, wanted: Mapping[str, set[str]]) -> Iterator[tuple[str, str]]:
    """The extract by the names of its files, from the wheels in `folder`."""
    for provider, version in PROVIDERS.items():
        wheel = folder / f"cdktf_cdktf_provider_{provider}-{version}-py3-none-any.whl"
        found = {"package": f"cdktf-cdktf-provider-{provider} {version}", **extract(provider, assembly(wheel), wanted)}
        yield f"{provider}.json", json.dumps(found, indent=0, sort_keys=True) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    wanted = used(ROOT / "terraform")
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.packages or Path(scratch)
        if asked.packages is None:
            download(folder)
        found = dict(texts(folder, wanted))
    SCHEMAS.mkdir(parents=True, exist_ok=True)
    differ = [name for name, text in found.items() if _read(SCHEMAS / name) != text]
    if asked.check:
        print(f"not what the providers say: {', '.join(differ)}" if differ else "as the providers say")
        return bool(differ)
    for name, text in found.items():
        (SCHEMAS / name).write_text(text, encoding="utf-8")
    return 0


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
