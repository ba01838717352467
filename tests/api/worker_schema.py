"""The worker API as an OpenAPI document, made from the very types that its routes decode: nothing in it can be out of
date but the queries, which are checked by hand in the routes as well."""

from __future__ import annotations

from typing import Any

import msgspec

from cloud_dispatch.api import worker
from cloud_dispatch.wire.messages import BOOT_PATH, LOGS_PATH, OUTPUTS_PATH, REGISTER_PATH, SYNC_PATH

BODIES = {
    SYNC_PATH: worker._SYNC.type, REGISTER_PATH: worker._REGISTER.type, BOOT_PATH: worker._BOOT.type,
    worker.SCRIPTS_PATH: worker._SCRIPTS.type,
}  # fmt: skip
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
QUERIES = {
    ("post", LOGS_PATH): {"task": _NUMBER, "token": _NUMBER, "offset": _NUMBER},
    ("put", OUTPUTS_PATH): {"task": _NUMBER, "token": _NUMBER, "path": {"type": "string", "minLength": 1}},
}


def document() -> dict[str, Any]:
    """OpenAPI 3.1 of every route of an agent that takes anything."""
    schemas, parts = msgspec.json.schema_components(BODIES.values(), ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {
        path: {"post": {"requestBody": _body("application/json", schema), "responses": _answers()}}
        for path, schema in zip(BODIES, schemas, strict=True)
    }
    for (method, path), names in QUERIES.items():
        query = [{"name": name, "in": "query", "required": True, "schema": kind} for name, kind in names.items()]
        body = _body("application/octet-stream", {"type": "string", "format": "binary", "maxLength": 1024})
        paths[path] = {method: {"parameters": query, "requestBody": body, "responses": _answers()}}
    info = {"title": "the worker API", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": parts}}


def _body(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {kind: {"schema": schema}}}


def _answers() -> dict[str, Any]:
    return {"200": {"description": "done"}, "default": {"description": "refused"}}
