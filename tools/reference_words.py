"""The words of the generated reference that the code does not hold: what each setting and field means.

Owns texts only. A key without words, and words without a key, are errors of `tools.reference`.
"""

from __future__ import annotations

from collections.abc import Mapping

_DURATION, _SIZE, _COUNT = "duration", "size", "whole number"

_MONEY, _PART = "dollars as text", "part of the limit, at most 1"


def _budget(path: str, whose: str, *, payers: bool = False) -> dict[str, tuple[str, str]]:
    """The words of a section of spending limits: of VMs, or of whom tasks are done for."""
    begun = "no task of theirs is begun any more, and what runs is finished"
    no_launch, drain = (begun, begun) if payers else ("nothing more is launched", "what runs is drained")
    return {
        f"{path}.total": (_MONEY, f"At most so much is ever spent {whose}."),
        f"{path}.month": (_MONEY, f"At most so much a calendar month of UTC {whose}."),
        f"{path}.day": (_MONEY, f"At most so much a day of UTC {whose}."),
        f"{path}.hour": (_MONEY, f"At most so much a full hour {whose}."),
        f"{path}.notify": (_PART, "When so much of a limit here is spent, an event says so; 0: never."),
        f"{path}.stop_launches": (_PART, f"When so much of a limit here is spent, {no_launch}; 0: never."),
        f"{path}.drain": (_PART, f"When so much of a limit here is spent, {drain}; 0: never."),
    }


