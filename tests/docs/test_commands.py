"""What pages have people type: a shell understands it, and the programs have those commands and options."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import botocore.session
import pytest
from botocore import xform_name

from cloud_dispatch.cli.main import program
from tests.docs.pages import DOCS, blocks, pages, steps
from tests.docs.shell import commands

PROGRAMS: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "programs.toml").read_text())
_OPTION = re.compile(r"--?[a-zA-Z][a-zA-Z0-9-]*")
#: Programs whose help says every option.
ASKED = ("terraform", "gcloud")
#: Options of `aws` that are not of an operation.
_AWS = {"--region", "--output", "--query", "--profile"}


PAGES = {
    str(page.relative_to(DOCS)): page
    for page in pages()
    if re.search(r"^```(console|sh|bash)$", page.read_text(), re.M)
}


def typed(page: Path) -> list[str]:
    """Each command of its consoles, and its scripts."""
    consoles = [step.command for block in blocks(page, "console") for step in steps(block)]
    return consoles + [body for language in ("sh", "bash") for body in blocks(page, language)]


def options(words: list[str]) -> set[str]:
    """Those that are given, of the command itself: after `--` another one begins."""
    own = words[: words.index("--")] if "--" in words else words
    return {option[0] for word in own if (option := _OPTION.fullmatch(word.partition("=")[0]))}


def complaint(words: list[str]) -> str:
    """What is wrong with a command; "" where nothing is."""
    program, rest = Path(words[0]).name, words[1:]
    if program == "cloud-dispatch":
        return _of_our_own(rest)
    if program == "aws":
        return _of_aws(rest)
    names = [" ".join([program, *rest[:count]]) for count in range(len(rest), -1, -1)]
    known = next((name for name in names if name in PROGRAMS), None)
    if known is None:
        return f"programs.toml has no {program} {' '.join(rest[:2])}"
    return "".join(f"{known} has no {one}; " for one in sorted(options(words) - set(PROGRAMS[known])))


def _of_our_own(rest: list[str]) -> str:
    position: object = program()
    while rest and rest[0] in getattr(position, "commands", {}):
        position = position.commands[rest.pop(0)]  # type: ignore[attr-defined]
    if getattr(position, "commands", {}):
        return "cloud-dispatch has no such command"
    known = {name for p in position.params for name in (*p.opts, *p.secondary_opts)}  # type: ignore[attr-defined]
    return "".join(f"cloud-dispatch has no {one} there; " for one in sorted(options(rest) - known - {"--help"}))


def _of_aws(rest: list[str]) -> str:
    session = botocore.session.get_session()
    if rest[0] not in session.get_available_services():
        return f"aws has no {rest[0]}"
    model = session.get_service_model(rest[0])
    found = {xform_name(name, "-"): name for name in model.operation_names}
    if rest[1] not in found:
        return f"aws {rest[0]} has no {rest[1]}"
    shape = model.operation_model(found[rest[1]]).input_shape
    known = {f"--{xform_name(name, '-')}" for name in (shape.members if shape else ())} | _AWS
    missing = {f"--{xform_name(name, '-')}" for name in (shape.required_members if shape else ())} - options(rest)
    return "".join(f"aws {rest[0]} {rest[1]}: {one}; " for one in sorted((options(rest) - known) | missing))


@pytest.mark.parametrize("name", PAGES)
def test_a_shell_understands_it(name: str) -> None:
    for text in typed(PAGES[name]):
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), text


@pytest.mark.parametrize("name", PAGES)
def test_the_programs_have_what_is_asked_of_them(name: str) -> None:
    found = [words for text in typed(PAGES[name]) for words in commands(text)]
    assert [f"{' '.join(words)}: {wrong}" for words in found if (wrong := complaint(words))] == []


@pytest.mark.parametrize(("text", "words"), [
    ("sudo cloud-dispatch tasks --nonsense", "cloud-dispatch has no --nonsense there"),
    ("cloud-dispatch nonsense", "no such command"),
    ('echo "$(cloud-dispatch tasks --nonsense | jq -r .x)"', "no --nonsense"),
    ("aws ssm start-session", "--target"),
    ("aws ssm start-sessions --target x", "has no start-sessions"),
    ("TOKEN=$(terraform output -jso x) cloud-dispatch tasks", "terraform output has no -jso"),
    ("while read -r one; do nonsense --this; done", "no nonsense"),
    ("az role definition create --role-definitions x < file", "has no --role-definitions"),
])  # fmt: skip
def test_mistakes_are_found(text: str, words: str) -> None:
    """Wherever in a line they are."""
    assert words in "".join(complaint(one) for one in commands(text))


@pytest.mark.parametrize(
    "name", [name for name in PROGRAMS if PROGRAMS[name] and name.split()[0] in ("terraform", "gcloud")]
)
def test_the_program_itself_has_these_options(name: str) -> None:
    """Where it is on the machine."""
    program, *rest = name.split()
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not on this machine")
    done = subprocess.run([found, *rest, "--help"], capture_output=True, text=True, check=False, timeout=60)
    assert [one for one in PROGRAMS[name] if one not in done.stdout + done.stderr] == []


def test_every_entry_is_used() -> None:
    """The table holds what pages use and no more."""
    used = {
        " ".join([Path(words[0]).name, *words[1:]])
        for page in PAGES.values()
        for text in typed(page)
        for words in commands(text)
    }
    assert [name for name in PROGRAMS if not any(one == name or one.startswith(name + " ") for one in used)] == []
