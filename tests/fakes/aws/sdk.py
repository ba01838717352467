"""The SDK of AWS in tests. Owns what all sessions of a process share here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.client import ClientCreator
from botocore.loaders import JSONFileLoader


@contextmanager
def shared_models() -> Iterator[None]:
    """Meanwhile sessions have the models of services in common, which none of them changes. A process of the product
    has a session or two; the tests make thousands, and a third of their time was the reading of models."""
    read, load, making = JSONFileLoader.load_file, ClientCreator._load_service_model, threading.RLock()
    files: dict[str, Any] = {}
    models: dict[Any, Any] = {}

    def file_of(loader: Any, path: str) -> Any:
        with making:
            if path not in files:
                files[path] = read(loader, path)
            return files[path]

    def model_of(creator: Any, service: str, api_version: str | None = None) -> Any:
        key = (frozenset(creator._loader.search_paths), service, api_version)
        with making:
            if key not in models:
                models[key] = load(creator, service, api_version)
            return models[key]

    JSONFileLoader.load_file, ClientCreator._load_service_model = file_of, model_of
    try:
        yield
    finally:
        JSONFileLoader.load_file, ClientCreator._load_service_model = read, load