#: By the path of the key: what is expected, and what it means.
SETTINGS: Mapping[str, tuple[str, str]] = {
    "dispatcher.deployment": (
        "name",
        "Who owns the VMs, as their tags say. Empty: a random one, lost with the statestore: set it.",
    ),
    "dispatcher.state_dir": (
        "folder",
        "Statestore, keys, operator's token, logs, outputs, drivers' folders. Relative to the file.",
    ),
    "dispatcher.listen": ("HOST:PORT", "Where the dispatcher answers agents and operators."),
    "dispatcher.advertise": (
        "URL",
        "Where VMs reach the dispatcher, if not at `listen`: another address, a proxy that speaks TLS.",
    ),
    "dispatcher.names": (
        "list of names",
        "Also in the certificate that it makes: how operators reach it. Others wait for a start without VMs.",
    ),
    "dispatcher.tls": (
        "true or false",
        "Speak TLS, with its own certificate unless one is given. `false`: only where `listen` is a loopback address.",
    ),
    "dispatcher.certificate": (
        "file",
        "A certificate in PEM, its chain after it. Without it one is made in `STATE_DIR/tls`, by a CA of its own.",
    ),
    "dispatcher.key": ("file", "The key of `certificate`, in PEM, mode 0600."),
    "dispatcher.pin": (
        "true or false",
        "VMs trust this very certificate. `false`: what their images' CAs sign for the name in `advertise`.",
    ),
    "dispatcher.log_level": ("debug, info, warning or error", "The least that is logged, on standard error."),
    "dispatcher.log_format": ("text or json", "How a log record looks. `json` is one object a line."),
    "dispatcher.pause": ("true or false", "Launch nothing. Everything else goes on."),
    "store.url": (
        "URL",
        (
            "`sqlite:///PATH`, `postgresql://...` (needs the extra `postgres`), or where that is kept: "
            "[the name of a secret](../how-to/install.md#credentials). Empty: SQLite in the state folder."
        ),
    ),
    "store.password": (
        "name of a secret",
        (
            "Where the password of the user in `url` is: `credential:NAME`, `env:NAME`, `aws-secret:ARN`, "
            "`gcp-secret:VERSION`, `azure-secret:URL`, [each with `#KEY`](../how-to/install.md#credentials). "
            "Looked for anew when a new connection is refused."
        ),
    ),
    "backup.into": (
        "folder or address",
        (
            "Where copies of the state go: a folder, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or "
            "`az://ACCOUNT/CONTAINER/PREFIX` (these need the extra `bucket`)."
        ),
    ),
    "backup.region": ("name", "The region of a bucket in S3. Empty: what `$AWS_REGION` says."),
    "backup.keep": (_COUNT, "So many copies stay, in the bucket and in the folder; of this statestore."),
    "backup.what": (
        "everything or keys",
        "`keys`: without the statestore, where that is a database with backups of its own.",
    ),
    "backup.overdue": (_DURATION, "The last copy may be this old before `health` says so."),
    "store.commit": (
        "auto, inline or thread",
        "Where commits run: `inline`, on a `thread`, or `auto`: inline while they are quick, with PostgreSQL a thread.",
    ),
    "store.retain_tasks": (
        _DURATION,
        "How long ended tasks and gone instances are kept; tasks until what they ran on is gone. Outputs a day longer.",
    ),
    "store.retain_events": (_DURATION, "How long events are kept."),
    "store.retain_plans": (_DURATION, "How long stored plans are kept, with their snapshots."),
    "store.retain_logs": (
        _DURATION,
        "How long the logs of ended attempts are kept, from their end on.",
    ),
    "timing.heartbeat": (_DURATION, "How often an agent speaks at least. A lease is at least three of them."),
    "timing.lease": (
        _DURATION,
        "How long an agent may go on with what it runs without an answer. Soon after, its instance has failed.",
    ),
    "timing.poll": (_DURATION, "How long an answer to an agent is held back when there is nothing to say."),
    "timing.pass_interval": (_DURATION, "The longest time between two passes of the loop; events start one at once."),
    "timing.list_interval": (_DURATION, "How often providers are listed. More often while something is in doubt."),
    "timing.kill_grace": (_DURATION, "From SIGTERM to SIGKILL when a task is ended."),
    "timing.silence": (_DURATION, "An agent without any answer for so long ends itself and its VM."),
    "timing.doubt": (
        _DURATION,
        "How long a launch that was not answered, or an instance that is not heard, still counts as capacity.",
    ),
    "limits.log_bytes_per_attempt": (_SIZE, "Of a longer log the head and the tail are kept, and a line says so."),
    "limits.output_bytes_per_file": (_SIZE, "The largest output file that the dispatcher keeps."),
    "limits.output_bytes_per_attempt": (
        _SIZE,
        "The most that it keeps of an attempt, each file counted as 4 KiB at least. An attempt that stores more fails.",
    ),
    "limits.disk_reserve": (
        _SIZE,
        "Left of the state folder's disk for the statestore: with less, logs, outputs, copies are refused. `0`: none.",
    ),
    "limits.request_bytes": (_SIZE, "The largest submission."),
    "limits.environment_bytes": (_SIZE, "The largest environment of one task."),
    "limits.tasks_per_submission": (_COUNT, "Tasks in one submission, arrays and sweeps expanded."),
    "limits.task_bytes_per_submission": (
        _SIZE,
        "The size of these tasks: half a KiB each, and its texts. The dispatcher needs twice as much memory for it.",
    ),
    "limits.connections": (
        _COUNT,
        "Connections to the dispatcher at once. Twice as many files and 256 more must be allowed, else they are fewer.",
    ),
    "limits.connections_without_token": (
        _COUNT,
        "Of these, the ones on which no good token was shown: a quarter at most. Newer ones push out older ones.",
    ),
    "caps.instances": (_COUNT, "At most so many instances in all."),
    "caps.vcpus": (_COUNT, "At most so many vCPUs in all."),
    **_budget("budget", "in all"),
    "drivers.NAME.caps.instances": (_COUNT, "At most so many instances of all profiles of this driver."),
    "drivers.NAME.caps.vcpus": (_COUNT, "At most so many vCPUs of all profiles of this driver."),
    **_budget("drivers.NAME.budget", "for all profiles of this driver"),
    "profiles.NAME.driver": (
        "name of a driver",
        "Which driver serves this profile. All keys not named here are its own.",
    ),
    "profiles.NAME.caps.instances": (_COUNT, "At most so many instances of this profile."),
    "profiles.NAME.caps.vcpus": (_COUNT, "At most so many vCPUs of this profile."),
    **_budget("profiles.NAME.budget", "for this profile"),
    "profiles.NAME.types.allow": ("list of patterns", "Types that may be rented at all; empty: every one."),
    "profiles.NAME.pricing": (
        "table of prices or discounts by type or pattern",
        'What you pay if not what the provider says: `"m7i.*" = "-15%"`, `"spot:m7i.large" = "0.03"`.',
    ),
    "profiles.NAME.guest_enforced": (
        "boolean",
        "Accepts that no hand but the VMs' own timers ends them: limits then fail if such a timer never runs.",
    ),
    "profiles.NAME.types.deny": ("list of patterns", "Types that may not; wins over `allow`."),
    "pools.NAME.profiles": ("list of names", "The profiles that VMs of the pool may come from."),
    "pools.NAME.types.allow": ("list of patterns", "Types that the pool may rent; empty: every one of its profiles."),
    "pools.NAME.types.deny": ("list of patterns", "Types that it may not; wins over `allow`."),
    "pools.NAME.markets": ('list of "on-demand", "spot"', "Markets that the pool may rent on."),
    "pools.NAME.labels": ("table of texts", "Labels that every instance of the pool has; tasks can ask for them."),
    "pools.NAME.caps.instances": (_COUNT, "At most so many instances of this pool."),
    "pools.NAME.caps.vcpus": (_COUNT, "At most so many vCPUs of this pool."),
    **_budget("pools.NAME.budget", "for this pool"),
    **_budget("projects.NAME.budget", "for what tasks of this project hold of VMs", payers=True),
    **_budget("users.NAME.budget", "for what tasks of this user hold of VMs", payers=True),
    "pools.NAME.min": (_COUNT, "Instances that are kept whatever the queue holds."),
    "pools.NAME.target": (_COUNT, "Instances wanted, as a source of demand like any other; the highest number counts."),
    "pools.NAME.schedule.days": ("days", "On which days, such as `mon-fri`, `sat,sun`, `daily`."),
    "pools.NAME.schedule.from": ("HH:MM", "From when."),
    "pools.NAME.schedule.to": ("HH:MM", "Until before when; not after `from` means over midnight."),
    "pools.NAME.schedule.timezone": ("name of a time zone", "On whose clocks."),
    "pools.NAME.schedule.target": (_COUNT, "How many instances are wanted then."),
    "pools.NAME.reserve.cpus": ("number of cpus", "Kept from tasks on each instance, for the system."),
    "pools.NAME.reserve.memory": (_SIZE, "Kept from tasks on each instance."),
    "pools.NAME.reserve.disk": (_SIZE, "Kept from tasks on each instance."),
    "pools.NAME.max_tasks_per_instance": (_COUNT, "At most so many tasks at once on an instance; 0: as many as fit."),
    "pools.NAME.price_factor": (
        "factor of at least 1",
        "Offerings dearer than this times the cheapest are not rented.",
    ),
    "pools.NAME.target_drain": (_DURATION, "What waits shall be done within so long: decides how many are rented."),
    "pools.NAME.min_work_per_boot": (
        "factor",
        "Another instance is rented only for at least this times its boot time in expected work.",
    ),
    "pools.NAME.boot_deadline": (_DURATION, "An instance that has not registered by then has failed."),
    "pools.NAME.template": ("name", "Which template of `cloud-init/` its VMs boot."),
    "pools.NAME.boot_allowance": (
        _MONEY,
        "VMs of one template, image and zone that never register may burn so much in a row; then launches pause.",
    ),
    "pools.NAME.futility_allowance": (
        _MONEY,
        "The same of VMs that register and end without a task, though there was work for them; or fifty in a row have.",
    ),
    "pools.NAME.boot.nvidia": ("true or false", "NVIDIA's driver is installed where there is a device and no driver."),
    "pools.NAME.boot.nvidia_packages": ("list of names", "The driver's packages; empty: those of the distribution."),
    "pools.NAME.boot.mounts.kind": ("`nfs`, `block` or `tmpfs`", "What is mounted."),
    "pools.NAME.boot.mounts.path": ("absolute path", "Where."),
    "pools.NAME.boot.mounts.source": (
        "text",
        "`HOST:/PATH` of an nfs, `/dev/NAME` of a block device, nothing of a tmpfs.",
    ),
    "pools.NAME.boot.mounts.options": ("text", "Options of the mount, with commas between them."),
    "pools.NAME.boot.mounts.filesystem": ("name", "Of a block device."),
    "pools.NAME.boot.mounts.format": ("true or false", "Whether a block device without a file system gets one."),
    "pools.NAME.boot.mounts.size": (_SIZE, "Of a tmpfs; 0: half of the memory."),
    "pools.NAME.boot.proxy.http": ("URL", "Proxy of the VM for http: programs, apt, dnf and pip. No password."),
    "pools.NAME.boot.proxy.https": ("URL", "The same for https."),
    "pools.NAME.boot.proxy.no": ("text", "Hosts that are reached without it, with commas between them."),
    "pools.NAME.boot.cloud_config": ("list of files", "Your own cloud-config documents, added to ours."),
    "pools.NAME.boot.scripts": (
        "list of files",
        "Your own scripts, run as root in their order before the agent starts.",
    ),
    "pools.NAME.boot.metadata": ("true or false", "Whether tasks may reach the provider's metadata service."),
    "pools.NAME.boot.early": (
        "true or false",
        "The agent starts when cloud-init's network stage is over, if nothing else stands here to be waited for.",
    ),
    "pools.NAME.end.idle": (_DURATION, "An instance without work for so long goes, if it is not needed; 0: never."),
    "pools.NAME.end.max_tasks": (_COUNT, "An instance goes after so many tasks; 0: no limit."),
    "pools.NAME.end.empty_claims": (
        _COUNT,
        "An instance asks to go after so many long polls in a row without work; 0: no limit.",
    ),
    "pools.NAME.end.lifetime": (_DURATION, "An instance ends after so long, whatever it does. Never endless."),
    "pools.NAME.health_checks.command": ("text for the shell, or list", "Exit code 0 means healthy."),
    "pools.NAME.health_checks.interval": (_DURATION, "How often it is run; no work is taken before it passed once."),
    "pools.NAME.health_checks.timeout": (_DURATION, "How long it may take."),
    "pools.NAME.health_checks.failures": (_COUNT, "So many failures in a row, and the instance reports itself failed."),
}

