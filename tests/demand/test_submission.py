"""Submitted tasks: what is valid arrives whole, what is not is refused whole, with its place."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.demand.submission import FIELDS, SubmissionLimits, parse
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.resources import GIB, MIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import (
    CHECKPOINT_SIGNALS,
    MACHINE_CAUSES,
    RETRYABLE,
    Cause,
    RetryRules,
    TaskSpec,
    Transfer,
)
from cloud_dispatch.wire.messages import TRANSFER_SCHEMES
from tests.wire.test_places import ALIKE

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
word = st.text(st.characters(categories=("L", "N")), max_size=20)
path = st.lists(st.text("abcdé-", min_size=1, max_size=5), min_size=1, max_size=3).map("/".join)
names = st.text("ABCDEFÄ_", min_size=1, max_size=6)


@st.composite
def tasks(draw: st.DrawFn) -> tuple[dict[str, Any], TaskSpec]:
    """A valid input and the task that it means, made side by side."""
    argv = draw(st.lists(text, max_size=4).map(lambda rest: ("run", *rest)))
    env = draw(st.dictionaries(names, text, max_size=3))
    labels = draw(st.dictionaries(names, word, max_size=3))
    outputs = draw(st.lists(path, max_size=3, unique=True))
    causes = draw(st.frozensets(st.sampled_from(sorted(RETRYABLE)), max_size=3))
    codes = draw(st.frozensets(st.integers(1, 255), max_size=3))
    cpus, memory, disk = draw(st.integers(1, 10**6)), draw(st.integers(2**20, 2**40)), draw(st.integers(0, 2**40))
    gpus, attempts = draw(st.integers(0, 8)), draw(st.integers(1, 1000))
    runtime, priority = draw(st.integers(1, 10**9)), draw(st.integers(-1000, 1000))
    name, project, pool = draw(text), draw(word), draw(word)
    preemptible, exclusive = draw(st.booleans()), draw(st.booleans())
    checkpoint = draw(st.sampled_from(["", *CHECKPOINT_SIGNALS]))
    given_input = {
        "command": list(argv), "env": env, "labels": labels, "outputs": outputs, "name": name, "project": project,
        "pool": pool, "retry": [*causes, *(f"exit-code:{code}" for code in codes)], "max_attempts": attempts,
        "cpus": f"{cpus // 1000}.{cpus % 1000:03d}", "memory": memory, "disk": disk, "gpus": gpus,
        "max_runtime": f"{runtime}ms", "priority": priority, "preemptible": preemptible, "exclusive": exclusive,
        "checkpoint_signal": checkpoint,
    }  # fmt: skip
    meant = TaskSpec(
        argv=argv, name=name, env=tuple(sorted(env.items())), outputs=tuple(Transfer(item) for item in outputs),
        shape=Shape(
            Resources(cpus, memory, disk, gpus), labels=tuple(sorted(labels.items())), preemptible=preemptible,
            exclusive=exclusive, pool=pool,
        ),
        retry=RetryRules(attempts, causes, codes), max_runtime_ms=runtime, priority=priority, project=project,
        checkpoint_signal=checkpoint,
    )  # fmt: skip
    return given_input, meant


@given(st.lists(tasks(), max_size=5))
def test_valid_tasks_arrive_whole_and_in_order(pairs: list[tuple[dict[str, Any], TaskSpec]]) -> None:
    """Every field of every task says after parsing what it said before."""
    assert parse([given_input for given_input, _ in pairs]) == tuple(meant for _, meant in pairs)


BAD: list[tuple[dict[str, Any] | Any, str]] = [
    ({"command": 1}, "command"),
    ({"command": []}, "command"),
    ({"command": "  "}, "command"),
    ({"command": [""]}, "command"),
    ({"command": ["a", 1]}, "command[1]"),
    ({"command": ["a", "b\0c"]}, "command[1]"),
    ({"command": ["a", "\ud800"]}, "command[1]"),
    ({"command": "a\0"}, "command"),
    ({"command": "x" * 200_000}, "command"),
    ({"command": ["x", "y" * 200_000]}, "command[1]"),
    ({"command": ["x" * 1000] * 2000}, "command"),
    ({"command": ["x"] * 40_000}, "command"),
    ({}, "command"),
    ({"command": "a", "cpuss": 1}, "cpuss"),
    ({"command": "a", "cpus": 0}, "cpus"),
    ({"command": "a", "cpus": -1}, "cpus"),
    ({"command": "a", "cpus": True}, "cpus"),
    ({"command": "a", "cpus": 0.0001}, "cpus"),
    ({"command": "a", "cpus": float("nan")}, "cpus"),
    ({"command": "a", "cpus": float("inf")}, "cpus"),
    ({"command": "a", "cpus": 10**30}, "cpus"),
    ({"command": "a", "cpus": "1e999999999"}, "cpus"),
    ({"command": "a", "memory": "lots"}, "memory"),
    ({"command": "a", "memory": 0}, "memory"),
    ({"command": "a", "memory": -5}, "memory"),
    ({"command": "a", "memory": 4_000}, "memory"),
    ({"command": "a", "env": {"A": "secret", "N": None}}, "env.N"),
    ({"command": "a", "env": {"A": "secret", "N": True}}, "env.N"),
    ({"command": "a", "labels": {"zone": "b", "n": 5}}, "labels.n"),
    ({"command": "a", "sweep": {"y": [1], "x": 5}}, "sweep.x"),
    ({"command": "a", "inputs": [{"url": "https://h/x", "path": "in/"}]}, "inputs[0].path"),
    ({"command": "a", "memory": "1023KiB"}, "memory"),
    ({"command": "a", "memory": 2**70}, "memory"),
    ({"command": "a", "disk": "9" * 50}, "disk"),
    ({"command": "a", "gpus": -1}, "gpus"),
    ({"command": "a", "gpus": {"count": 0, "type": "a100"}}, "gpus.count"),
    ({"command": "a", "gpus": {"cont": 1}}, "gpus.cont"),
    ({"command": "a", "gpus": {"memory": "x"}}, "gpus.memory"),
    ({"command": "a", "env": {"A": []}}, "env.A"),
    ({"command": "a", "env": {"A=B": "x"}}, "env"),
    ({"command": "a", "env": {"": "x"}}, "env"),
    ({"command": "a", "env": {"A": "x\0"}}, "env.A"),
    ({"command": "a", "env": {"A": "x" * 10_000_000}}, "env"),
    ({"command": "a", "env": {f"A{i}": "x" * 1000 for i in range(200)}}, "env"),
    ({"command": "a", "labels": {"": "x"}}, "labels"),
    ({"command": "a", "labels": {"a": "x" * 300}}, "labels.a"),
    ({"command": "a", "inputs": [{"url": "https://h/x", "path": "../x"}]}, "inputs[0].path"),
    ({"command": "a", "outputs": [{"url": "https://h/x", "path": "x"}]}, "outputs[0].url"),
    ({"command": "a", "inputs": [{"url": "nothing", "path": "x"}]}, "inputs[0].url"),
    ({"command": "a", "inputs": [{"path": "x", "url": 3}]}, "inputs[0].url"),
    ({"command": "a", "inputs": [{"url": "ftp://h/x", "path": "x"}]}, "inputs[0].url"),
    ({"command": "a", "outputs": [{"url": "s3://bucket/{token}", "path": "x"}]}, "outputs[0].url"),
    ({"command": "a", "inputs": [{"url": "http://[x/y", "path": "x"}]}, "inputs[0].url"),
    ({"command": "a", "inputs": [{"url": "http://h:port/y", "path": "x"}]}, "inputs[0].url"),
    ({"command": "a", "inputs": [{"url": "http://h:99999/y", "path": "x"}]}, "inputs[0].url"),
    ({"command": "a", "inputs": [{"url": "http:///y", "path": "x"}]}, "inputs[0].url"),
    ({"command": "a", "outputs": [{"url": "http://[{token}]/y", "path": "x"}]}, "outputs[0].url"),
    ({"command": "a", "outputs": ["a", {"url": "https://[h/{token}", "path": "x"}]}, "outputs[1].url"),
    ({"command": "a", "outputs": [{"url": "file://[h/y", "path": "x"}]}, "outputs[0].url"),
    ({"command": "a", "outputs": [{"url": "https://h/{token}", "path": path} for path in "xy"]}, "outputs[1].url"),
    ({"command": "a", "outputs": ["a", "/etc/passwd"]}, "outputs[1]"),
    ({"command": "a", "outputs": ["a", "b/../../c"]}, "outputs[1]"),
    ({"command": "a", "outputs": ["a", "./a"]}, "outputs[1]"),
    ({"command": "a", "outputs": ["a/"]}, "outputs[0]"),
    ({"command": "a", "outputs": ["https://h/{token}"]}, "outputs[0]"),
    ({"command": "a", "inputs": [{"url": "https://h/x", "path": "s3://b/x"}]}, "inputs[0].path"),
    ({"command": "a", "cwd": "../x"}, "cwd"),
    ({"command": "a", "max_runtime": 0}, "max_runtime"),
    ({"command": "a", "max_runtime": "soon"}, "max_runtime"),
    ({"command": "a", "expected_runtime": -1}, "expected_runtime"),
    ({"command": "a", "checkpoint_signal": "SIGKILL"}, "checkpoint_signal"),
    ({"command": "a", "checkpoint_signal": 10}, "checkpoint_signal"),
    ({"command": "a", "max_attempts": 0}, "max_attempts"),
    ({"command": "a", "retry": ["bad luck"]}, "retry"),
    ({"command": "a", "retry": ["exit-code:0"]}, "retry"),
    ({"command": "a", "retry": ["success"]}, "retry"),
    ({"command": "a", "priority": 2**40}, "priority"),
    ({"command": "a", "priority": "high"}, "priority"),
    ({"command": "a", "project": "x" * 256}, "project"),
    ({"command": "a", "user": "a\nb"}, "user"),
    ({"command": "a", "pool": 3}, "pool"),
    ({"command": "a", "exclusive": "yes"}, "exclusive"),
    ({"command": "a", "max_per_instance": -1}, "max_per_instance"),
    ({"command": "a", "array": 0}, "array"),
    ({"command": "a", "sweep": {"x": [1]}}, "sweep.x"),
    ({"command": "a {x}", "sweep": {"x": []}}, "sweep.x"),
    ({"command": "a {index}", "sweep": {"index": [1]}}, "sweep"),
    ({"command": "echo {x}", "sweep": {"x": ["\0"]}}, "command"),
]


@pytest.mark.parametrize(("bad", "field"), BAD, ids=[f"{i}-{field}" for i, (_, field) in enumerate(BAD)])
def test_bad_task_refuses_the_submission_with_its_place(bad: Any, field: str) -> None:
    """The place names the task and the field, in a request as in a file, and says what was expected."""
    good = {"command": "true"}
    with pytest.raises(InvalidInput) as caught:
        parse([good, good, bad, good])
    assert caught.value.place == f"tasks[2].{field}"
    assert len(str(caught.value)) < 500
    str(caught.value).encode()
    with pytest.raises(InvalidInput) as caught:
        parse([good, bad], places=["tasks.jsonl:16", "tasks.jsonl:17"])
    assert caught.value.place == f"tasks.jsonl:17: {field}"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner, max_size=4)
        ),
        max_leaves=8,
    )
)
def test_anything_is_either_a_task_or_an_error_with_its_place(anything: Any) -> None:
    """No input, however odd, gets through as something else than a task or crashes the parser."""
    refused: InvalidInput | None = None
    specs: tuple[TaskSpec, ...] = ()
    try:
        specs = parse([anything], limits=SubmissionLimits(tasks=1000))
    except InvalidInput as error:
        refused = error
    assert (refused is None) == bool(specs)
    assert refused is None or (refused.place.startswith("tasks[0]") and refused.message)


def test_what_is_left_out_takes_its_default() -> None:
    """A bare command asks for one cpu and 512 MiB, and is retried only for what is the machine's fault."""
    (spec,) = parse([{"command": "sleep 1"}])
    assert (spec.shell, spec.argv) == ("sleep 1", ())
    assert spec.shape.resources == Resources(1000, 512 * MIB, 0, 0)
    assert spec.retry == RetryRules(3, MACHINE_CAUSES, frozenset())


