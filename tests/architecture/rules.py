"""The rules of the house that a syntax tree can show, each a function from sources to findings.

A finding is a line of text that says where, what and what to do instead. Exemptions are given by the tests, with their
reasons; an exemption that exempts nothing is a finding too, so that the lists shrink when the code gets better.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

from tests.architecture.source import Source

Exemptions = Mapping[str, str]  # path, or folder ending in "/" -> why

MODULE_LINES = 500
FUNCTION_LINES = 80
#: Modules that came into the standard library after 3.9.
NEWER_THAN_39 = frozenset({"tomllib"})

_CHANCE = ("random.", "secrets.", "numpy.random.")
_CLOCKS = frozenset(
    {
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "time.gmtime",
        "time.localtime",
        "time.monotonic",
        "time.monotonic_ns",
        "time.perf_counter",
        "time.perf_counter_ns",
        "time.sleep",
        "time.time",
        "time.time_ns",
    }
)
_IDENTITY = frozenset({"os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7"})
_THREADS = frozenset(
    {
        "asyncio.to_thread",
        "anyio.to_thread",
        "anyio.to_thread.run_sync",
        "concurrent.futures.ProcessPoolExecutor",
        "concurrent.futures.ThreadPoolExecutor",
        "multiprocessing.Pool",
        "multiprocessing.Process",
        "starlette.concurrency.run_in_threadpool",
        "threading.Thread",
    }
)
#: Methods, whoever's they are.
_TO_THREADS = frozenset({"run_in_executor", "run_in_threadpool"})


def exempt(findings: Iterable[tuple[str, str]], exemptions: Exemptions) -> list[str]:
    """The `(path, finding)`s that no exemption covers, and the exemptions that cover none."""
    used: set[str] = set()
    left = []
    for path, finding in findings:
        keys = [key for key in exemptions if path == key or (key.endswith("/") and path.startswith(key))]
        used.update(keys)
        if not keys:
            left.append(finding)
    stale = [f"{key}: exempt ({exemptions[key]}) but nothing there needs it: take it out" for key in exemptions]
    return left + [text for key, text in zip(exemptions, stale, strict=True) if key not in used]


def _references(
    files: Iterable[Source], forbidden: Callable[[str], bool], roots: Iterable[str], why: str
) -> Iterator[tuple[str, str]]:
    """What is forbidden begins with one of `roots`: a file that does not even say one has nothing of it."""
    said = re.compile(rf"\b(?:{'|'.join(sorted(roots))})\b")
    for source in files:
        if not said.search(source.text):
            continue
        seen: set[tuple[int, str]] = set()
        for line, name in source.references():
            if forbidden(name) and (line, name) not in seen:
                seen.add((line, name))
                yield source.path, f"{source.path}:{line}: {name}: {why}"


def unclocked(files: Iterable[Source], exemptions: Exemptions) -> list[str]:
    """Uses of a clock, of chance or of random identities: they are injected, so that a run can be replayed."""

    def forbidden(name: str) -> bool:
        return name in _CLOCKS or name in _IDENTITY or name.startswith(_CHANCE)

    roots = {name.split(".")[0] for name in (*_CLOCKS, *_IDENTITY, *_CHANCE)}
    return exempt(_references(files, forbidden, roots, "take it from the clock or entropy port"), exemptions)


def threads(files: Iterable[Source], exemptions: Exemptions) -> list[str]:
    """Work moved to threads or processes anywhere but behind the executor port."""
    files = list(files)
    roots = {name.split(".")[0] for name in _THREADS}
    findings = list(_references(files, _THREADS.__contains__, roots, "go through the executor port"))
    for source in files:
        if not any(method in source.text for method in _TO_THREADS):
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and node.attr in _TO_THREADS:
                where = f"{source.path}:{node.lineno}"
                findings.append((source.path, f"{where}: {node.attr}: go through the executor port"))
    return exempt(findings, exemptions)


def oversized(files: Iterable[Source], exemptions: Exemptions) -> list[str]:
    """Modules and functions so long that a concept is missing. Exempt a function as `path::name`."""
    findings: list[tuple[str, str]] = []
    for source in files:
        lines = source.text.count("\n")
        if lines > MODULE_LINES:
            findings.append((source.path, f"{source.path}: {lines} lines (at most {MODULE_LINES}): split it"))
        if lines < FUNCTION_LINES:
            continue
        for node in _functions(source.tree):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                where = f"{source.path}::{node.name}"
                findings.append((where, f"{where}: {length} lines (at most {FUNCTION_LINES}): split it"))
    return exempt(findings, exemptions)


def _functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All that are defined in `node`, however deep. Expressions, most of a tree, define none."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield inner
        if not isinstance(inner, ast.expr):
            yield from _functions(inner)


def beyond_python_39(files: Iterable[Source], allowed: tuple[str, ...]) -> list[str]:
    """What a rented machine's Python 3.9 can't read or does not have.

    Only the standard library of 3.9 and modules that start with one of `allowed` may be imported. Annotations may not
    use `X | Y` where they are evaluated: without the __future__ import, and in the wire messages
    (their codec reads them).
    """
    findings = []
    for source in files:
        try:
            tree = ast.parse(source.text, filename=source.path, feature_version=(3, 9))
        except SyntaxError as error:
            findings.append(f"{source.path}:{error.lineno}: not Python 3.9: {error.msg}")
            continue
        evaluated = "/wire/" in source.path or source.names.get("annotations") != "__future__.annotations"
        found = [*_imports_beyond(tree, allowed), *(_unions_in_annotations(tree) if evaluated else ())]
        findings += [f"{source.path}:{line}: {text}" for line, text in found]
    return findings


def _imports_beyond(tree: ast.Module, allowed: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        for module in _imported(node):
            top = module.split(".")[0]
            of_39 = top in sys.stdlib_module_names and top not in NEWER_THAN_39
            if not of_39 and not any(module == name or module.startswith(f"{name}.") for name in allowed):
                yield (
                    getattr(node, "lineno", 0),
                    f"imports {module}: only the standard library and {', '.join(allowed)}",
                )


def _unions_in_annotations(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.AnnAssign, ast.arg)) and node.annotation is not None:
            parts = ast.walk(node.annotation)
            if any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr) for part in parts):
                yield node.lineno, "X | Y in an annotation: 3.9 can't evaluate it, write Optional or Union"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    return []


#: Hosts of package indexes and paths of the machines that this was written on. The brackets keep this file clean.
_FOREIGN = re.compile(
    r"""
    (?:^|[^\w.-])(?:
        (?:[\w-]+\.)*p[y]pi\.(?:org|python\.org|io)
      | files\.python[h]osted\.org
      | (?:[\w-]+\.)*np[m]js\.(?:org|com)
      | (?:deb|security|archive|snapshot)\.(?:debian|ubunt[u])\.(?:org|com)
      | proxy\.golan[g]\.org
      | (?:static\.|index\.)?crate[s]\.io
    )
    | (?:--)?(?:extra-)?index-url[ =]+\S*:/[/]
    | /[w]ork/(?:main|shared|\.library)
    | /[o]pt/(?:pypi|wheels)
    | /[r]oot/\.
    | /[h]ome/(?!user\b|ubuntu\b|task\b|dispatch\b)[a-z][\w-]*/
    | /[U]sers/\w+/
    """,
    re.VERBOSE,
)


def foreign(path: str, text: str) -> list[str]:
    """Lines of a file that name a package index or a path of some developer's machine."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _FOREIGN.search(line)
        if match:
            found.append(f"{path}:{number}: {match.group().strip()}: say it without the host or the machine's path")
    return found
