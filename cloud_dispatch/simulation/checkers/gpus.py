"""No two commands that run on a VM use the same GPU, and each has as many as its task asked for, of those there are."""

from __future__ import annotations

from collections import defaultdict

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.simulation.checkers.base import Checker, Process, View


class Gpus(Checker):
    """By what commands are told as they start. One that was told of none uses none."""

    name = "gpus"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._users: dict[tuple[str, VmId, int], dict[int, int]] = defaultdict(dict)  # by VM: index -> token
        self._there = {
            (account.profile, sold.type.name): sold.type.capacity.gpus
            for account in view.scenario.accounts
            for sold in account.settings.sells
        }

    def process_started(self, process: Process) -> None:
        vm, lent = process.vm, process.gpus
        if len(set(lent)) != process.asked_gpus:
            self.find(f"task {process.task} on {vm.id} asked for {process.asked_gpus} GPUs and is told of {lent}")
        if not lent:
            return
        there, users = self._there.get((vm.profile, vm.type), 0), self._users[vm.birth]
        for index in lent:
            if not 0 <= index < there:
                self.find(f"task {process.task} is told of GPU {index} of {vm.id}, which has {there}")
            if index in users:
                self.find(f"tokens {users[index]} and {process.token} both use GPU {index} of {vm.id}")
            users[index] = process.token

    def process_ended(self, process: Process) -> None:
        if process.gpus:
            users = self._users[process.vm.birth]
            for index in process.gpus:
                if users.get(index) == process.token:
                    del users[index]
