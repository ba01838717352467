"""Around."""
