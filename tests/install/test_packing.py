"""A copy as one file: what comes out is what went in, and what is damaged or foreign does not come out at all."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.install import packing


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    copy = tmp_path / "20231114T221320Z"
    for name, text in {"store.sqlite": "rows" * 50_000, "keys/join": "secret", "tls/ca.pem": "pem"}.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text)
    packing.pack(copy, tmp_path / "copy.tar.gz")
    return tmp_path / "copy.tar.gz"


def test_what_was_packed_comes_out_and_is_closed_to_others(packed: Path, tmp_path: Path) -> None:
    packing.unpack(packed, tmp_path / "out")
    files = {str(one.relative_to(tmp_path / "out")): one for one in (tmp_path / "out").rglob("*") if one.is_file()}
    assert {name: len(file.read_text()) for name, file in files.items()} == {
        "store.sqlite": 200_000, "keys/join": 6, "tls/ca.pem": 3,
    }  # fmt: skip
    assert {stat.S_IMODE(one.stat().st_mode) for one in [packed, *files.values()]} == {0o600}
    assert {stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "out", tmp_path / "out" / "keys")} == {0o700}


def members(packed: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(packed) as out:
        return [(member, body.read()) for member in out if (body := out.extractfile(member)) is not None]


def again(packed: Path, found: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    with tarfile.open(packed, "w:gz") as into:
        for member, body in found:
            member.size = len(body)
            into.addfile(member, io.BytesIO(body))


def changed(packed: Path) -> None:
    again(packed, [(one, body.replace(b"secret", b"forged")) for one, body in members(packed)])


def shorter(packed: Path) -> None:
    again(packed, members(packed)[1:])


def without_its_end(packed: Path) -> None:
    again(packed, members(packed)[:-1])


def cut(packed: Path) -> None:
    packed.write_bytes(packed.read_bytes()[:-200])


def cut_between(packed: Path) -> None:
    packed.write_bytes(gzip.compress(gzip.decompress(packed.read_bytes())[:100_000]))


def flipped(packed: Path) -> None:
    body = bytearray(packed.read_bytes())
    body[len(body) // 2] ^= 0xFF
    packed.write_bytes(bytes(body))


def no_tar(packed: Path) -> None:
    packed.write_bytes(b"<html>")


def named(name: str) -> Callable[[Path], None]:
    def add(packed: Path) -> None:
        again(packed, [(tarfile.TarInfo(name), b"x"), *members(packed)])

    return add


def linked(packed: Path) -> None:
    link = tarfile.TarInfo("keys/x")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(packed, "w:gz") as into:
        into.addfile(link)


@pytest.mark.parametrize(
    "damage",
    [changed, shorter, without_its_end, cut, cut_between, flipped, no_tar, linked,
     named("../x"), named("/tmp/x"), named("keys/../../x"), named("other/x"), named("keys/join")],
)  # fmt: skip
def test_what_is_damaged_or_foreign_is_refused_whole(
    packed: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    before = sorted(tmp_path.iterdir())
    damage(packed)
    with pytest.raises(InvalidInput, match=r"copy\.tar\.gz is"):
        packing.unpack(packed, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before
