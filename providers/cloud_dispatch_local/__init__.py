"""The local provider: instances are process trees on this host."""
