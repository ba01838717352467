"""The steps from one version to another and back; stood in for are all programs, which say what the scene has them say.
tests/packaging takes real ones."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from cloud_dispatch.domain.errors import Conflict, InvalidInput, Unavailable
from cloud_dispatch.install.upgrading import Machine, roll_back, upgrade
from cloud_dispatch.install.versions import Home, Wanted

NEW = Wanted("0.3.0", "cloud-dispatch==0.3.0")


class Scene:
    """A control VM on which version 0.2 runs. `breaks`: a word that fails where it is said. `closed`: root alone reads
    the configuration."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "opt")
        self.said: list[str] = []
        self.breaks: tuple[str, ...] = ()
        self.closed = False
        self.revision = "0002"
        self.old = self.home.root
        self.put(self.old)
        self.home.point(self.old)
        self.machine = Machine(
            self.home, folder / "config.toml", "somebody", self.ask, lambda seconds: None, self.tried
        )

    def put(self, environment: Path) -> None:
        (environment / "bin").mkdir(parents=True)
        (environment / "bin" / "cloud-dispatch").touch()

    def ask(self, words: Sequence[str]) -> str:
        own = str(self.home.root)
        line = " ".join(words).replace(f"{own}/versions/", "").replace(own, "first")
        line = line.replace(f" --config {self.machine.config}", "")
        self.said.append(line)
        if any(one in line for one in self.breaks):
            raise Unavailable(f"{line} failed")
        if "-m venv" in line:
            self.put(Path(words[-1]))
        if line.endswith("0.3.0/bin/cloud-dispatch install --no-start --user somebody"):
            self.revision = "0003"  # what its start comes to
        if "db downgrade" in line:
            self.revision = words[words.index("--to") + 1]
        return json.dumps({"revision": self.revision}) if "db revision" in line else ""

    def tried(self, program: Path, config: Path, user: str) -> None:
        assert (program.exists(), config, user) == (True, self.machine.config, "somebody")
        if self.closed:
            raise InvalidInput("somebody can't start with it")

    def runs(self) -> list[str]:
        """What was said since the last time."""
        said, self.said = self.said, []
        return said


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


INSTALLS = [
    "first/bin/python -m venv 0.3.0",
    "0.3.0/bin/python -m pip install --quiet --disable-pip-version-check cloud-dispatch==0.3.0",
]
JUDGES = ["0.3.0/bin/cloud-dispatch config check", "0.3.0/bin/cloud-dispatch db revision --json"]
COPIES = ["systemctl start cloud-dispatch-backup.service"]
STAYS = ["systemctl is-active --quiet cloud-dispatch.service"] * 5


def starts(version: str) -> list[str]:
    own = f"{version}/bin/cloud-dispatch install --no-start --user somebody"
    return [own, "systemctl restart cloud-dispatch.service", *STAYS]


BACK = [
    "systemctl stop cloud-dispatch.service", "0.3.0/bin/cloud-dispatch db revision --json",
    "0.3.0/bin/cloud-dispatch db downgrade --to 0002", *starts("first"),
]  # fmt: skip


def test_a_rollback_whose_copy_fails_says_how_to_do_without(scene: Scene) -> None:
    """The disk is full, or the bucket away: the version that is to go may be what fails."""
    upgrade(scene.machine, NEW, scene.old, lambda text: None)
    scene.breaks = [*scene.breaks, COPIES[0]]
    scene.runs()
    with pytest.raises(Unavailable) as refused:
        roll_back(scene.machine, lambda text: None)
    assert "rollback --no-copy" in refused.value.hint
    assert scene.runs() == ["first/bin/cloud-dispatch config check", *COPIES]
    assert roll_back(scene.machine, lambda text: None, copy=False) == scene.old
    assert scene.runs() == ["first/bin/cloud-dispatch config check", *BACK]


