"""What wants capacity: tasks of the native queue, targets of pools. One file a source; knows domain, ports, planner."""
