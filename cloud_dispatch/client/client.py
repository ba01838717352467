"""The calls of the REST API, one method each. Owns paths and parameters; synchronous, for people's commands."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import httpx

from cloud_dispatch.client.transport import CA_KEY, TIMEOUT_S, Transport, trusting, trusting_only
from cloud_dispatch.client.views import InstanceView, LogChunk, RerunView, Submitted, TaskDetail, TaskPage, TaskView
from cloud_dispatch.domain.errors import Denied

if TYPE_CHECKING:
    from cloud_dispatch.config import Config

URL_KEY = "CLOUD_DISPATCH_URL"
TOKEN_KEY = "CLOUD_DISPATCH_TOKEN"  # noqa: S105  (a variable's name)
#: A submission of many tasks is checked and committed before it is answered.
SUBMIT_TIMEOUT_S = 300.0
#: The longest that the dispatcher holds back an answer.
MAX_WAIT_MS = 30_000
PAGE = 1_000
_BEYOND = 10**17  # no task has such a number
COST_PAGE = 10_000


def _given(**values: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in values.items() if value not in (None, "")}


def _which(**asked: Sequence[int] | Sequence[str] | str | None) -> dict[str, Any]:
    """The body that says which tasks are meant: what is given, be it empty, and nothing else."""
    given = {name: value for name, value in asked.items() if value is not None}
    return {name: value if isinstance(value, str) else list(value) for name, value in given.items()}


def _segment(value: object) -> str:
    return quote(str(value), safe="")


class Client:
    """A dispatcher. Methods raise the errors of `domain.errors`: Unavailable when none answers, Denied for a wrong
    token, NotFound, Conflict and InvalidInput as the dispatcher says. Not for several threads at once."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        transport: httpx.BaseTransport | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        """`trust`: what the dispatcher's certificate is checked against, the system's CAs unless given."""
        self._http = Transport(url, token, transport, trust)

    @classmethod
    def from_config(cls, config: Config, environment: Mapping[str, str]) -> Client:
        """The dispatcher that the configuration means, unless $CLOUD_DISPATCH_URL and $CLOUD_DISPATCH_TOKEN say
        another. Denied when the operator's token can't be read."""
        token = environment.get(TOKEN_KEY) or _token(config.token_file)
        if environment.get(URL_KEY):
            return cls.from_environment(environment, token)
        certificate = config.certificate_file
        return cls(config.base_url, token, trust=None if certificate is None else trusting_only(certificate))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], token: str = "") -> Client:
        """The dispatcher at $CLOUD_DISPATCH_URL, trusted by $CLOUD_DISPATCH_CA or else the system's CAs."""
        ca = environment.get(CA_KEY)
        trust = trusting(Path(ca)) if ca else None
        return cls(environment[URL_KEY], environment.get(TOKEN_KEY) or token, trust=trust)

    @property
    def url(self) -> str:
        return self._http.url

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the connection."""
        self._http.close()

    # -- tasks
    def submit(self, tasks: Sequence[Mapping[str, Any]]) -> list[int]:
        """Queue all tasks or none; ids in order, arrays and sweeps expanded."""
        return self.submission(tasks)["ids"]

    def submission(self, tasks: Sequence[Mapping[str, Any]]) -> Submitted:
        """As `submit`, with the notes of the answer: that tasks name a pool that is not there, say."""
        reply = self._http.json("POST", "/v1/tasks", body={"tasks": tasks}, timeout_s=SUBMIT_TIMEOUT_S)
        # an older dispatcher gives ids alone
        return Submitted(ids=reply["ids"], arrays=reply.get("arrays", []), notes=reply.get("notes", []))

    def tasks(
        self,
        *,
        states: Iterable[str] = (),
        project: str = "",
        user: str = "",
        array: str = "",
        name: str = "",
        after: int = 0,
        before: int = 0,
        limit: int = PAGE,
    ) -> TaskPage:
        """One page of tasks in order of id: the first ones after `after`; with `before` the last ones before it."""
        parameters = _given(
            state=",".join(states), project=project, user=user, array=array, name=name, after=after or None,
            before=before or None, limit=limit,
        )  # fmt: skip
        return cast(TaskPage, self._http.json("GET", "/v1/tasks", params=parameters))

    def all_tasks(self, *, limit: int, **where: Any) -> Iterator[TaskView]:
        """Up to `limit` tasks, page by page."""
        after, left = int(where.pop("after", 0)), limit
        while left > 0:
            page = self.tasks(after=after, limit=min(left, PAGE), **where)
            yield from page["tasks"]
            left -= len(page["tasks"])
            if page["next"] is None or not page["tasks"]:
                return
            after = page["next"]

    def last_tasks(self, limit: int, **where: Any) -> list[TaskView]:
        """The last `limit` tasks, in order of id."""
        found: list[TaskView] = []
        before = _BEYOND
        while len(found) < limit:
            page = self.tasks(before=before, limit=min(limit - len(found), PAGE), **where)
            found = page["tasks"] + found
            if page["next"] is None or not page["tasks"]:
                break
            before = page["next"]
        return found

    def task(self, task: int) -> TaskDetail:
        """One task with its attempts and specification."""
        return cast(TaskDetail, self._http.json("GET", f"/v1/tasks/{task}"))

    def cancel(
        self,
        ids: Sequence[int] | None = None,
        *,
        array: str | None = None,
        project: str | None = None,
        user: str | None = None,
        states: Sequence[str] | None = None,
    ) -> list[int]:
        """Cancel what matches all that is given; the ids of the tasks that changed. What is given and empty names no
        task and is refused."""
        body = _which(ids=ids, array=array, project=project, user=user, states=states)
        return cast("list[int]", self._http.json("POST", "/v1/tasks/cancel", body=body)["cancelled"])

    def rerun(
        self,
        ids: Sequence[int] | None = None,
        *,
        array: str | None = None,
        project: str | None = None,
        user: str | None = None,
        states: Sequence[str] | None = None,
    ) -> list[RerunView]:
        """New tasks like those that have ended and match; of tasks by their numbers any, else those that failed unless
        `states` says others. A task has one such copy, however often it is asked for. What is given and empty is
        refused, as by `cancel`."""
        body = _which(ids=ids, array=array, project=project, user=user, states=states)
        return cast(
            "list[RerunView]",
            self._http.json("POST", "/v1/tasks/rerun", body=body, timeout_s=SUBMIT_TIMEOUT_S)["tasks"],
        )

    def prioritise(self, task: int, priority: int) -> TaskView:
        """A new priority, effective at the next claim."""
        return cast(TaskView, self._http.json("POST", f"/v1/tasks/{task}/priority", body={"priority": priority}))

    def logs(self, task: int, *, offset: int = 0, attempt: str = "", wait_ms: int = 0) -> LogChunk:
        """At most 1 MiB of a task's output from `offset`; waits up to `wait_ms` (at most 30 s) for more."""
        response = self._http.send(
            "GET",
            f"/v1/tasks/{task}/logs",
            params=_given(attempt=attempt, offset=offset, wait_ms=min(wait_ms, MAX_WAIT_MS) or None),
            timeout_s=TIMEOUT_S + wait_ms / 1000,
        )
        body = response.content
        after = int(response.headers.get("X-Offset", offset + len(body)))
        return LogChunk(body, after, response.headers.get("X-Complete") == "1", response.headers.get("X-Attempt", ""))

    def outputs(self, task: int) -> Any:
        """The manifest of the accepted result."""
        return self._http.json("GET", f"/v1/tasks/{task}/outputs")

    def output(self, task: int, path: str) -> bytes:
        """One output file of the accepted result, whole in memory."""
        return self._http.send("GET", f"/v1/tasks/{task}/outputs/{quote(path)}").content

    def output_pieces(self, task: int, path: str) -> Iterator[bytes]:
        """One output file of the accepted result, as it comes."""
        return self._http.pieces(f"/v1/tasks/{task}/outputs/{quote(path)}")

    def counts(self, *, project: str = "", user: str = "", array: str = "") -> dict[str, int]:
        """Tasks by state."""
        reply = self._http.json("GET", "/v1/counts", params=_given(project=project, user=user, array=array))
        return cast("dict[str, int]", reply["counts"])

    # -- instances
    def instances(self, *, past: bool = False) -> list[InstanceView]:
        """The instances that are there, with `past` also those that are gone."""
        reply = self._http.json("GET", "/v1/instances", params={"past": 1} if past else None)
        return cast("list[InstanceView]", reply["instances"])

    def instance(self, instance: str) -> InstanceView:
        return cast(InstanceView, self._http.json("GET", f"/v1/instances/{_segment(instance)}"))

    def control(self, instance: str, verb: str, reason: str = "") -> InstanceView:
        """`verb` is hold, drain, resume or kill."""
        path = f"/v1/instances/{_segment(instance)}/{verb}"
        return cast(InstanceView, self._http.json("POST", path, body={"reason": reason}))

    def adopt(self, store: str) -> dict[str, Any]:
        """Take over the VMs that the statestore `store` made; how many were seen of it, and of which others."""
        return cast("dict[str, Any]", self._http.json("POST", "/v1/adopt", body={"store": store}))

    # -- money
    def budgets(self) -> dict[str, Any]:
        """How the spending limits stand: `{"budgets": [...], "unsure_since_ms"}`, amounts in micro-dollars."""
        return cast("dict[str, Any]", self._http.json("GET", "/v1/budgets"))

    def commitments(self, scope: str = "deployment", of: str = "") -> list[dict[str, Any]]:
        """What each instance that counts for the scope may bill at most, micro-dollars, the dearest first."""
        found = self._http.json("GET", "/v1/budgets/commitments", params={"scope": scope, "of": of})
        return cast("list[dict[str, Any]]", found["commitments"])

    def set_budget(self, scope: str, of: str, window: str, limit: int | None, reason: str = "") -> dict[str, Any]:
        """Tighten a limit to so many micro-dollars, or (None) leave it to the configuration; answers as `budgets`."""
        body = {"scope": scope, "of": of, "window": window, "limit": limit, "reason": reason}
        return cast("dict[str, Any]", self._http.json("PUT", "/v1/budgets", body=body))

    def reconcile_budgets(self) -> dict[str, Any]:
        """Say that the ledger is the truth, after a restore; answers as `budgets`."""
        return cast("dict[str, Any]", self._http.json("POST", "/v1/budgets/reconcile"))

    def costs(
        self,
        *,
        by: Iterable[str] = ("project",),
        since: str = "",
        until: str = "",
        project: str = "",
        user: str = "",
        pool: str = "",
        after: str = "",
        limit: int = COST_PAGE,
    ) -> dict[str, Any]:
        """One page of what was spent: `{"by", "rows", "total", "running", "unpriced", "next"}`, micro-dollars. `since`
        and `until` are days of UTC, or such as `7d`; both are counted."""
        parameters = _given(
            by=",".join(by), since=since, until=until, project=project, user=user, pool=pool, after=after, limit=limit
        )
        return cast("dict[str, Any]", self._http.json("GET", "/v1/costs", params=parameters))

    def all_costs(self, **asked: Any) -> dict[str, Any]:
        """All pages as one answer, each key once: a task that ran on two instances stands on two pages."""
        whole = page = self.costs(**asked)
        summed: dict[tuple[Any, ...], dict[str, Any]] = {}
        while True:
            for row in page["rows"]:
                keys = tuple(row[key] for key in page["by"])
                known = summed.setdefault(keys, row)
                if known is not row:
                    known.update({part: known[part] + row[part] for part in page["total"]})
            if page["next"] is None:
                break
            page = self.costs(**asked, after=page["next"])
        rows = [summed[keys] for keys in sorted(summed, key=lambda keys: [(key is None, key) for key in keys])]
        total = {part: sum(row[part] for row in rows) for part in whole["total"]}
        return {**whole, "rows": rows, "total": total, "next": None}

    def cost_of_task(self, task: int) -> dict[str, Any]:
        """What each attempt of a task has cost: `{"task", "attempts", "total"}`, micro-dollars."""
        return cast("dict[str, Any]", self._http.json("GET", f"/v1/tasks/{task}/cost"))

    # -- the kill switch
    def stopped(self) -> dict[str, Any]:
        """What is stopped: `{"level", "why", "since_ms"}`; the levels are those of `domain.stop.StopLevel`."""
        return cast("dict[str, Any]", self._http.json("GET", "/v1/stop"))

    def stop(self, level: str, reason: str = "") -> dict[str, Any]:
        """Stop "launches", "drain" or "terminate-all", or "nothing" any more; answers as `stopped`, what holds now."""
        return cast("dict[str, Any]", self._http.json("POST", "/v1/stop", body={"level": level, "reason": reason}))

    # -- breakers
    def breakers(self) -> dict[str, Any]:
        """What has failed since it last succeeded, and whether it is still launched: `{"breakers": [...]}`, amounts in
        micro-dollars."""
        return cast("dict[str, Any]", self._http.json("GET", "/v1/breakers"))

    def reset_breakers(self, name: str = "") -> dict[str, Any]:
        """Launch again what the breaker `name`, or any of them, keeps back; answers as `breakers`."""
        body = {"name": name} if name else {"all": True}
        return cast("dict[str, Any]", self._http.json("POST", "/v1/breakers/reset", body=body))

    # -- why and what next
    def explain_task(self, task: int) -> dict[str, Any]:
        return cast("dict[str, Any]", self._http.json("GET", f"/v1/tasks/{task}/explain"))

    def explain_instance(self, instance: str) -> dict[str, Any]:
        return cast("dict[str, Any]", self._http.json("GET", f"/v1/instances/{_segment(instance)}/explain"))

    def plan(self) -> dict[str, Any]:
        """What would be launched and ended now, and why; changes nothing."""
        return cast("dict[str, Any]", self._http.json("GET", "/v1/plan"))

    def plans(self, *, before: int | None = None, limit: int = 20) -> list[dict[str, Any]]:
        """Plans with actions that were made, newest first: `id`, `at_ms`, `actions` as in `plan`."""
        page = self._http.json("GET", "/v1/plans", params=_given(before=before, limit=limit))
        return cast("list[dict[str, Any]]", page["plans"])

    def record_of_plan(self, number: int) -> bytes:
        """One of them with all that it was made from, JSON as `planner.record` reads it."""
        return self._http.send("GET", f"/v1/plans/{number}").content

    def offers(self, **asked: str | int | None) -> dict[str, Any]:
        """What could be rented now for a task that asks for this, and why the rest could not."""
        return cast("dict[str, Any]", self._http.json("GET", "/v1/offers", params=_given(**asked)))

    def events(
        self,
        *,
        task: int | None = None,
        instance: str = "",
        before: int | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> Any:
        """What happened, newest first: the last ones, of those before the id `before`; with `after` the first ones
        after that id."""
        asked = _given(task=task, instance=instance, before=before, after=after, limit=limit)
        return self._http.json("GET", "/v1/events", params=asked)

    # -- pools and the dispatcher
    def pools(self) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", self._http.json("GET", "/v1/pools")["pools"])

    def set_target(self, pool: str, count: int, *, source: str = "rest", expires_ms: int | None = None) -> Any:
        """Ask for `count` instances of `pool` under the name `source`."""
        body = {"count": count, "source": source, "expires_ms": expires_ms}
        return self._json_or_none("PUT", f"/v1/pools/{_segment(pool)}/target", body=body)

    def drop_target(self, pool: str, *, source: str = "rest") -> Any:
        """Take back what `source` asked for."""
        return self._json_or_none("DELETE", f"/v1/pools/{_segment(pool)}/target", params={"source": source})

    def health(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self._http.json("GET", "/v1/health"))

    def summary(self) -> dict[str, Any]:
        """Tasks, instances, times and money of everything in the store."""
        return cast("dict[str, Any]", self._http.json("GET", "/v1/summary"))

    def shutdown(self, *, terminate: bool, grace_ms: int = 10_000) -> Any:
        """Stop launching; with `terminate` end every instance first; then the dispatcher exits."""
        return self._json_or_none("POST", "/v1/shutdown", body={"terminate": terminate, "grace_ms": grace_ms})

    def _json_or_none(self, method: str, path: str, **options: Any) -> Any:
        response = self._http.send(method, path, **options)
        return response.json() if response.content else None


def _token(path: Path) -> str:
    """The operator's token, "" where there is no file yet: then no dispatcher ran here, and connecting says so."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError) as error:
        raise Denied(
            f"the operator's token {path} can't be read: {error}", hint=f"set ${TOKEN_KEY}, or ask its owner"
        ) from None