def test_it_is_installed_and_judges_before_anything_is_stopped(scene: Scene) -> None:
    upgrade(scene.machine, NEW, scene.old, lambda text: None)
    assert scene.runs() == [*INSTALLS, *JUDGES, *COPIES, *starts("0.3.0")]
    assert scene.home.current() == scene.home.of("0.3.0")
    with pytest.raises(Conflict, match="runs already"):
        upgrade(scene.machine, NEW, scene.home.of("0.3.0"), lambda text: None)

    assert roll_back(scene.machine, lambda text: None) == scene.old
    assert scene.runs() == ["first/bin/cloud-dispatch config check", *COPIES, *BACK]
    assert scene.home.current() == scene.old
    with pytest.raises(Conflict, match="no version ran before"):
        roll_back(scene.machine, lambda text: None)

    upgrade(scene.machine, NEW, scene.old, lambda text: None)
    assert scene.runs() == [*JUDGES, *COPIES, *starts("0.3.0")], "it is there already"


def test_one_that_was_made_of_something_else_is_made_anew(scene: Scene, tmp_path: Path) -> None:
    """Other extras, or a wheel that was built again; what was left of the first try serves the same words alone."""
    wheel = tmp_path / "some folder" / "cloud_dispatch-0.3.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"one")
    scene.breaks = ("config check",)

    def installs(wanted: Wanted) -> list[str]:
        with pytest.raises(Unavailable):
            upgrade(scene.machine, wanted, scene.old, lambda text: None)
        return [line.partition("check ")[2] for line in scene.runs() if "pip install" in line]

    with_gcp = Wanted.of("0.3.0", ["gcp"])
    assert installs(NEW) == ["cloud-dispatch==0.3.0"]
    assert installs(NEW) == []
    assert installs(with_gcp) == ["cloud-dispatch[gcp]==0.3.0"]
    assert installs(with_gcp) == []
    built = Wanted.of(str(wheel), [])
    assert installs(built) == [f"cloud-dispatch @ {wheel.as_uri()}"]
    assert installs(built) == []
    wheel.write_bytes(b"two")
    assert installs(built) == [f"cloud-dispatch @ {wheel.as_uri()}"]


@pytest.mark.parametrize("breaks", ["pip install", "config check", "db revision", "start cloud-dispatch-backup"])
def test_what_goes_wrong_before_leaves_the_present_one_alone(scene: Scene, breaks: str) -> None:
    scene.breaks = (breaks,)
    with pytest.raises(Unavailable):
        upgrade(scene.machine, NEW, scene.old, lambda text: None)
    assert scene.home.current() == scene.old
    assert not [line for line in scene.runs() if "restart" in line or " stop" in line or "install --no-start" in line]
    scene.breaks = ()
    upgrade(scene.machine, NEW, scene.old, lambda text: None)


@pytest.mark.parametrize(
    ("breaks", "journal", "way"),
    [
        (
            "start cloud-dispatch-backup", "--unit cloud-dispatch-backup.service",
            "; to go back all the same: rollback --no-copy",
        ),
        (
            "restart", "--namespace cloud-dispatch",
            "; put that right, then go on: cloud-dispatch rollback --no-copy",
        ),
    ],
)  # fmt: skip
def test_what_systemd_could_not_start_is_told_with_where_its_words_are(
    scene: Scene, breaks: str, journal: str, way: str
) -> None:
    """An upgrade's, and a rollback's: not that it needs root, which it has."""
    upgrade(scene.machine, NEW, scene.old, lambda text: None)
    scene.breaks = (breaks,)
    with pytest.raises(Unavailable) as refused:
        roll_back(scene.machine, lambda text: None)
    assert refused.value.hint == f"what it said: journalctl {journal} --lines 20{way}"


@pytest.mark.parametrize("breaks", ["0.3.0/bin/cloud-dispatch install", "restart", "is-active"])
def test_one_that_does_not_come_up_makes_way_for_the_one_before(scene: Scene, breaks: str) -> None:
    """With the tables that it knows, whether the new one has come to make its own or not."""
    told: list[str] = []

    scene.breaks = (breaks,)

    def until_back(words: Sequence[str]) -> str:
        if list(words[:2]) == ["systemctl", "stop"]:
            scene.breaks = ()
        return scene.ask(words)

    machine = Machine(scene.home, scene.machine.config, "somebody", until_back, lambda seconds: None, scene.tried)
    with pytest.raises(Unavailable, match=r"0\.3\.0 does not come up, the one before runs again"):
        upgrade(machine, NEW, scene.old, told.append)
    assert scene.home.current() == scene.old
    assert scene.revision == "0002"
    assert scene.runs()[-7:] == starts("first")
    assert any("does not come up" in line for line in told)


