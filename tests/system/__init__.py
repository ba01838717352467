"""The hard cases over real processes: a dispatcher, its local instances, agents and tasks, killed in every way."""
