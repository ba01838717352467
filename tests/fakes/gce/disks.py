"""Disks."""