def test_the_one_before_runs_also_where_its_units_find_no_room(scene: Scene) -> None:
    """The disk is full, which is why the new version did not come up: the service is not left stopped."""
    scene.breaks = ("cloud-dispatch install",)
    with pytest.raises(
        Unavailable, match="runs, but by the other one's units: first/bin/cloud-dispatch install"
    ) as told:
        upgrade(scene.machine, NEW, scene.old, lambda text: None)
    assert told.value.hint.endswith("go on: cloud-dispatch rollback --no-copy")
    assert scene.home.current() == scene.old
    assert scene.runs()[-6:] == starts("first")[1:]
    scene.breaks = ()
    assert roll_back(scene.machine, lambda text: None, copy=False) == scene.old
    assert scene.runs()[-7:] == starts("first")


@pytest.mark.parametrize("also", ["db downgrade", "db revision", "restart"])
def test_that_neither_runs_is_told_with_how_to_go_on(scene: Scene, also: str) -> None:
    """Where even the way back fails."""
    scene.breaks = ("is-active",)

    def from_then_on(words: Sequence[str]) -> str:
        if list(words[:2]) == ["systemctl", "stop"]:
            scene.breaks = (also,)
        return scene.ask(words)

    machine = Machine(scene.home, scene.machine.config, "somebody", from_then_on, lambda seconds: None, scene.tried)
    with pytest.raises(Unavailable, match="does not run, and the service may be stopped: .*" + also) as told:
        upgrade(machine, NEW, scene.old, lambda text: None)
    assert told.value.hint.endswith("go on: cloud-dispatch rollback --no-copy")
    scene.breaks = ()
    assert roll_back(scene.machine, lambda text: None, copy=False) == scene.old
    assert (scene.home.current(), scene.revision) == (scene.old, "0002")


def test_what_the_services_user_can_not_start_with_stops_nothing(scene: Scene) -> None:
    """A key that was renewed as root's alone: what runs has read the one before, and could not be started again."""
    scene.closed = True
    with pytest.raises(InvalidInput):
        upgrade(scene.machine, NEW, scene.old, lambda text: None)
    assert not [line for line in scene.runs() if "systemctl" in line]
    scene.closed = False
    upgrade(scene.machine, NEW, scene.old, lambda text: None)
    scene.runs()
    scene.closed = True
    with pytest.raises(InvalidInput):
        roll_back(scene.machine, lambda text: None)
    assert not [line for line in scene.runs() if "systemctl" in line]


def test_there_is_no_way_back_to_one_that_the_configuration_is_not_for(scene: Scene) -> None:
    """The present one runs on."""
    upgrade(scene.machine, NEW, scene.old, lambda text: None)
    scene.runs()
    scene.breaks = ("first/bin/cloud-dispatch config check",)
    with pytest.raises(Unavailable, match="config check"):
        roll_back(scene.machine, lambda text: None)
    assert len(scene.runs()) == 1
    assert scene.home.current() == scene.home.of("0.3.0")


class Killed(BaseException):
    """The command ended at once, and tidied up nothing."""


class Living(Scene):
    """A control VM on which versions 0.1 and 0.2 ran and 0.3 is to; the service is what systemd has started, and
    migrates tables that are older. `left`: so many programs are run until the command is killed."""

    TABLES: ClassVar = {"first": "0001", "0.2.0": "0002", "0.3.0": "0003"}

    def __init__(self, folder: Path) -> None:
        self.left: int | None = None
        self.runs_now = "first"
        super().__init__(folder)
        self.revision = "0001"
        upgrade(self.machine, Wanted("0.2.0", "cloud-dispatch==0.2.0"), self.old, lambda text: None)
        assert self.state() == ("0.2.0", "0.2.0", "0002")

    def state(self) -> tuple[str, str, str]:
        """What is to run, what runs, and the tables."""
        return self.name(self.home.current()), self.runs_now, self.revision

    def name(self, environment: Path | None) -> str:
        return "first" if environment == self.home.root else str(environment and environment.name)

    def ask(self, words: Sequence[str]) -> str:
        done = self.answered(words)
        if self.left is not None and (left := self.left - 1) < 0:
            raise Killed
        self.left = None if self.left is None else left
        return done

    def answered(self, words: Sequence[str]) -> str:
        line = " ".join(words)
        if line.startswith("systemctl stop"):
            self.runs_now = ""
        if line.startswith("systemctl restart"):
            self.runs_now = self.name(self.home.current())
            if self.revision > self.TABLES[self.runs_now]:
                raise Unavailable("it does not know the tables")
            self.revision = self.TABLES[self.runs_now]
        if "-m venv" in line:
            self.put(Path(words[-1]))
        if "db downgrade" in line:
            self.revision = words[words.index("--to") + 1]
        return json.dumps({"revision": self.revision}) if "db revision" in line else ""

    def killed(self, moment: int, work: Callable[[], object]) -> bool:
        """Whether it still ran when so many programs had."""
        self.left = moment
        try:
            work()
        except Killed:
            return True
        finally:
            self.left = None
        return False