def test_gpus_may_name_type_and_memory() -> None:
    """A table asks for a kind of device, a number for any."""
    detailed, plain = parse(
        [{"command": "a", "gpus": {"count": 2, "type": "a100", "memory": "40GiB"}}, {"command": "a", "gpus": 1}]
    )
    assert (detailed.shape.resources.gpus, detailed.shape.gpu_type, detailed.shape.gpu_memory) == (2, "a100", 40 * GIB)
    assert (plain.shape.resources.gpus, plain.shape.gpu_type) == (1, "")


def test_retry_list_replaces_the_default_causes() -> None:
    """Naming causes says exactly what is retried."""
    (spec,) = parse([{"command": "a", "retry": ["timeout", "exit-code:75"]}])
    assert spec.retry == RetryRules(3, frozenset({Cause.TIMEOUT}), frozenset({75}))


def test_unicode_of_any_script_is_fine() -> None:
    """Names, arguments and files are not limited to ASCII."""
    (spec,) = parse([{"command": ["echo", "日本語 🎉"], "name": "Größe", "outputs": ["résumé.txt"]}])
    assert (spec.argv[1], spec.name, spec.outputs[0].path) == ("日本語 🎉", "Größe", "résumé.txt")


def test_sweep_makes_the_product_of_its_values() -> None:
    """Each combination is a task, the last parameter varying fastest; other braces stay."""
    specs = parse(
        [{"command": "f {a} {b} ${HOME} {c}", "name": "{a}-{index}", "sweep": {"a": [1, "x"], "b": [True, 0.5]}}]
    )
    assert [spec.shell for spec in specs] == [
        "f 1 true ${HOME} {c}",
        "f 1 0.5 ${HOME} {c}",
        "f x true ${HOME} {c}",
        "f x 0.5 ${HOME} {c}",
    ]
    assert [spec.name for spec in specs] == ["1-0", "1-1", "x-2", "x-3"]
    assert [spec.array_index for spec in specs] == [0, 1, 2, 3]


