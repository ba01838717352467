"""The variables of boot templates. Owns their names, meanings and defaults; must not know who provides them.

The first group comes from the dispatcher for each launch, the second from the driver's plugin
(`template_variables()`). An operator's template may use more, if it brings defaults for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MEANINGS: Mapping[str, str] = {
    "url": "the dispatcher's URL as VMs reach it, http://host:port",
    "fingerprint": "sha256 of the dispatcher's TLS certificate in hex, empty for none to pin",
    "join_token": "what admits this batch's VMs and no others",
    "agent_sha256": "sha256 of /v1/agent.pyz in hex",
    "timer": "the guest timer, a mapping: the fields of wire.timer.TimerPlan; empty for none",
    "pool": "the pool's name",
    "labels": "the pool's labels, a mapping",
    "proxies": "http, https and no (proxy), a mapping with those that are set",
    "base_folder": "where the agent lives on the VM; relative only where commands start on the VM's own disk",
    "vm_id_command": "a shell command that prints the provider's id of this VM",
    "end_command": "a shell command that ends the VM, empty where the end of the boot commands does",
    "python": "the interpreter, 3.9 or newer",
}
DEFAULTS: Mapping[str, Any] = {
    "fingerprint": "",
    "timer": {},
    "labels": {},
    "proxies": {},
    "base_folder": "/var/lib/cloud-dispatch",
    "vm_id_command": "cat /var/lib/cloud/data/instance-id",
    "end_command": "systemctl poweroff",
    "python": "python3",
}
