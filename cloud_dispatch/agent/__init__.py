"""The compute service on each VM. Standard library only, Python 3.9; knows `wire` and nothing else of the project."""

VERSION = "0.2"
