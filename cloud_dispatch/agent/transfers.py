"""Brings inputs and takes outputs, by URL. Owns their bounds and names; runs in threads: nothing is asynchronous here.

A file is under its final name only when it is whole. Outputs go to names of the attempt alone (promise P1): the
manifest of the result that is accepted says which files are the task's. The dispatcher itself, which keeps outputs and
serves them as inputs of other tasks, is asked with a token; nobody else is sent one.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import http.client
import os
import ssl
import threading
import urllib.error
import urllib.request
from functools import partial
from typing import IO, Any, Callable, Iterator, List, Optional, Tuple  # noqa: UP035
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from cloud_dispatch.agent import deposit
from cloud_dispatch.agent.channel import check_pin
from cloud_dispatch.agent.depot import Depot, TransferFailed, TransferStopped
from cloud_dispatch.wire.messages import OUTPUTS_PATH, FileTransfer, OutputFile, weight

ATTEMPTS = 4
#: For outputs that the dispatcher keeps: it may be away, or its disk full, for some minutes.
DEPOT_ATTEMPTS = 60
RETRY_FIRST_S = 0.5
RETRY_MOST_S = 5.0
ANSWER_S = 60.0
MOST_OUTPUTS = 10_000
#: Of a manifest, by `weight`: the dispatcher takes no request that is too long, and would hear no more of the VM.
MOST_MANIFEST = 4 << 20
_BLOCK = 1 << 20
#: Answers after which nothing is gained by asking again.
_FINAL = frozenset({400, 401, 403, 404, 409, 410, 413})


class Transfers:
    """The transfers of one attempt in `folder`, its working folder. `stop` ends them early."""

    def __init__(self, folder: str, task: int, token: int, depot: Depot, stop: threading.Event) -> None:
        self._folder = os.path.realpath(folder)
        self._task = task
        self._token = token
        self._depot = depot
        self._stop = stop

    def bring(self, inputs: List[FileTransfer]) -> None:
        """Every input under its name; TransferFailed names the first that is not to be had."""
        for item in inputs:
            target = self._inside(item.path)
            _check_url(item.url, "input %s" % item.path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            self._retried("input %s from %s" % (item.path, shown(item.url)), partial(self._fetch, item.url, target))

    def take(self, outputs: List[FileTransfer]) -> List[OutputFile]:
        """Store every declared output and return the manifest; TransferFailed if one is missing or can't be stored."""
        manifest: List[OutputFile] = []
        heavy = 0
        for item in outputs:
            for path in self._found(item.path):
                if len(manifest) >= MOST_OUTPUTS:
                    raise TransferFailed("more than %d output files" % MOST_OUTPUTS)
                url = self._target(item, path)
                heavy += weight(path, url)
                if heavy > MOST_MANIFEST:
                    raise TransferFailed("the names of output %s are too long for so many files" % item.path)
                manifest.append(self._store(path, url))
        return manifest

    # Names

    def _inside(self, path: str) -> str:
        full = os.path.realpath(os.path.join(self._folder, path))
        if not path or not full.startswith(self._folder.rstrip("/") + "/"):
            raise TransferFailed("path %r leaves the working folder" % path)
        return full

    def _found(self, path: str) -> List[str]:
        """`_matches`, where what the task has made can be followed and named at all."""
        try:
            found = self._matches(path)
        except RecursionError:
            raise TransferFailed("output %s: its folders are nested too deeply" % path) from None
        for name in found:
            try:
                name.encode("utf-8")
            except UnicodeEncodeError:  # noqa: PERF203
                raise TransferFailed("output %s: the name of %s is no UTF-8" % (path, ascii(name))) from None
        return found

    def _matches(self, path: str) -> List[str]:
        """The files that an output's path means, relative to the folder: itself, all of a folder, or a pattern's."""
        full = os.path.join(self._folder, path)
        names = [full] if os.path.lexists(full) else sorted(glob.glob(full, recursive=True))
        found: List[str] = []
        for name in names:
            relative = os.path.relpath(name, self._folder)
            self._inside(relative)
            if os.path.isdir(name):
                found.extend(self._walk(name))
            else:
                found.append(relative)
        if not found:
            raise TransferFailed("output %s is missing" % path)
        return found

    def _walk(self, folder: str) -> Iterator[str]:
        for root, _, names in os.walk(folder):
            for name in sorted(names):
                relative = os.path.relpath(os.path.join(root, name), self._folder)
                self._inside(relative)
                yield relative

    def _target(self, item: FileTransfer, path: str) -> str:
        """Where `path` goes. `{token}` in a URL becomes the attempt's token; a URL that ends in / gets the path."""
        url = item.url
        if not url:
            return url
        if url.endswith("/"):
            url += quote(path)
        elif path != os.path.normpath(item.path):
            raise TransferFailed("output %s is several files, so its URL must end in /" % item.path)
        marked = url.replace("{token}", str(self._token))
        if marked == url and url.startswith("file:"):
            marked = "%s.%d" % (url, self._token)
        _check_url(marked, "output %s" % path)
        return marked

    # Movement

    def _fetch(self, url: str, target: str) -> None:
        unfinished = "%s.%d.part" % (target, self._token)
        try:
            with self._open(url) as source, open(unfinished, "wb") as file:
                size = self._copy(source, file.write)
                promised = getattr(source, "headers", {}).get("Content-Length")
                if promised is not None and int(promised) != size:
                    raise OSError("got %d of %s bytes" % (size, promised))
            os.replace(unfinished, target)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)

    def _open(self, url: str) -> IO[bytes]:
        if url.startswith("file:"):
            return open(unquote(urlsplit(url).path), "rb")
        depot = self._depot if url.startswith(self._depot.url + "/") else None
        request = urllib.request.Request(url)
        if depot is not None:
            request.add_unredirected_header("Authorization", "Bearer " + depot.token())
        source: IO[bytes] = _opener(depot).open(request, timeout=ANSWER_S)
        return source

    def _store(self, path: str, url: str) -> OutputFile:
        full = self._inside(path)
        what = "output %s to %s" % (path, shown(url) or "the dispatcher")
        if not os.path.isfile(full):
            raise TransferFailed("output %s is not a file" % path)
        size, digest = self._measure(full)
        if url.startswith("file:"):
            self._retried(what, partial(self._place, full, unquote(urlsplit(url).path)))
        elif url:
            self._retried(what, partial(self._put, full, size, url))
        else:
            query = "?task=%d&token=%d&path=%s" % (self._task, self._token, quote(path, safe=""))
            self._retried(what, partial(self._deposit, full, size, OUTPUTS_PATH + query), DEPOT_ATTEMPTS)
        return OutputFile(path, url, size, digest)

    def _measure(self, full: str) -> Tuple[int, str]:
        digest = hashlib.sha256()
        with open(full, "rb") as file:
            size = self._copy(file, digest.update)
        return size, digest.hexdigest()

    def _place(self, full: str, target: str) -> None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        unfinished = target + ".part"
        try:
            with open(full, "rb") as source, open(unfinished, "wb") as file:
                self._copy(source, file.write)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, target)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)

    def _deposit(self, full: str, size: int, path: str) -> None:
        with open(full, "rb") as file:
            deposit.put(self._depot, path, file, size, ANSWER_S, self._check)

    def _check(self) -> None:
        if self._stop.is_set():
            raise TransferStopped

    def _put(self, full: str, size: int, url: str) -> None:
        with open(full, "rb") as file:
            request = urllib.request.Request(url, data=_Stoppable(file, self._stop), method="PUT")
            request.add_header("Content-Length", str(size))
            request.add_header("Content-Type", "application/octet-stream")
            with _opener(None).open(request, timeout=ANSWER_S):
                pass

    def _copy(self, source: IO[bytes], sink: Callable[[Any], Any]) -> int:
        total = 0
        while True:
            self._check()
            block = source.read(_BLOCK)
            if not block:
                return total
            sink(block)
            total += len(block)

    def _retried(self, what: str, action: Callable[[], None], attempts: int = ATTEMPTS) -> None:
        for attempt in range(attempts):
            try:
                action()
                return
            except (OSError, ValueError, http.client.HTTPException) as error:  # URLError and HTTPError are OSErrors
                final = isinstance(error, deposit.Refused) and error.status in _FINAL
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
                    final = error.code in _FINAL
                if final or isinstance(error, (FileNotFoundError, PermissionError)) or attempt == attempts - 1:
                    raise TransferFailed("%s: %s" % (what, _why(error))) from None
            if self._stop.wait(min(RETRY_FIRST_S * (1 << min(attempt, 10)), RETRY_MOST_S)):
                raise TransferStopped


