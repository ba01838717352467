"""The real ones behind the ports: system clock, system entropy, executors. Chosen by `bootstrap` and nobody else."""
