"""The operator's token: the dispatcher keeps its hash alone, and goes by another one as soon as there is one."""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.api import keyfiles, operator_token
from cloud_dispatch.api.operator_token import OperatorToken
from cloud_dispatch.config import Config
from cloud_dispatch.config.schema import Dispatcher
from cloud_dispatch.domain.errors import InvalidInput
from tests.api.house import House

ENTROPY = SystemEntropy()


def clear(folder: Path) -> str:
    return (folder / "operator.token").read_text().strip()


def test_only_the_hash_of_the_operator_s_token_is_kept(tmp_path: Path) -> None:
    """The first start makes both; later ones need no clear copy, make none, and know the token all the same."""
    assert OperatorToken.open(tmp_path, ENTROPY).is_right(clear(tmp_path).encode())
    token = clear(tmp_path)
    kept = tmp_path / "keys" / "operator.sha256"
    assert kept.read_text() == sha256(token.encode()).hexdigest() + "\n"
    assert stat.S_IMODE(kept.stat().st_mode) == stat.S_IMODE((tmp_path / "operator.token").stat().st_mode) == 0o600
    (tmp_path / "operator.token").unlink()
    again = OperatorToken.open(tmp_path, ENTROPY)
    assert again.is_right(token.encode())
    assert not again.is_right(token.encode()[:-1])
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["operator.sha256"]


def test_the_hash_is_no_token(tmp_path: Path) -> None:
    """Whoever reads it, in a backup of the keys, is nobody."""
    token = OperatorToken.open(tmp_path, ENTROPY)
    assert not token.is_right((tmp_path / "keys" / "operator.sha256").read_bytes().strip())
    assert not token.is_right(b"")
    assert not OperatorToken("").is_right(b"")


def test_a_state_folder_of_before_goes_on_with_its_token(tmp_path: Path) -> None:
    """There was a clear token only: it stays the operator's."""
    (tmp_path / "operator.token").write_text("x" * 43 + "\n")
    (tmp_path / "operator.token").chmod(0o600)
    assert OperatorToken.open(tmp_path, ENTROPY).is_right(b"x" * 43)
    assert clear(tmp_path) == "x" * 43


@pytest.mark.parametrize("name", ["operator.token", "keys/operator.sha256"])
def test_an_operator_s_token_that_others_can_read_is_refused(tmp_path: Path, name: str) -> None:
    """The clear copy and its hash alike, with the file's name."""
    OperatorToken.open(tmp_path, ENTROPY)
    (tmp_path / name).chmod(0o604)
    with pytest.raises(InvalidInput, match="lets others read") as caught:
        OperatorToken.open(tmp_path, ENTROPY)
    assert caught.value.place == str(tmp_path / name)


def test_what_is_no_hash_is_refused(tmp_path: Path) -> None:
    """A clear token where the hash belongs would be compared with hashes, and be wrong for ever."""
    OperatorToken.open(tmp_path, ENTROPY)
    (tmp_path / "keys" / "operator.sha256").write_text(clear(tmp_path))
    with pytest.raises(InvalidInput, match="not the sha256"):
        OperatorToken.open(tmp_path, ENTROPY)


async def test_another_token_holds_at_once(house: House) -> None:
    """The dispatcher that runs takes it, and the former one is void; the clear copy is not needed for that."""
    folder = house.services.outputs._root.parent
    assert (await house.op.get("/v1/counts")).status_code == 200
    path = operator_token.renew(folder, ENTROPY)
    token = clear(folder)
    assert (path.name, stat.S_IMODE(path.stat().st_mode)) == ("operator.token", 0o600)
    assert path == Config(dispatcher=Dispatcher(state_dir=folder)).token_file, "clients look for it there"
    path.unlink()
    assert (await house.op.get("/v1/counts")).status_code == 401
    renewed = {"Authorization": f"Bearer {token}"}
    assert (await house.http.get("/v1/counts", headers=renewed)).status_code == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes for others")
def test_what_root_writes_is_the_folder_s_owner_s(open_folder: Path) -> None:
    """A dispatcher of another user could not read it, and nobody would be the operator."""
    OperatorToken.open(open_folder, ENTROPY)
    folders = (open_folder, open_folder / "keys")
    for folder in folders:
        os.chown(folder, 12_345, 54_321)
    operator_token.renew(open_folder, ENTROPY)
    written = [open_folder / "operator.token", open_folder / "keys" / "operator.sha256"]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in written} == {(12_345, 54_321)}
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}


def test_there_is_no_other_token_where_there_is_none(tmp_path: Path) -> None:
    """What no dispatcher has ever used gets neither keys nor token."""
    with pytest.raises(InvalidInput, match="it has no keys"):
        operator_token.renew(tmp_path / "state", ENTROPY)
    assert list(tmp_path.iterdir()) == []


async def test_a_hash_that_is_damaged_while_it_runs_opens_nothing(house: House) -> None:
    """Nobody is the operator until it is put right: the former token may be why it was changed."""
    kept = house.services.outputs._root.parent / "keys" / "operator.sha256"
    good = kept.read_text()

    async def status() -> int:
        answer: httpx.Response = await house.op.get("/v1/counts")
        return answer.status_code

    kept.write_text("nonsense")
    assert await status() == 401
    kept.write_text(good)
    assert await status() == 200
    kept.chmod(0o644)
    assert await status() == 401
    kept.unlink()
    kept.touch(mode=0o600)
    kept.write_text(good)
    assert await status() == 200
    kept.unlink()
    assert await status() == 200


@pytest.mark.parametrize("closed", ["", keyfiles.KEYS])
def test_whoever_may_not_enter_the_state_folder_is_told_as_whom_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    """Not a traceback, and nothing is changed."""
    (tmp_path / keyfiles.KEYS).mkdir()
    is_dir = Path.is_dir

    def entered(path: Path) -> bool:
        if not closed:
            raise PermissionError(13, "Permission denied", str(path))
        return is_dir(path)

    monkeypatch.setattr(Path, "is_dir", entered)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InvalidInput, match="may not write") as caught:
        operator_token.renew(tmp_path, ENTROPY)
    assert "sudo" in str(caught.value)
    assert list((tmp_path / keyfiles.KEYS).iterdir()) == []
