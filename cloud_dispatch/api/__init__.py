"""HTTP: what agents and operators may ask of the dispatcher. Knows ports, wire messages and the domain, no adapter."""