#: Defaults that say more in words than their value would.
DEFAULTS: Mapping[str, str] = {
    "dispatcher.state_dir": "`/var/lib/cloud-dispatch` with the file in `/etc`, else the user's data folder",
    "dispatcher.deployment": "random",
    "dispatcher.advertise": "`https://LISTEN`, `http://` where `tls` is false",
    "store.url": "`STATE_DIR/store.sqlite`",
    "backup.into": "`STATE_DIR/backups`",
}

#: The Azure driver's own keys of a profile: what is expected, the default, and the meaning.
TASK: Mapping[str, str] = {
    "command": "What to run. Text goes to `/bin/sh -c`; a list is run as it is.",
    "name": "To show and to filter by.",
    "env": "Environment variables, on top of a small base. Numbers are taken as text.",
    "cwd": "Working folder: relative to the attempt's own folder, or absolute.",
    "cpus": "Cpus, in steps of 0.001.",
    "memory": "Memory, at least 1MiB; without a unit it is bytes. An attempt that uses more ends `out-of-memory`.",
    "disk": "Disk, for finding an instance. Not enforced.",
    "gpus": "Number of GPUs, or a table of `count`, `type` and `memory` of each.",
    "labels": "Labels that the instance must have: its pool's, and `type`, `zone`, `market`, `arch`.",
    "inputs": "Files to fetch before: tables of `url` (http, https, file) and `path` below the working folder.",
    "outputs": "Files, folders or patterns to keep after success: a path, or a table of `path` and `url`.",
    "max_runtime": "After so long the attempt is ended: cause `timeout`.",
    "expected_runtime": "What the planner counts with. Telling it makes plans better. Too long breaks nothing; too"
    " short, and on Google Cloud under a limit its machine may end first.",
    "checkpoint_signal": "What the command's main process gets when its instance is about to go: it has until then.",
    "max_attempts": "How many attempts in all may start. What is lost with its instance five times in a row before it"
    " could start counts as one.",
    "retry": "Causes that put the task back, instead of the default ones. `exit-code:N` is one exit code.",
    "priority": "Higher runs first.",
    "project": "To count and filter by; whose limit on spending it counts for.",
    "user": "The same. The command line fills in yours.",
    "preemptible": "`false` keeps the task off spot instances.",
    "max_per_instance": "At most so many tasks of this shape at once on an instance; 0: no limit.",
    "exclusive": "The instance for itself.",
    "pool": "Only instances of this pool.",
    "idempotency_key": (
        "Submitting the same key again gives the same task; with another specification it is refused. It is"
        " forgotten with its task, after `store.retain_tasks`."
    ),
    "array": "So many copies; `{index}` in command, name and values of env is their number, from 0.",
    "sweep": "One task for each combination of values; `{NAME}` stands for the value.",
}
TASK_DEFAULTS: Mapping[str, str] = {
    "cpus": "`1`",
    "memory": "`512MiB`",
    "disk": "`0`",
    "max_attempts": "`3`",
    "retry": "`preempted`, `instance-lost`, `cannot-start`",
    "max_runtime": "none",
    "expected_runtime": "unknown",
    "array": "none",
}

