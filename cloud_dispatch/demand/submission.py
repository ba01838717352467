"""Submitted tasks. Owns the input's fields, and the one way from input to validated, expanded `TaskSpec`s.

All or nothing: one bad task refuses the whole submission, with its place. Knows neither HTTP nor files.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from cloud_dispatch.demand import fields, sweep
from cloud_dispatch.demand.texts import Texts, check_sizes, check_texts
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import ArrayId
from cloud_dispatch.domain.resources import MIB, Resources
from cloud_dispatch.domain.shape import Labels, Shape
from cloud_dispatch.domain.task import TaskSpec, Transfer
from cloud_dispatch.wire.places import tells_attempts_apart

_AT = re.compile(r" - at `(?:key` in `)?\$\.?([^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_DEFAULT = Shape()
_TEXTS = ("name", "cwd", "project", "user", "idempotency_key", "pool")


class GpuInput(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """GPUs: how many, of which type, with how much memory each."""

    count: int = 1
    type: str = ""
    memory: int | str = 0


class TransferInput(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A file to bring or to take."""

    path: str
    url: str = ""


class TaskInput(msgspec.Struct, forbid_unknown_fields=True):
    """A task as a user writes it (docs/reference/task-file.md). `command`: text for the shell, or a list as argv."""

    command: str | list[str]
    name: str = ""
    env: dict[str, str | int | float] = {}
    cwd: str = ""
    cpus: int | float | str | None = None
    memory: int | str | None = None
    disk: int | str | None = None
    gpus: int | GpuInput = 0
    labels: dict[str, str] = {}
    inputs: list[TransferInput] = []
    outputs: list[str | TransferInput] = []
    max_runtime: int | float | str | None = None
    expected_runtime: int | float | str | None = None
    checkpoint_signal: str = ""
    max_attempts: int | None = None
    retry: list[str] | None = None
    priority: int = 0
    project: str = ""
    user: str = ""
    preemptible: bool = True
    max_per_instance: int = 0
    exclusive: bool = False
    pool: str = ""
    idempotency_key: str = ""
    array: int | None = None
    sweep: dict[str, list[str | int | float | bool]] = {}


FIELDS = tuple(TaskInput.__struct_fields__)


