"""The messages between agent and dispatcher, in Python 3.9 syntax and standard library only: both sides import this."""
