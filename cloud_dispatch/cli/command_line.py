"""From what was typed to task inputs. Owns `:::` lists, the `{}` family, and the options of a task as input fields."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from cloud_dispatch.domain.errors import InvalidInput

SEPARATOR = ":::"
#: {} {.} {/} {//} {/.} of all values or, with a number, of one list; {#} is the task's number from 1.
_PLACEHOLDER = re.compile(r"\{(#|(\d*)(//|/\.|/|\.)?)\}")
MAX_TASKS = 100_000


def split_lists(words: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The command before the first `:::`, and the lists after each; InvalidInput for an empty one."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == SEPARATOR:
            parts.append([])
        else:
            parts[-1].append(word)
    for position, values in enumerate(parts[1:], 1):
        if not values:
            raise InvalidInput("expected at least one value after :::", place=f"list {position}")
    return parts[0], parts[1:]


def commands(words: Sequence[str]) -> list[tuple[str | list[str], Mapping[str, str]]]:
    """One command for each combination of the `:::` lists, with what its placeholders stand for.

    A command that is one word with spaces in it is for the shell, and values are quoted for it; else it is argv, and a
    `{}` that stands alone becomes one argument for each list. Without any placeholder the values go to the end.
    """
    template, lists = split_lists(words)
    if not template:
        raise InvalidInput("expected a command (or --file)", hint="cloud-dispatch run -- echo hi")
    shell = len(template) == 1 and any(c.isspace() for c in template[0].strip())
    if not lists:
        return [(template[0] if shell else template, {})]
    total = 1
    for values in lists:
        total *= len(values)
    if total > MAX_TASKS:
        raise InvalidInput(f"expected at most {MAX_TASKS} tasks, the lists make {total}")
    if not any(_PLACEHOLDER.search(word) for word in template):
        template = [f"{template[0]} {{}}"] if shell else [*template, "{}"]
    _check_numbers(template, len(lists))
    return [
        (_command(template, shell, combination, number), {"#": str(number), **_bindings(combination)})
        for number, combination in enumerate(itertools.product(*lists), 1)
    ]


def _check_numbers(template: Sequence[str], count: int) -> None:
    for word in template:
        for match in _PLACEHOLDER.finditer(word):
            if match[2] and not 1 <= int(match[2]) <= count:
                raise InvalidInput(f"{match[0]}: there are {count} lists", place="command")


def _command(template: Sequence[str], shell: bool, combination: Sequence[str], number: int) -> str | list[str]:
    if shell:
        return _fill(template[0], combination, number, quoted=True)
    argv: list[str] = []
    for word in template:
        argv.extend(combination if word == "{}" else [_fill(word, combination, number, quoted=False)])
    return argv


def _bindings(combination: Sequence[str]) -> dict[str, str]:
    return {str(position): value for position, value in enumerate(combination, 1)}


def _fill(text: str, combination: Sequence[str], number: int, *, quoted: bool) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1] == "#":
            return str(number)
        chosen = [combination[int(match[2]) - 1]] if match[2] else combination
        values = [_modified(value, match[3] or "") for value in chosen]
        return " ".join(shlex.quote(value) if quoted else value for value in values)

    return _PLACEHOLDER.sub(replace, text)


def _modified(value: str, how: str) -> str:
    """`a/b.c` as `{.}` a/b, `{/}` b.c, `{//}` a, `{/.}` b."""
    if how == "//":
        return os.path.dirname(value) or "."
    if how.startswith("/"):
        value = os.path.basename(value)
    return os.path.splitext(value)[0] if how.endswith(".") else value


def fill_name(name: str, bindings: Mapping[str, str]) -> str:
    """A name with `{}`, `{1}`, `{#}` and their kin replaced by what one task got."""
    values = [bindings[str(position)] for position in range(1, len(bindings))]
    return _fill(name, values, int(bindings["#"]), quoted=False) if bindings else name


def fields_of(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The options that were given, as fields of a task input; InvalidInput for a text that is not of its form."""
    plain = (
        "name", "cpus", "memory", "disk", "pool", "cwd", "max_runtime", "expected_runtime", "max_attempts", "priority",
        "checkpoint_signal", "project", "user", "max_per_instance", "exclusive", "array",
    )  # fmt: skip
    for name, value in options.items():
        if value == "":  # as a shell makes of a variable that is not set: no key, no limit, no bound would hold
            hint = "leave it out where it is not asked"
            raise InvalidInput("is empty", place="--" + name.replace("_", "-"), hint=hint)
    fields = {name: options[name] for name in plain if options.get(name)}
    if options.get("max_attempts") is not None:
        fields["max_attempts"] = options["max_attempts"]  # 0 is wrong, and shall be told so
    if options.get("array") is not None:
        fields["array"] = options["array"]
    if options.get("gpus") or options.get("gpu_type") or options.get("gpu_memory"):
        fields["gpus"] = {"count": options.get("gpus") or 1}
        fields["gpus"] |= {"type": options["gpu_type"]} if options.get("gpu_type") else {}
        fields["gpus"] |= {"memory": options["gpu_memory"]} if options.get("gpu_memory") else {}
    if options.get("no_preempt"):
        fields["preemptible"] = False
    if options.get("key"):
        fields["idempotency_key"] = options["key"]
    if options.get("retry"):
        fields["retry"] = list(options["retry"])
    if options.get("env"):
        fields["env"] = dict(_variable(text, environment) for text in options["env"])
    if options.get("label"):
        fields["labels"] = dict(_pair(text, "--label", "KEY=VALUE") for text in options["label"])
    if options.get("sweep"):
        fields["sweep"] = _sweep(options["sweep"])
    if options.get("inputs"):
        pairs = (_pair(text, "--input", "PATH=URL") for text in options["inputs"])
        fields["inputs"] = [{"path": path, "url": url} for path, url in pairs]
    if options.get("outputs"):
        fields["outputs"] = [_output(text) for text in options["outputs"]]
    return fields


def _sweep(texts: Sequence[str]) -> dict[str, list[str]]:
    swept: dict[str, list[str]] = {}
    for text in texts:
        name, values = _pair(text, "--sweep", "NAME=A,B,C")
        if name in swept:
            hint = f"all values of a name in one: --sweep {name}={','.join(swept[name])},{values}"
            raise InvalidInput(f"{name!r} is there twice", place="--sweep", hint=hint)
        swept[name] = values.split(",")
    return swept


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise InvalidInput(f"expected {form}, got {text!r}", place=option)
    return name, value


def _variable(text: str, environment: Mapping[str, str]) -> tuple[str, str]:
    if "=" in text:
        return _pair(text, "--env", "NAME=VALUE")
    if text not in environment:
        raise InvalidInput(f"{text!r} is not in your environment", place="--env", hint="give NAME=VALUE")
    return text, environment[text]


def _output(text: str) -> str | dict[str, str]:
    path, found, url = text.partition("=")
    return {"path": path, "url": url} if found else text
