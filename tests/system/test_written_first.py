"""The real dispatcher writes down what it will tell agents before it listens to the first of them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

#: `serve`, but for the server: in its place the moment at which it would begin to listen is told, and all ends.
PROGRAM = """
import json, sys
from pathlib import Path
from cloud_dispatch import bootstrap
from cloud_dispatch.cli.session import load_config
from cloud_dispatch.reconcile.agreed import FACT

async def listening(app, *_, **__):
    store = app.sync._store
    print("told " + json.dumps({"fact": store.fact(FACT)}))

bootstrap.serve_http = listening
raise SystemExit(bootstrap.serve(load_config(Path(sys.argv[1]))))
"""


def told(config: Any) -> dict[str, int]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(config)], capture_output=True, text=True, timeout=60, check=False
    )
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("told ")] or [ran.stdout + ran.stderr]
    return json.loads(json.loads(line.removeprefix("told "))["fact"])  # type: ignore[no-any-return]


def test_a_lease_is_written_before_anybody_is_told(make_house: Any) -> None:
    house = make_house(lease="600s")
    text = house.config.read_text()
    house.config.write_text(text.replace('silence = "60s"', 'silence = "900s"'))
    assert told(house.config) == {"silence_ms": 601_000}
    house.config.write_text(text.replace('lease = "600s"', 'lease = "6s"'))
    shorter = told(house.config)
    assert (shorter.pop("until_ms") > 0, shorter) == (True, {"silence_ms": 7_000, "longer_ms": 601_000})