#: Errors of the core, by class: what happened and what to do.
ERRORS: Mapping[str, str] = {
    "InvalidInput": "The input is wrong at `place`; nothing was done. Correct it.",
    "InvalidConfig": "The configuration has problems; the message has a line for each, with its place.",
    "TooLarge": "A body, chunk or file is larger than its limit. Send less, or raise the limit.",
    "MethodNotAllowed": "The route is there, but not for this method.",
    "NotFound": "There is no such thing. Look up its name.",
    "Conflict": "Its state forbids it, or it belongs to somebody else (such as a statestore that another process has).",
    "OverBudget": "A spending limit does not admit this; nothing was committed. Raise it, or wait for its next window.",
    "StaleLease": "The fencing token is not the current one. Stop the attempt and drop what it made.",
    "Gap": "A chunk of a log starts past the end of what is stored. Go on at the offset in `X-Offset`.",
    "Denied": "The caller may not do this.",
    "Unauthenticated": "No token, or not one of this dispatcher's.",
    "Unavailable": "It can't be done now; nothing was done. Try again later.",
    "StoreUnavailable": "It can't be committed (disk full, database gone). The hint says whether the call did nothing.",
    "LostLock": "Another dispatcher has, or has had, the statestore of this one, which writes nothing more. Stop one.",
    "Unanswered": "The database does not answer. The hint says whether the call may be committed. Try again.",
    "AnotherPast": "The database is not as the dispatcher left it (commits were lost): `db restored` comes first.",
    "Overloaded": "A bound was reached. Try again a little later.",
    "IllegalTransition": "A bug: a state machine was asked for an arrow that it lacks.",
}

#: Provider errors: what the dispatcher does.
PROVIDER_ERRORS: Mapping[str, str] = {
    "RateLimited": "Leaves the whole profile alone until the time that the provider names.",
    "QuotaExceeded": "Blocks the scope for 5 minutes, tries the next offering.",
    "CapacityUnavailable": "Blocks the scope for 3 minutes, tries the next offering.",
    "InvalidRequest": "Blocks the offering for 10 minutes: an operator has to look.",
    "CredentialsRejected": "Blocks the whole profile for 10 minutes: an operator has to look.",
    "VmNotFound": "Takes it as one part of a proof of absence.",
    "NotProven": "Refuses the registration, and tells the operator.",
    "Transient": "Tries again, at launches with the next offering.",
    "InDoubt": "Keeps the slots and looks for the VMs.",
}