#: What the values of tables are.
_HOLDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "env": ((str, int, float), "text or a number"), "labels": ((str,), "text"), "sweep": ((list, tuple), "a list"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SubmissionLimits:
    """Bounds on one submission: tasks after expansion, bytes of one task's environment, and bytes of all tasks after
    expansion, as JSON with every field: what the statestore has to take in one commit."""

    tasks: int = 100_000
    environment_bytes: int = 131_072
    task_bytes: int = 256 * MIB


def size_of(spec: TaskSpec) -> int:
    """Bytes of one task as JSON with every field: what it takes in the statestore, nearly."""
    return len(msgspec.json.encode(spec))


def may_be_many(inputs: Iterable[Any]) -> bool:
    """Whether any of `inputs` may stand for more than one task."""
    return any(isinstance(one, Mapping) and ("array" in one or "sweep" in one) for one in inputs)


def parse(
    inputs: Iterable[Any],
    place_prefix: str = "tasks",
    *,
    places: Sequence[str] | None = None,
    limits: SubmissionLimits = SubmissionLimits(),
    new_array: Callable[[], str] | None = None,
) -> tuple[TaskSpec, ...]:
    """The tasks that `inputs` (plain JSON values, one a task) ask for, arrays and sweeps expanded, in order.

    InvalidInput for the first bad one, at `tasks[3].cpus`, or with `places` (one an input) at `tasks.jsonl:17: cpus`;
    then nothing is returned. `new_array` makes the id of an array or sweep; one with an idempotency key gets its id
    from the key instead, so that submitting it again gives equal tasks. Without `new_array` ids come from the content.
    """
    specs: list[TaskSpec] = []
    size = 0
    for position, raw in enumerate(inputs):
        place = places[position] if places is not None else f"{place_prefix}[{position}]"
        separator = ": " if places is not None else "."
        try:
            task = _convert(raw)
            total = sweep.count_of(task.array, task.sweep)
            if len(specs) + total > limits.tasks:
                raise ValueError(f"expected at most {limits.tasks} tasks in one submission, arrays and sweeps expanded")
            single = task.array is None and not task.sweep
            named = new_array or _array_of_content(raw, position)
            for spec in [_spec(task, limits)] if single else _expanded(task, limits, named):
                size += size_of(spec)
                if size > limits.task_bytes:  # before the next one is made: the body's size says nothing about theirs
                    raise ValueError(
                        f"expected at most {limits.task_bytes} bytes of tasks in one submission, arrays and sweeps"
                        " expanded (submit in parts, or put what is long and the same for all into a file)"
                    )
                specs.append(spec)
        except ValueError as error:
            raise _at(place, separator, str(error)) from None
    return tuple(specs)


def _at(place: str, separator: str, text: str) -> InvalidInput:
    """The error for `field: message` (or a message without field) in the task at `place`."""
    field, found, message = text.partition(": ")
    if not found or " " in field:
        return InvalidInput(text, place=place)
    return InvalidInput(message, place=f"{place}{separator}{field}")


def _convert(raw: Any) -> TaskInput:
    """The input's fields with their types checked; ValueError("field: what was expected")."""
    if isinstance(raw, TaskInput):
        return raw
    try:
        return msgspec.convert(raw, TaskInput)
    except msgspec.ValidationError as error:
        raise ValueError(_explain(raw, str(error))) from None


def _explain(raw: Any, text: str) -> str:
    """msgspec's message in our words, with the field in front."""
    if not isinstance(raw, Mapping):
        return f"expected a task (an object with at least a command), got {fields.shorten(raw)}"
    at = _AT.search(text)
    path = at[1] if at else ""
    inside = f"{path}: " if path else ""
    if unknown := _UNKNOWN.search(text):
        known = FIELDS if not path else ("count", "type", "memory") if path == "gpus" else ("path", "url")
        near = difflib.get_close_matches(unknown[1], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"expected one of: {', '.join(known)}"
        key = unknown[1] if unknown[1].isidentifier() else fields.shorten(unknown[1]).replace(" ", "_")
        return f"{path + '.' if path else ''}{key}: no such field ({hint})"
    if missing := _MISSING.search(text):
        return f"{path + '.' if path else ''}{missing[1]}: is missing"
    field = re.split(r"[.\[]", path, maxsplit=1)[0]
    if field not in fields.EXPECTED:
        return f"{inside}{text}"
    if field in _HOLDS and isinstance(raw.get(field), Mapping) and (wrong := _wrong_value(field, raw[field])):
        return wrong
    if field == path or "[...]" in path:
        return f"{field}: expected {fields.EXPECTED[field]}, got {fields.shorten(raw.get(field))}"
    message = text[: at.start()] if at else text
    return f"{path}: {message.replace('`', '').replace('Expected', 'expected').replace('array', 'list')}"


def _wrong_value(field: str, table: Mapping[Any, Any]) -> str:
    """Of a table of values which one is of the wrong type: it alone is shown, the others may be secrets."""
    kinds, expected = _HOLDS[field]
    for key, value in table.items():
        if isinstance(value, bool) or not isinstance(value, kinds):
            name = str(key) if str(key).isidentifier() else fields.shorten(key).replace(" ", "_")
            return f"{field}.{name}: expected {expected}, got {fields.shorten(value)}"
    return ""


def _array_of_content(raw: Any, position: int) -> Callable[[], str]:
    def name() -> str:
        text = json.dumps([position, raw], default=repr, sort_keys=True)
        return "a" + blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()

    return name


def _expanded(task: TaskInput, limits: SubmissionLimits, new_array: Callable[[], str]) -> Iterator[TaskSpec]:
    """One spec for each member of the task's array and sweep."""
    if task.idempotency_key:
        array = "k" + blake2b(task.idempotency_key.encode("utf-8", "replace"), digest_size=8).hexdigest()
    else:
        array = new_array()
    words = [task.command] if isinstance(task.command, str) else task.command
    texts = [*words, task.name, *(value for value in task.env.values() if isinstance(value, str))]
    if idle := sweep.unused(list(task.sweep), texts):
        raise ValueError(f"sweep.{idle}: expected {{{idle}}} in the command, the name or a value of env")
    substitute = sweep.substitution([*task.sweep, sweep.INDEX])
    for index, binding in enumerate(sweep.bindings(task.array, task.sweep)):
        command = task.command
        member = msgspec.structs.replace(
            task,
            command=substitute(command, binding)
            if isinstance(command, str)
            else [substitute(argument, binding) for argument in command],
            name=substitute(task.name, binding),
            env={
                key: substitute(value, binding) if isinstance(value, str) else value for key, value in task.env.items()
            },
            idempotency_key=f"{task.idempotency_key}/{index}" if task.idempotency_key else "",
        )
        yield _spec(member, limits, ArrayId(array), index)


def _spec(task: TaskInput, limits: SubmissionLimits, array: ArrayId = ArrayId(""), index: int = 0) -> TaskSpec:
    """The validated task; ValueError("field: what was expected")."""
    command = task.command
    argv, shell = ((), command) if isinstance(command, str) else (tuple(command), "")
    env = tuple((key, fields.text_of(value)) for key, value in sorted(task.env.items()))
    inputs = tuple(_input(i, item) for i, item in enumerate(task.inputs)) if task.inputs else ()
    outputs = _outputs(task.outputs) if task.outputs else ()
    labels = tuple(sorted(task.labels.items())) if task.labels else ()
    others = {field: getattr(task, field) for field in _TEXTS}
    check_texts(Texts(argv, shell, env, labels, inputs, outputs, others))
    check_sizes(argv, shell, env, limits.environment_bytes)
    return TaskSpec(
        argv=argv,
        shell=shell,
        name=fields.read("name", fields.name, task.name),
        env=env,
        cwd=fields.read("cwd", fields.folder, task.cwd) if task.cwd else "",
        shape=_shape(
            task.cpus, task.memory, task.disk, task.gpus, labels, task.preemptible, task.exclusive,
            task.max_per_instance, task.pool,
        ),
        inputs=inputs,
        outputs=outputs,
        max_runtime_ms=_runtime("max_runtime", task.max_runtime),
        expected_runtime_ms=_runtime("expected_runtime", task.expected_runtime),
        retry=fields.retry_rules(None if task.retry is None else tuple(task.retry), task.max_attempts),
        priority=_priority(task.priority),
        project=fields.read("project", fields.word, task.project),
        user=fields.read("user", fields.word, task.user),
        idempotency_key=fields.read("idempotency_key", fields.word, task.idempotency_key),
        array_id=array,
        array_index=index,
        checkpoint_signal=fields.read("checkpoint_signal", fields.checkpoint_signal, task.checkpoint_signal),
    )  # fmt: skip


def _runtime(field: str, value: int | float | str | None) -> int:
    return 0 if value is None else fields.read(field, fields.duration, value)


def _priority(value: int) -> int:
    if not -fields.MAX_PRIORITY <= value <= fields.MAX_PRIORITY:
        raise ValueError(f"priority: expected a whole number from -{fields.MAX_PRIORITY} to {fields.MAX_PRIORITY}")
    return value


@lru_cache(maxsize=4096, typed=True)
def _shape(
    cpus: int | float | str | None,
    memory: int | str | None,
    disk: int | str | None,
    gpus: int | GpuInput,
    labels: Labels,
    preemptible: bool,
    exclusive: bool,
    max_per_instance: int,
    pool: str,
) -> Shape:
    """The shape; tasks that ask for the same share one."""
    if max_per_instance < 0 or max_per_instance > fields.MAX_PER_INSTANCE:
        raise ValueError(f"max_per_instance: expected a whole number from 0 to {fields.MAX_PER_INSTANCE}")
    gpu = gpus if isinstance(gpus, GpuInput) else GpuInput(count=gpus)
    if not 0 <= gpu.count <= fields.MAX_GPUS:
        raise ValueError(f"gpus: expected a whole number from 0 to {fields.MAX_GPUS}, got {gpu.count}")
    gpu_memory = fields.read("gpus.memory", fields.size, gpu.memory)
    if gpu.count == 0 and (gpu.type or gpu_memory):
        raise ValueError("gpus.count: expected at least 1 where a type or memory is asked for")
    default = _DEFAULT.resources
    return Shape(
        resources=Resources(
            default.cpus_milli if cpus is None else fields.read("cpus", fields.cpus, cpus),
            default.memory if memory is None else fields.read("memory", fields.memory, memory),
            0 if disk is None else fields.read("disk", fields.size, disk),
            gpu.count,
        ),
        gpu_type=fields.read("gpus.type", fields.word, gpu.type),
        gpu_memory=gpu_memory,
        labels=_labels(labels),
        preemptible=preemptible,
        exclusive=exclusive,
        max_per_instance=max_per_instance,
        pool=fields.read("pool", fields.word, pool),
    )


def _labels(labels: Labels) -> Labels:
    for key, value in labels:
        fields.read("labels", fields.word, key)
        fields.read(f"labels.{key}" if key.isidentifier() else "labels", fields.word, value)
        if not key:
            raise ValueError("labels: expected names that are not empty")
    return labels


def _file(value: str) -> str:
    """Where a file is below the working folder, or an output's folder."""
    if value.endswith("/"):
        raise ValueError(f"expected a name without a slash at its end, got {fields.shorten(value)}")
    if "://" in value:  # whoever writes that means to store it there, and would be told at the end of the work
        raise ValueError("expected a path below the working folder, got a URL: say both, the path and its url")
    return fields.relative_path(value)


def _input(position: int, item: TransferInput) -> Transfer:
    path = fields.read(f"inputs[{position}].path", _file, item.path)
    return Transfer(path, fields.read(f"inputs[{position}].url", fields.url, item.url))


def _outputs(items: Sequence[str | TransferInput]) -> tuple[Transfer, ...]:
    taken: dict[str, Transfer] = {}
    urls: dict[str, str] = {}  # of single files, with their paths
    for position, item in enumerate(items):
        given = TransferInput(item) if isinstance(item, str) else item
        place = f"outputs[{position}]"
        path = fields.read(place if isinstance(item, str) else f"{place}.path", _file, given.path)
        if path in taken:
            raise ValueError(f"{place}: expected each output once, got {fields.shorten(path)} again")
        url = fields.read(f"{place}.url", fields.url, given.url) if given.url else ""
        if url in urls:
            raise ValueError(
                f"{place}.url: expected another than that of {fields.shorten(urls[url])}, which it would replace"
            )
        if url and not url.endswith("/"):
            urls[url] = path
        if url and not tells_attempts_apart(url):
            raise ValueError(
                f"{place}.url: expected {{token}} in its path (with http and https in path or query), so that each "
                "attempt stores under a name of its own"
            )
        taken[path] = Transfer(path, url)
    return tuple(taken.values())
