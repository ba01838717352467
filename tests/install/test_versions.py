"""Versions beside each other: their names, what pip is asked for, and the link that says which one runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Conflict, InvalidInput, Unavailable
from cloud_dispatch.install import versions
from cloud_dispatch.install.versions import Before, Home, Wanted


def test_a_version_is_named_by_itself_or_by_its_wheel(tmp_path: Path) -> None:
    assert Wanted.of("0.3.0rc1", ()) == Wanted("0.3.0rc1", "cloud-dispatch==0.3.0rc1")
    assert Wanted.of("0.3.0", ["postgres", "aws"]).requirement == "cloud-dispatch[aws,postgres]==0.3.0"
    wheel = tmp_path / "cloud_dispatch-0.4.0-py3-none-any.whl"
    with pytest.raises(InvalidInput, match="there is no"):
        Wanted.of(str(wheel), ())
    wheel.touch()
    assert Wanted.of(str(wheel), ["aws"]) == Wanted("0.4.0", f"cloud-dispatch[aws] @ {wheel.as_uri()}")
    for odd in ("latest", "../../bin", "--index-url=x", "1/../..", "numpy-2.0-cp311-cp311-linux_x86_64.whl", "x.whl"):
        with pytest.raises(InvalidInput):
            Wanted.of(odd, ())


def test_the_link_leads_to_the_version_that_runs(tmp_path: Path) -> None:
    """The first environment is the home of the others; the program's path is always the same."""
    root = tmp_path / "opt"
    home = Home.around(root)
    assert Home.around(home.of("0.3.0")) == home
    assert home.current() is None
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "cloud-dispatch").write_text("first")
    (home.of("0.3.0") / "bin").mkdir(parents=True)
    (home.of("0.3.0") / "bin" / "cloud-dispatch").write_text("second")
    for environment, text in ((root, "first"), (home.of("0.3.0"), "second"), (root, "first")):
        home.point(environment)
        assert home.current() == environment
        assert home.program.read_text() == text
    assert not os.path.isabs(os.readlink(root / "current"))


def test_the_link_is_on_the_disk_before_anything_runs_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that loses its power must not start the version of before on tables that the new one has made."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(tmp_path / "current")))
    Home(tmp_path).point(tmp_path / "versions" / "0.3.0")
    assert synced == ["versions/0.3.0"]


def test_a_home_that_can_not_be_written_to_is_told_with_its_place(tmp_path: Path) -> None:
    """Who is not root hears which folder it is, and not what the link would have led to."""
    with pytest.raises(Unavailable, match=f"can't write to {tmp_path}/none") as refused:
        Home(tmp_path / "none").point(tmp_path / "none")
    assert "root" in refused.value.hint


def test_a_home_without_room_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root has all the rights that there are."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "symlink_to", full)
    with pytest.raises(Unavailable, match="No space left") as refused:
        Home(tmp_path).point(tmp_path / "none")
    assert refused.value.hint == "free space there"


def test_one_that_is_half_made_is_made_anew(tmp_path: Path) -> None:
    new = tmp_path / "versions" / "1"

    def half() -> None:
        (new / "bin").mkdir(parents=True)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        versions.make(new, half)
    assert not new.exists(), "it may be for want of room that it failed"
    (new / "bin").mkdir(parents=True)  # what was killed leaves it
    versions.make(new, lambda: (new / "lib").mkdir(parents=True))
    assert versions.is_whole(new)
    assert not (new / "bin").exists()


def test_what_ran_before_is_remembered_as_long_as_it_is_there(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for name in ("1", "2", "3"):
        (home.of(name) / "bin").mkdir(parents=True)
        (home.of(name) / "bin" / "cloud-dispatch").touch()
    with pytest.raises(Conflict, match="no version ran before"):
        versions.before(home.of("2"))
    versions.remember(home.of("2"), Before(home.of("1"), "0001"))
    assert versions.before(home.of("2")) == Before(home.of("1"), "0001")
    home.forget_others({home.of("2"), home.of("3"), tmp_path})
    assert sorted(one.name for one in (tmp_path / "versions").iterdir()) == ["2", "3"]
    with pytest.raises(Conflict, match="is gone"):
        versions.before(home.of("2"))
    Home(tmp_path / "none").forget_others(())


@pytest.mark.parametrize("said", ["", '{"environment": "/opt', "[]", "{}", '{"environment": 5, "revision": "1"}'])
def test_what_ran_before_and_can_not_be_read_is_told_with_its_place(tmp_path: Path, said: str) -> None:
    (tmp_path / "cloud-dispatch.before.json").write_text(said)
    with pytest.raises(Conflict, match="can't be read") as told:
        versions.before(tmp_path)
    assert told.value.place == str(tmp_path / "cloud-dispatch.before.json")


def test_an_environment_is_marked_once_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, new = [], tmp_path / "versions" / "1"
    monkeypatch.setattr(os, "sync", lambda: seen.append(((new / "lib").exists(), versions.is_whole(new))))
    versions.make(new, lambda: (new / "lib").mkdir(parents=True))
    assert seen == [(True, False)]
    assert versions.is_whole(new)


def test_the_extras_of_now_are_those_that_are_whole() -> None:
    requires = [
        "rich>=13", "boto3>=1.34; extra == 'aws'", "psycopg[binary]>=3.1; extra == 'postgres'",
        "azure-identity>=1; extra == 'azure'", "azure-mgmt-compute>=39; extra == 'azure'",
        "boto3>=1.34; extra == 'all'", "moto[ec2]>=5 ; python_version > '3.8' and extra == 'dev'",
    ]  # fmt: skip
    assert versions.extras(requires, {"boto3", "psycopg", "azure-identity", "moto"}.__contains__) == ["aws", "postgres"]
