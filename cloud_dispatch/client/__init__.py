"""The dispatcher's REST API as typed calls, for the CLI and for Python programs. Knows the API, no other part."""

from cloud_dispatch.client.client import Client
from cloud_dispatch.client.transport import trusting
from cloud_dispatch.client.views import (
    AttemptView,
    InstanceView,
    LogChunk,
    RerunView,
    Submitted,
    TaskDetail,
    TaskPage,
    TaskView,
)

__all__ = [
    "AttemptView",
    "Client",
    "InstanceView",
    "LogChunk",
    "RerunView",
    "Submitted",
    "TaskDetail",
    "TaskPage",
    "TaskView",
    "trusting",
]