def moments(folder: Path, begun: Callable[[Living], object], work: Callable[[Living], object]) -> Iterator[Living]:
    """Control VMs on which the work was killed after each of its steps."""
    for moment in itertools.count():
        scene = Living(folder / str(moment))
        begun(scene)
        if not scene.killed(moment, lambda scene=scene: work(scene)):  # type: ignore[misc]
            assert moment > 10
            return
        yield scene


def to_third(scene: Living) -> None:
    upgrade(scene.machine, NEW, scene.home.current() or scene.old, lambda text: None)


def back(scene: Living) -> None:
    roll_back(scene.machine, lambda text: None)


def test_an_upgrade_that_was_killed_goes_on_the_second_time(tmp_path: Path) -> None:
    """And knows what ran before: the way back does not lead to the one that it was killed over."""
    for scene in moments(tmp_path, lambda scene: None, to_third):
        to_third(scene)
        assert scene.state() == ("0.3.0", "0.3.0", "0003")
        with pytest.raises(Conflict, match="runs already"):
            to_third(scene)
        back(scene)
        assert scene.state() == ("0.2.0", "0.2.0", "0002")


def test_what_a_killed_upgrade_began_is_taken_back(tmp_path: Path) -> None:
    """To what ran before, whether the machine has started anew meanwhile or not."""
    begun = 0
    for reboots in (False, True):
        for scene in moments(tmp_path / str(reboots), lambda scene: None, to_third):
            if scene.home.unsettled() is None:
                continue
            begun += 1
            if reboots:
                scene.answered(["systemctl", "restart"])
            back(scene)
            assert scene.state() == ("0.2.0", "0.2.0", "0002")
    assert begun > 10


def test_a_rollback_that_was_killed_leads_no_further_back_the_second_time(tmp_path: Path) -> None:
    """Neither to the version before that one, whose tables hold less, nor to none while the service is down."""
    for reboots in (False, True):
        for scene in moments(tmp_path / str(reboots), to_third, back):
            if reboots:
                scene.answered(["systemctl", "restart"])
            back(scene)
            assert scene.state() == ("0.2.0", "0.2.0", "0002")
            to_third(scene)
            assert scene.state() == ("0.3.0", "0.3.0", "0003")


def test_a_better_one_in_the_place_of_one_that_was_cut_off_falls_back_to_what_ran(tmp_path: Path) -> None:
    scene = Living(tmp_path)
    assert scene.killed(6, lambda: to_third(scene))
    assert scene.home.current() == scene.home.unsettled() == scene.home.of("0.3.0")
    scene.TABLES = {**scene.TABLES, "0.3.1": "0003"}
    upgrade(scene.machine, Wanted("0.3.1", "cloud-dispatch==0.3.1"), scene.home.of("0.3.0"), lambda text: None)
    assert scene.state() == ("0.3.1", "0.3.1", "0003")
    back(scene)
    assert scene.state() == ("0.2.0", "0.2.0", "0002")


def test_a_link_that_leads_nowhere_is_none(tmp_path: Path) -> None:
    """The version that it led to was deleted by hand: another can be installed, by any that is there."""
    scene = Living(tmp_path)
    shutil.rmtree(scene.home.of("0.2.0"))
    assert scene.home.current() is None
    to_third(scene)
    assert scene.state() == ("0.3.0", "0.3.0", "0003")
