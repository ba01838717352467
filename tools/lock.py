"""Resolve the dependencies of pyproject.toml and write them down with versions and hashes.

Owns the three files that pin what gets installed:

- ``requirements.txt``: the core and the development tools, what ``make setup`` installs;
- ``requirements-core.txt``: what ``pip install cloud-dispatch`` brings, at the same versions;
- ``requirements-bench.txt``: the core and the peers that the benchmarks measure against.

None of them says where packages come from: that is the business of whoever installs. A file that would name an index,
or a distribution without a hash, is refused and nothing is written.

Usage: ``python tools/lock.py [--upgrade]``. Without ``--upgrade`` the versions in the present files are kept wherever
pyproject.toml still allows them.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOL_ENVIRONMENT = ROOT / ".venv-lock"
TOOL = "pip-tools==7.6.2"
TIMEOUT_SECONDS = 1800
# The first file comes first: the others take its versions as constraints, so that a test of the core tests those.
FILES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("requirements.txt", ("--extra", "dev")),
    ("requirements-core.txt", ()),
    ("requirements-bench.txt", ("--extra", "bench", "--build-deps-for", "editable")),
)
OPTIONS = (
    "--quiet",
    "--generate-hashes",
    "--allow-unsafe",
    "--strip-extras",
    "--no-annotate",
    "--no-header",
    "--no-emit-index-url",
    "--no-emit-trusted-host",
    "--no-emit-find-links",
)
HEADER = "# Written by tools/lock.py (`make lock`) from pyproject.toml; not edited by hand.\n"


def ensure_tool() -> Path:
    """Return the path of pip-compile, installed in an environment of its own so that it is not one of our pins."""
    pip_compile = TOOL_ENVIRONMENT / "bin" / "pip-compile"
    if not pip_compile.exists():
        venv.create(TOOL_ENVIRONMENT, with_pip=True, clear=True)
        install = [str(TOOL_ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", TOOL]
        subprocess.run(install, check=True, timeout=TIMEOUT_SECONDS)
    return pip_compile


def complaint(text: str) -> str | None:
    """Say what is wrong with a lock file, or None: an address in it, an option of pip, or a pin without a hash."""
    for line in text.splitlines():
        stripped = line.strip()
        if "://" in stripped or (stripped.startswith("-") and not stripped.startswith("--hash=sha256:")):
            return f"it names an address or an option of pip: {stripped}"
    for pin in re.split(r"\n(?=[A-Za-z0-9])", text.replace("\\\n", " ")):
        if "==" in pin and "--hash=sha256:" not in pin:
            return f"a pin without a hash: {pin.split()[0]}"
    return None


def resolve(pip_compile: Path, name: str, selection: tuple[str, ...], folder: Path, *, upgrade: bool) -> str:
    """Resolve one selection of extras in a scratch folder and return the text of its lock file.

    Raises subprocess.CalledProcessError when the requirements contradict each other.
    """
    output = folder / name
    if (ROOT / name).exists() and not upgrade:
        shutil.copy(ROOT / name, output)
    command = [str(pip_compile), *OPTIONS, *selection, "--output-file", str(output)]
    first = folder / FILES[0][0]
    if output != first:
        command += ["--constraint", str(first)]
    subprocess.run([*command, str(ROOT / "pyproject.toml")], check=True, cwd=ROOT, timeout=TIMEOUT_SECONDS)
    return output.read_text()


def main(arguments: list[str]) -> int:
    """Write all lock files, or none. Returns the exit code."""
    if arguments not in ([], ["--upgrade"]):
        sys.stderr.write("usage: python tools/lock.py [--upgrade]\n")
        return 2
    pip_compile = ensure_tool()
    texts: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, selection in FILES:
            texts[name] = resolve(pip_compile, name, selection, Path(scratch), upgrade=bool(arguments))
            wrong = complaint(texts[name])
            if wrong is not None:
                sys.stderr.write(f"{name} was not written: {wrong}\n")
                return 1
    for name, text in texts.items():
        (ROOT / name).write_text(HEADER + text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
