"""A user's question to the simulator: what would this configuration do with that workload, and what would it cost?

Turns a configuration into simulated accounts and a statestore's past into a record. The run itself is the simulator's.
"""
