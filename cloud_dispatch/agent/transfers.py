"""Brings inputs and takes outputs, by URL. Owns their bounds and names; runs in threads: nothing is asynchronous here.

What fails is tried again after a pause, which is yielded: whoever carries a transfer out waits, and nothing is held for
it meanwhile but the file that goes.

A file is under its final name only when it is whole. Outputs go to names of the attempt alone (promise P1): the
manifest of the result that is accepted says which files are the task's. The dispatcher itself, which keeps outputs and
serves them as inputs of other tasks, is asked with a token; nobody else is sent one.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from functools import partial
from typing import IO, Any, Callable, Dict, List, Tuple, TypeVar  # noqa: UP035
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from cloud_dispatch.agent import deposit
from cloud_dispatch.agent.adapters import Steps, now_ms
from cloud_dispatch.agent.connections import opener
from cloud_dispatch.agent.depot import FULL, Depot, NoRoom, Stop, TransferFailed
from cloud_dispatch.agent.findings import MOST_OUTPUTS, found, inside, opened
from cloud_dispatch.agent.reach import Reach
from cloud_dispatch.wire.messages import OUTPUTS_PATH, TRANSFER_SCHEMES, FileTransfer, OutputFile, weight
from cloud_dispatch.wire.places import PLACE, marked, tells_attempts_apart

T = TypeVar("T")
#: What fails is tried so often at least.
ATTEMPTS = 4
#: For what the dispatcher keeps: it may be away, or its disk full, for some minutes.
DEPOT_ATTEMPTS = 60
#: And for so long since it first failed. An input holds room on the VM meanwhile, and another attempt can be made; an
#: output is all that is left of what has succeeded.
INPUT_PATIENCE_MS = 30_000
OUTPUT_PATIENCE_MS = 300_000
RETRY_FIRST_S = 0.5
RETRY_MOST_S = 5.0
ANSWER_S = 60.0
#: Of a manifest, by `weight`: the dispatcher takes no request that is too long, and would hear no more of the VM.
MOST_MANIFEST = 4 << 20
_BLOCK = 1 << 20
#: Answers after which nothing is gained by asking again.
_FINAL = frozenset({400, 401, 403, 404, 409, 410, 413})
#: What time alone hardly mends: a URL that can't be used, a certificate that proves nobody, a folder in a file's place.
_UNCHANGING = (ValueError, http.client.InvalidURL, IsADirectoryError, NotADirectoryError)


class Transfers:
    """The transfers of one attempt in `folder`, its working folder. `stop` ends them early."""

    def __init__(self, folder: str, task: int, token: int, depot: Depot, stop: Stop, reach: Reach = Reach()) -> None:
        self._folder = os.path.realpath(folder)
        self._task = task
        self._token = token
        self._depot = depot
        self._stop = stop
        self._reach = reach
        self._brought = self._needs = 0  # bytes of the inputs that are here, and with the one that comes

    def bring(self, inputs: List[FileTransfer]) -> Steps[None]:
        """Every input under its name; TransferFailed names the first that is not to be had."""
        for item in inputs:
            self._stop.check()
            target = self._inside(item.path)
            _check_url(item.url, "input %s" % item.path)
            what = "input %s from %s" % (item.path, shown(item.url))
            attempts = DEPOT_ATTEMPTS if self._is_depot(item.url) else ATTEMPTS
            yield from self._retried(what, partial(self._fetch, item.url, target), attempts, INPUT_PATIENCE_MS)
            self._brought = self._needs

    def take(self, outputs: List[FileTransfer]) -> Steps[List[OutputFile]]:
        """Store every declared output and return the manifest; TransferFailed if one is missing or can't be stored."""
        self._stop.check()
        self._reach.allow(self._folder)
        planned = self._planned(outputs)
        manifest: List[OutputFile] = []
        for path, url in planned:
            stored = yield from self._store(path, url)
            manifest.append(stored)
        return manifest

    def _planned(self, outputs: List[FileTransfer]) -> List[Tuple[str, str]]:
        """What to store and where: each file once at each of the places that are named for it. TransferFailed for what
        can't be, before anything is sent."""
        planned: Dict[Tuple[str, str], str] = {}  # by the place: a URL, or the dispatcher's with a path
        heavy = 0
        for item in outputs:
            for path in found(self._folder, item.path, self._stop.check):
                url = self._target(item, path)
                place = (url, "" if url else path)
                if place in planned:
                    if planned[place] != path:
                        raise TransferFailed("outputs %s and %s have the same URL" % (planned[place], path))
                    continue
                if not os.path.isfile(self._inside(path)):
                    raise TransferFailed("output %s is not a file" % path)
                planned[place] = path
                heavy += weight(path, url)
                if len(planned) > MOST_OUTPUTS:
                    raise TransferFailed("more than %d output files" % MOST_OUTPUTS)
                if heavy > MOST_MANIFEST:
                    raise TransferFailed("the names of output %s are too long for so many files" % item.path)
        return [(path, url) for (url, _), path in planned.items()]

    # Names

    def _inside(self, path: str) -> str:
        return inside(self._folder, path)

    def _target(self, item: FileTransfer, path: str) -> str:
        """Where `path` goes. `{token}` in a URL becomes the attempt's token; a URL that ends in / gets the path."""
        url = item.url
        if not url:
            return url
        if url.endswith("/"):
            url += quote(path)
        elif path != os.path.normpath(item.path):
            raise TransferFailed("output %s is several files, so its URL must end in /" % item.path)
        _check_url(url.replace(PLACE, "1"), "output %s" % path)
        if not tells_attempts_apart(url):
            raise TransferFailed("output %s: its URL would be the same file for every attempt" % path)
        return marked(url, self._token)

    # Movement

    def _fetch(self, url: str, target: str) -> None:
        with self._open(url) as source:
            self._stop.check()
            with self._reach.written(target, ".%d.part" % self._token) as file:
                self._receive(source, file)
                self._stop.check()  # a connection that was ended may look like one that came to its end

    def _open(self, url: str) -> Any:
        if _is_file(url):
            return self._reach.source(unquote(urlsplit(url).path))
        depot = self._depot if self._is_depot(url) else None
        request = urllib.request.Request(url)
        if depot is not None:
            request.add_unredirected_header("Authorization", "Bearer " + depot.token())
        try:
            return opener(self._stop, depot).open(request, timeout=ANSWER_S)
        except urllib.error.HTTPError as error:
            if depot is None:
                raise
            raise deposit.refusal(error) from None

    def _is_depot(self, url: str) -> bool:
        return url.startswith(self._depot.url + "/")

    def _receive(self, source: Any, file: IO[bytes]) -> None:
        """All of `source`, as it comes: a block that fills slowly would keep the attempt from being stopped."""
        promised = getattr(source, "length", None)
        self._needs = max(self._needs, self._brought + (promised or 0))
        size = 0
        while size != promised:
            self._stop.check()
            block = source.read1(_BLOCK)
            if not block:
                break
            size += len(block)
            self._needs = max(self._needs, self._brought + size)
            file.write(block)
        if promised is not None and promised != size:
            raise OSError("got %d of %d bytes" % (size, promised))

    def _store(self, path: str, url: str) -> Steps[OutputFile]:
        what = "output %s to %s" % (path, shown(url) or "the dispatcher")
        attempts = ATTEMPTS
        if _is_file(url):
            send: Callable[[_Sent], None] = partial(self._place, unquote(urlsplit(url).path))
        elif url:
            send = partial(self._put, url)
        else:
            query = "?task=%d&token=%d&path=%s" % (self._task, self._token, quote(path, safe=""))
            send, attempts = partial(self._deposit, OUTPUTS_PATH + query), DEPOT_ATTEMPTS
        with (yield from self._retried(what, partial(self._opened, path))) as file:
            sent = partial(self._sent, path, url, file, send)
            return (yield from self._retried(what, sent, attempts, OUTPUT_PATIENCE_MS))

    def _opened(self, path: str) -> IO[bytes]:
        file = opened(self._folder, path)
        try:
            self._reach.judge(file.fileno())
        except OSError:
            file.close()
            raise
        return file

    def _sent(self, path: str, url: str, file: IO[bytes], send: Callable[[_Sent], None]) -> OutputFile:
        file.seek(0)
        sent = _Sent(file, os.fstat(file.fileno()).st_size, self._stop)
        send(sent)
        return OutputFile(path, url, sent.size, sent.digest.hexdigest())

    def _place(self, target: str, source: _Sent) -> None:
        with self._reach.written(target, ".part") as file:
            shutil.copyfileobj(source, file, _BLOCK)
            file.flush()
            os.fsync(file.fileno())
            self._stop.check()

    def _deposit(self, path: str, source: _Sent) -> None:
        deposit.put(self._depot, path, source, source.size, ANSWER_S, self._stop)

    def _put(self, url: str, source: _Sent) -> None:
        request = urllib.request.Request(url, data=source, method="PUT")
        request.add_header("Content-Length", str(source.size))
        request.add_header("Content-Type", "application/octet-stream")
        with opener(self._stop, None).open(request, timeout=ANSWER_S):
            pass

    def _retried(self, what: str, action: Callable[[], T], attempts: int = ATTEMPTS, patience_ms: int = 0) -> Steps[T]:
        failures, failed_ms = 0, 0
        while True:
            try:
                return action()
            except (OSError, ValueError, http.client.HTTPException) as error:  # URLError and HTTPError are OSErrors
                self._stop.check()
                final = isinstance(error, deposit.Refused) and error.status in _FINAL
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
                    final = error.code in _FINAL
                failures, failed_ms = failures + 1, failed_ms or now_ms()
                waited = isinstance(error, _UNCHANGING) or now_ms() >= failed_ms + patience_ms
                over = failures >= attempts and waited
                if final or over or isinstance(error, (FileNotFoundError, PermissionError)):
                    why = "%s: %s" % (what, _why(error))
                    raise (NoRoom(why, self._needs) if _is_full(error) else TransferFailed(why)) from None
            finally:
                self._stop.unwatch()
            yield min(RETRY_FIRST_S * (1 << min(failures - 1, 10)), RETRY_MOST_S)
            self._stop.check()