def test_array_numbers_its_tasks_under_one_id() -> None:
    """All tasks of an array share the id that the caller made; another input gets another."""
    ids = iter(["first", "second"])
    specs = parse([{"command": ["run", "{index}"], "array": 2}] * 2, new_array=lambda: next(ids))
    assert [(spec.array_id, spec.array_index, spec.argv[1]) for spec in specs] == [
        ("first", 0, "0"),
        ("first", 1, "1"),
        ("second", 0, "0"),
        ("second", 1, "1"),
    ]


def test_values_of_a_sweep_are_not_substituted_again() -> None:
    """A value that looks like a parameter stays what it is."""
    specs = parse([{"command": ["{a}", "{b}"], "sweep": {"a": ["{b}"], "b": ["{a}"]}}])
    assert specs[0].argv == ("{b}", "{a}")


def test_idempotency_keys_of_an_array_are_told_apart_and_repeatable() -> None:
    """Submitting the same array again gives equal tasks, so that the store can recognise them."""
    array = {"command": "true", "array": 3, "idempotency_key": "night"}
    ids = iter(["x", "y"])
    first, again = (parse([array], new_array=lambda: next(ids)) for _ in range(2))
    assert [spec.idempotency_key for spec in first] == ["night/0", "night/1", "night/2"]
    assert first == again


