"""What there is room for in user data: as it is sent, operators' scripts apart where it would be too much."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import yaml

from cloud_dispatch import userdata
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.provider.sending import fits, sent
from cloud_dispatch.provider.spi import Traits
from tests.cloudinit.test_schema import user_data

PLAIN, GZIPPED = Traits(), Traits(gzips_user_data=True)
LARGE = '[pools.p.boot]\nscripts = ["large.sh"]\n'


def snippets(document: str) -> list[str]:
    return [file["content"] for file in yaml.safe_load(document)["write_files"] if "/snippets/" in file["path"]]


def made(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, traits: Traits) -> str:
    (folder / "large.sh").write_text(script)
    return user_data(folder, monkeypatch, "silent", "agent", LARGE, traits)


def test_what_compresses_well_is_sent_with_its_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 kB of one line stay in where the driver compresses, and nothing is fetched."""
    script = "#!/bin/sh\n" + "echo the same again\n" * 1_500
    found = made(tmp_path, monkeypatch, script, GZIPPED)
    assert snippets(found) == [script]
    assert "/v1/boot/scripts" not in found
    assert userdata.size(found, GZIPPED) < GZIPPED.max_user_data < userdata.size(found, PLAIN)


@pytest.mark.parametrize("traits", [PLAIN, GZIPPED])
def test_scripts_without_room_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traits: Traits) -> None:
    """Noise does not compress: the document names none of it and asks for it."""
    noise = random.Random(0).randbytes(15_000).hex()
    found = made(tmp_path, monkeypatch, f"#!/bin/sh\n: {noise}\n", traits)
    assert snippets(found) == []
    assert "/v1/boot/scripts" in found
    assert userdata.size(found, traits) <= traits.max_user_data


def test_what_can_not_be_fetched_has_to_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator's cloud-config is cloud-init's to read, before anything of ours runs."""
    (tmp_path / "own.yaml").write_text(f"#cloud-config\nfqdn: {random.Random(0).randbytes(15_000).hex()}\n")
    own = '[pools.p.boot]\ncloud_config = ["own.yaml"]\n'
    with pytest.raises(InvalidInput, match=r"agent: the document has \d+ bytes, the provider takes 16384"):
        user_data(tmp_path, monkeypatch, "silent", "agent", own, GZIPPED)


def test_the_same_is_sent_as_the_same_bytes() -> None:
    """Another time must not make another launch of it."""
    assert sent("#cloud-config\n", GZIPPED)[4:8] == bytes(4)  # the time in the header of gzip
    assert sent("#cloud-config\n", PLAIN) == b"#cloud-config\n"


@pytest.mark.parametrize("traits", [PLAIN, GZIPPED])
@pytest.mark.parametrize("less", [0, 1, 100, 255, 256, 257, 400, 8_000])
def test_whether_it_fits_is_what_is_sent(traits: Traits, less: int) -> None:
    """Also for noise, of which gzip makes more: whether it was packed to know makes no difference."""
    noise = random.Random(less).randbytes(16_384).hex()[: 16_384 - less]
    for text in (noise, "a" * (16_384 - less), "a" * (16_385 - less), chr(0x10FFFF) * (4_096 - less // 4)):
        assert fits(text, traits) == (len(sent(text, traits)) <= traits.max_user_data)
