"""Typed settings, read once from a source and checked whole: the only part that knows the configuration's keys."""

from cloud_dispatch.config.load import OPERATOR_FILE, OPERATOR_HASH, Config, Plugins, load, load_address
from cloud_dispatch.config.problems import InvalidConfig, Problem
from cloud_dispatch.config.source import ConfigSource, Embedded, Raw, TomlFile, find_source

__all__ = [
    "OPERATOR_FILE",
    "OPERATOR_HASH",
    "Config",
    "ConfigSource",
    "Embedded",
    "InvalidConfig",
    "Plugins",
    "Problem",
    "Raw",
    "TomlFile",
    "find_source",
    "load",
    "load_address",
]