@pytest.mark.parametrize("array", [{"array": 101}, {"array": 10**15}, {"array": 11, "sweep": {"x": list(range(10))}}])
def test_too_many_tasks_are_refused_before_they_are_made(array: dict[str, Any]) -> None:
    """The bound counts expanded tasks, and an enormous array costs nothing."""
    with pytest.raises(InvalidInput, match="at most 100 tasks"):
        parse([{"command": "echo {x}", **array}], limits=SubmissionLimits(tasks=100))


@pytest.mark.parametrize("many", [{"array": 2000}, {"sweep": {"x": list(range(2000))}}])
def test_members_are_bounded_in_bytes_before_they_take_memory(many: dict[str, Any]) -> None:
    """A small body can ask for gigabytes: what is too much is refused as it grows, not once it is there."""
    task = {"command": "echo {index} {x} #" + "." * 10_000, **many}
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match=r"at most 1000000 bytes of tasks in one submission") as caught:
            parse([{"command": "true"}, task], limits=SubmissionLimits(task_bytes=1_000_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.place == "tasks[1]"
    assert peak < 8_000_000


def test_the_bound_in_bytes_counts_all_tasks_of_a_submission_with_all_their_texts() -> None:
    """Wherever the bytes are: many plain tasks, an environment and inputs count as a command does."""
    inputs = [{"path": f"{at}.txt", "url": "file:///data/" + "x" * 1000} for at in range(3)]
    task = {"command": "true", "env": {"A": "y" * 3000}, "inputs": inputs}
    with pytest.raises(InvalidInput, match="at most 15000 bytes") as caught:
        parse([task] * 4, limits=SubmissionLimits(task_bytes=15_000))
    assert caught.value.place == "tasks[2]"
    assert len(parse([task] * 2, limits=SubmissionLimits(task_bytes=15_000))) == 2


def test_environment_limit_is_the_configured_one() -> None:
    """A dispatcher may allow less environment than the kernel."""
    task = {"command": "a", "env": {"A": "x" * 100}}
    with pytest.raises(InvalidInput, match=r"tasks\[0\]\.env: expected at most 50 bytes"):
        parse([task], limits=SubmissionLimits(environment_bytes=50))
    assert parse([task], limits=SubmissionLimits(environment_bytes=200))


def test_tasks_that_ask_for_the_same_share_one_shape() -> None:
    """Fifty thousand equal tasks must not hold fifty thousand shapes."""
    one, two = parse([{"command": "a", "cpus": 2, "labels": {"b": "1", "a": "2"}}] * 2)
    assert one.shape is two.shape


def test_a_url_that_no_agent_can_transfer_is_refused_with_what_can_be() -> None:
    """Not with the URL itself, in which a password may stand; and each that is named can be had."""
    with pytest.raises(InvalidInput, match=r"one of the schemes http, https, file, got s3://\.\.\.") as caught:
        parse([{"command": "a", "inputs": [{"url": "s3://key:hunter2@bucket/x", "path": "x"}]}])
    assert "hunter2" not in str(caught.value)
    parse([{"command": "a", "inputs": [{"url": f"{each}://h/x", "path": "x"} for each in TRANSFER_SCHEMES]}])


def test_a_url_may_have_the_token_in_any_part_of_it() -> None:
    """It is read as an agent will: with a number in its place."""
    urls = ["https://h:443/{token}/y", "https://u:p@t{token}.h/", "http://[::1]:8000/y?t={token}", "file:///r/{token}"]
    (task,) = parse([{"command": "a", "outputs": [{"path": f"o{i}", "url": url} for i, url in enumerate(urls)]}])
    assert [output.url for output in task.outputs] == urls


@pytest.mark.parametrize("url", ALIKE)
def test_a_url_that_is_the_same_file_for_every_attempt_is_refused(url: str) -> None:
    """Wherever the token stands in it: a late attempt would write over what a newer one has stored."""
    with pytest.raises(InvalidInput, match=r"outputs\[0\]\.url: expected \{token\} in its path"):
        parse([{"command": "a", "outputs": [{"path": "x", "url": url}]}])
