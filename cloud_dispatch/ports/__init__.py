"""What the core needs from outside, as protocols: clock, entropy, executor, store. Knows the domain only."""
