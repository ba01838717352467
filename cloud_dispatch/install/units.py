"""The units of systemd that run the dispatcher and copy its state, and what bounds its log. Owns their text; pure.

The dispatcher needs its state folder, its configuration, the network and nothing else of the machine, so that the rest
is closed to it; `systemd-analyze security` puts it under 3 of 10. What stays open, and why:

- no filter of addresses: providers' and agents' addresses are not known beforehand.
- no MemoryDenyWriteExecute: libraries with compiled parts may make callbacks at run time, and a driver's are not ours.
- the local provider's VMs are processes of the machine, which a service so closed can't make: it is for trying things.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cloud_dispatch.config import secrets

SERVICE, BACKUP, TIMER = "cloud-dispatch.service", "cloud-dispatch-backup.service", "cloud-dispatch-backup.timer"
#: The journal of its own that the dispatcher logs to, and the file of its settings.
JOURNAL = "cloud-dispatch"
JOURNAL_FILE = f"journald@{JOURNAL}.conf"

#: What the units close by ProtectHome and PrivateTmp: the service finds nothing of it.
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")

_PLAIN = re.compile(r"[A-Za-z0-9._+@/-]+")
_CLOSED = """\
CapabilityBoundingSet=
AmbientCapabilities=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
PrivateMounts=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProcSubset=pid
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
KeyringMode=private
RemoveIPC=yes
DevicePolicy=closed
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
UMask=0077
"""


_JOURNAL = """\
# What the dispatcher logs: by the day, and never more than this.
[Journal]
Storage=persistent
SystemMaxUse=1G
SystemMaxFileSize=64M
MaxFileSec=1day
RateLimitIntervalSec=30s
RateLimitBurst=20000
"""


@dataclass(frozen=True)
class Place:
    """What is where. `program`: the installed command, by which the units call it. `environment`: variables of the
    services' environment, where there is such a file. `copies`: a folder outside of the state where backups go, None
    for none."""

    program: Path
    config: Path
    state: Path
    user: str = "cloud-dispatch"
    credentials: Path = secrets.FOLDER
    environment: Path = secrets.ENVIRONMENT
    copies: Path | None = None


def units(place: Place) -> dict[str, str]:
    """Their texts by their names."""
    return {SERVICE: _service(place), BACKUP: _backup(place), TIMER: _timer()}


def journal() -> dict[str, str]:
    """The settings of the dispatcher's journal by their file's name: it is rotated and bounded by itself, so that
    nobody else's log is pushed out by it, nor it by others'."""
    return {JOURNAL_FILE: _JOURNAL}


def _executable(path: Path) -> str:
    """systemd takes the first word of a command as it is: what would have to be escaped there can't be."""
    if not _PLAIN.fullmatch(str(path)):
        raise ValueError(f"{str(path)!r} can't be the program of a unit: it has signs beside A-Z a-z 0-9 . _ + @ - /")
    return str(path)


def quoted(text: object) -> str:
    """One word of a command line in a unit, whatever is in it. ValueError for what no unit can hold."""
    word = _line(text)
    for sign, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(sign, escaped)
    return f'"{word}"'


def _setting(path: Path) -> str:
    """One of a list of paths, which is quoted as a command is, but that no variable is put in."""
    return quoted(path).replace("$$", "$")


def _mounted(folder: Path) -> str:
    """Whose disk is not there does not begin anew in the empty folder that is in its place: an entry of /etc/fstab with
    `nofail` lets everything else start without it, and before it."""
    return f"RequiresMountsFor={_setting(folder)}\n"


def _line(text: object) -> str:
    line = str(text)
    if any(ord(sign) < 32 for sign in line):
        raise ValueError(f"{line!r} has a sign in it that no unit can hold")
    return line


def _common(place: Place) -> str:
    # Of a setting's value systemd expands %; a list of paths is quoted as a command is, one path alone is not.
    user, credentials, environment = (
        _line(value).replace("%", "%%") for value in (place.user, place.credentials, place.environment)
    )
    state = _setting(place.state)
    secrets = f"LoadCredential=cloud-dispatch:{credentials}\nEnvironmentFile=-{environment}\n"
    return f"User={user}\nGroup={user}\nReadWritePaths={state}\n{_CLOSED}{secrets}"


def _service(place: Place) -> str:
    program, config = _executable(place.program), quoted(place.config)
    return f"""\
[Unit]
Description=cloud-dispatch: rents machines for a queue of work, and gives them back
Wants=network-online.target
# Whose life is over, and what is past retention, is told by the clock: where something waits for it, so does this.
After=network-online.target time-sync.target
{_mounted(place.state)}StartLimitIntervalSec=0

[Service]
# It says itself when it is up, with all that it found restored; a store with many rows takes its time to migrate.
Type=notify
NotifyAccess=main
TimeoutStartSec=900
# A loop that does not turn for so long is ended, and started anew.
WatchdogSec=120
ExecStart={program} up --config {config}
# What is wrong with a configuration is said by the reload; the dispatcher would refuse it too.
ExecReload={program} config check --config {config}
ExecReload=/bin/kill -HUP $MAINPID
LogNamespace={JOURNAL}
# VMs run on without it, and it finds them again: what is needed is that it comes back.
Restart=always
RestartSec=5
RestartPreventExitStatus=2
KillMode=mixed
TimeoutStopSec=90
LimitNOFILE=65536
{_common(place)}
[Install]
WantedBy=multi-user.target
"""


def _backup(place: Place) -> str:
    command = f"{_executable(place.program)} backup --config {quoted(place.config)}"
    elsewhere = f"ReadWritePaths={_setting(place.copies)}\n" if place.copies else ""
    return f"""\
[Unit]
Description=cloud-dispatch: a copy of the statestore and its keys
{_mounted(place.state)}{_mounted(place.copies) if place.copies else ""}
[Service]
Type=oneshot
ExecStart={command}
TimeoutStartSec=45min
Nice=10
IOSchedulingClass=idle
{_common(place)}{elsewhere}"""


def _timer() -> str:
    return """\
[Unit]
Description=cloud-dispatch: a copy of the statestore every hour

[Timer]
OnCalendar=hourly
RandomizedDelaySec=300
Persistent=yes

[Install]
WantedBy=timers.target
"""
