"""Where the function's host finds what it calls."""

from cloud_dispatch.reapers.azure import main

__all__ = ["main"]
