"""A certificate that is replaced while it is shown, and one whose end nears."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.adapters.certificates import Certificate, own
from cloud_dispatch.adapters.tls import DAY_MS, SOON_MS, Shown
from cloud_dispatch.testing.store_builders import ManualClock


@pytest.fixture
def two(tmp_path: Path) -> tuple[Certificate, Certificate]:
    now = datetime.datetime.now(datetime.UTC)
    return own(tmp_path / "one", ["host"], now), own(tmp_path / "two", ["host"], now)


async def test_who_connects_sees_that_of_now_and_who_is_connected_stays(
    two: tuple[Certificate, Certificate],
) -> None:
    first, second = two
    shown = Shown(first, ManualClock())

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while word := await reader.readline():
            writer.write(word)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=shown.context)
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=anyone)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return reader, writer, hashlib.sha256(found).hexdigest()

    reader, writer, print_of_first = await connect()
    shown.become(second)
    _, other, print_of_second = await connect()
    assert (print_of_first, print_of_second) == (first.fingerprint, second.fingerprint)
    writer.write(b"still here\n")
    assert await reader.readline() == b"still here\n"
    assert shown.ends_ms() == second.ends_ms
    for one in (writer, other):
        one.close()
    server.close()


def test_it_is_told_for_three_weeks_that_it_ends(two: tuple[Certificate, Certificate]) -> None:
    clock = ManualClock()
    end = clock.now() + SOON_MS + 1
    shown = Shown(replace(two[0], ends_ms=end), clock)
    assert shown.troubles() == []
    clock.now_ms += 1 + DAY_MS
    (said,) = shown.troubles()
    assert "ends in 20d" in said
    assert str(two[0].certificate) in said
    clock.now_ms += SOON_MS
    assert "has ended" in shown.troubles()[0]
    shown.become(two[1])
    assert shown.troubles() == []