class _Sent:
    """A file on its way, of the size that it had: no byte more, and OSError if it has fewer. `digest` is of what was
    read: whoever takes it is asked first, and it is read once."""

    def __init__(self, file: IO[bytes], size: int, stop: Stop) -> None:
        self.size = size
        self.digest = hashlib.sha256()
        self._left = size
        self._file = file
        self._stop = stop

    def read(self, count: int = -1) -> bytes:
        self._stop.check()
        block = self._file.read(self._left if count < 0 else min(count, self._left))
        if self._left and count and not block:
            raise OSError("it has become shorter while it was sent")
        self._left -= len(block)
        self.digest.update(block)
        return block


def _is_file(url: str) -> bool:
    return urlsplit(url).scheme == "file"


def _check_url(url: str, what: str) -> None:
    """Whatever the dispatcher's Python thought of it: they differ in what they take for a URL."""
    try:
        known = urlsplit(url).scheme in TRANSFER_SCHEMES
    except ValueError:
        raise TransferFailed("%s: its URL can't be read" % what) from None
    if not known:
        raise TransferFailed("%s: %r is not a http, https or file URL" % (what, shown(url)))


def shown(url: str) -> str:
    """`url`, which can be read, for people: without who is named in it, and without its query, where signatures
    stand."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query and "...", ""))


def _is_full(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in FULL


def _why(error: Exception) -> str:
    """What `error` says; of one that quotes the URL only that."""
    if isinstance(error, urllib.error.HTTPError):
        return "HTTP Error %d: %s" % (error.code, http.client.responses.get(error.code, ""))
    return "its URL can't be used" if isinstance(error, (ValueError, http.client.InvalidURL)) else str(error)
