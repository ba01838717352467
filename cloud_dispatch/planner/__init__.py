"""Deciding: `plan(snapshot) -> Plan`. Pure and deterministic; knows shapes, never single tasks; no I/O, no clock."""

from cloud_dispatch.planner.planner import plan

__all__ = ["plan"]
