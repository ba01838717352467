"""What the framework of Google's functions looks for at the root of its source: the reaper."""

from cloud_dispatch.reapers.gcp import handler as reap

__all__ = ["reap"]
