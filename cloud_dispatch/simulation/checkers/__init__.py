"""The promises, each a checker. `ALL` is every one of them."""

from __future__ import annotations

from cloud_dispatch.simulation.checkers.base import Checker
from cloud_dispatch.simulation.checkers.caps import Batches, CapsKept
from cloud_dispatch.simulation.checkers.drains import Drains
from cloud_dispatch.simulation.checkers.ends import Ends
from cloud_dispatch.simulation.checkers.gpus import Gpus
from cloud_dispatch.simulation.checkers.identities import Identities
from cloud_dispatch.simulation.checkers.neighbours import Neighbours
from cloud_dispatch.simulation.checkers.orders import Orders
from cloud_dispatch.simulation.checkers.orphans import Orphans
from cloud_dispatch.simulation.checkers.payers import Payers
from cloud_dispatch.simulation.checkers.plans import Plans
from cloud_dispatch.simulation.checkers.remains import Remains
from cloud_dispatch.simulation.checkers.results import Results
from cloud_dispatch.simulation.checkers.spend import Spend
from cloud_dispatch.simulation.checkers.starvation import Starvation
from cloud_dispatch.simulation.checkers.strays import Strays
from cloud_dispatch.simulation.checkers.tasks import Tasks
from cloud_dispatch.simulation.checkers.waste import Waste

ALL: tuple[type[Checker], ...] = (
    Tasks, Strays, Results, Orphans, Remains, CapsKept, Batches, Plans, Identities, Drains, Ends, Orders, Starvation,
    Spend, Payers, Neighbours, Waste, Gpus,
)  # fmt: skip
