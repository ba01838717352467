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
    "nvidia": "whether NVIDIA's driver is installed where there is a device for it",
    "nvidia_packages": "the packages of NVIDIA's driver, a list; empty for those of the distribution",
    "mounts": "what is mounted, a list of mappings: kind, path, source, options, filesystem, format, size",
    "scripts": "an operator's scripts that run before the agent starts, a list of mappings: name, content",
    "scripts_apart": "whether the VM fetches them from the dispatcher, since with them the document would be too large",
    "metadata": "whether tasks may reach the provider's metadata service",
    "base_folder": "where the agent lives on the VM; relative only where commands start on the VM's own disk",
    "vm_id_command": "a shell command that prints the provider's id of this VM",
    "end_command": "a shell command that ends the VM, empty where the end of the boot commands does",
    "proof": "the steps to the proof of which VM this is, a list of mappings: file (relative to base_folder), or url, "
    "method and headers, with {answer} for that of the step before it, {audience} and {nonce} for the batch's",
    "spot": "whether the provider may take the VM back",
    "notices": "where the provider says that it does, a list of mappings: the fields of agent.identity.NoticeSource",
    "early": "whether the agent may start before cloud-init's last stages, which do nothing that it needs",
    "python": "the interpreter, 3.9 or newer",
    "whole_machine": "empty where a VM is a part of its host, whose drivers, mounts and settings are not its own",
    "service": "`systemd`: it keeps the supervisor running, where the image has it; empty: the boot commands do",
    "agent_user": "the user (or uid) that the agent runs as, made if it is not there; empty for the supervisor's own",
    "task_uids": "FIRST-LAST, a uid for each attempt that runs; empty for the supervisor's own",
}
DEFAULTS: Mapping[str, Any] = {
    "fingerprint": "",
    "timer": {},
    "labels": {},
    "proxies": {},
    "nvidia": False,
    "nvidia_packages": (),
    "mounts": (),
    "scripts": (),
    "scripts_apart": False,
    "metadata": False,
    "base_folder": "/var/lib/cloud-dispatch",
    "vm_id_command": "cat /var/lib/cloud/data/instance-id",
    "end_command": "systemctl poweroff",
    "proof": (),
    "spot": False,
    "notices": (),
    "early": True,
    "python": "python3",
    "whole_machine": "yes",
    "service": "systemd",
    "agent_user": "cloud-dispatch",
    "task_uids": "60600-60855",  # neither people's, nor systemd's dynamic ones, nor those of namespaces
}
