"""Logs and metrics. Knows what is told to it and nothing of who tells."""