class _Stoppable:
    """A file for urllib to send that ends with TransferStopped when the attempt is killed."""

    def __init__(self, file: IO[bytes], stop: threading.Event) -> None:
        self._file = file
        self._stop = stop

    def read(self, count: int = -1) -> bytes:
        if self._stop.is_set():
            raise TransferStopped
        return self._file.read(count)


def _check_url(url: str, what: str) -> None:
    """Whatever the dispatcher's Python thought of it: they differ in what they take for a URL."""
    try:
        known = urlsplit(url).scheme in ("http", "https", "file")
    except ValueError:
        raise TransferFailed("%s: its URL can't be read" % what) from None
    if not known:
        raise TransferFailed("%s: %r is not a http, https or file URL" % (what, shown(url)))


def shown(url: str) -> str:
    """`url`, which can be read, for people: without who is named in it, and without its query, where signatures
    stand."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query and "...", ""))


def _why(error: Exception) -> str:
    """What `error` says; of one that quotes the URL only that."""
    if isinstance(error, urllib.error.HTTPError):
        return "HTTP Error %d: %s" % (error.code, http.client.responses.get(error.code, ""))
    return "its URL can't be used" if isinstance(error, (ValueError, http.client.InvalidURL)) else str(error)


def _opener(depot: Optional[Depot]) -> urllib.request.OpenerDirector:
    if depot is None:
        return urllib.request.build_opener()
    handlers: List[Any] = [urllib.request.ProxyHandler({})]
    if depot.tls is not None:
        handlers.append(_pinned_handler(depot.tls, depot.fingerprint))
    return urllib.request.build_opener(*handlers)


def _pinned_handler(tls: ssl.SSLContext, fingerprint: str) -> urllib.request.HTTPSHandler:
    class Connection(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            if fingerprint:
                check_pin(self.sock.getpeercert(binary_form=True), fingerprint)

    class Handler(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(lambda host, **kw: Connection(host, context=tls, timeout=kw.get("timeout")), req)

    return Handler(context=tls)
