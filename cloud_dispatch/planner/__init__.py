"""Deciding: `plan(snapshot, now) -> Plan`. Pure and deterministic; knows shapes, never single tasks; no I/O, no clock."""
