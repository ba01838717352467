"""Texts that people read, without the secrets that may stand in them."""

from __future__ import annotations

import time

import pytest

from cloud_dispatch.domain.masking import MASK, masked


@pytest.mark.parametrize(
    "line",
    [
        'fetching with "join_token": "cdj1.b0001.3.17.mAc_-x"',
        "Authorization: Bearer sEcReT.mAc_-x",
        "export SERVICE_TOKEN=mAc_-x",
        'password: "mAc_-x", user: bob',
        "cds2.b0001-0.17.mAc_-x",
    ],
)
def test_a_console_is_kept_without_its_secrets(line: str) -> None:
    """What a VM was given to boot may be on it."""
    kept = masked(f"booting\n{line}\nno such image")
    assert "mAc" not in kept
    assert kept.splitlines()[0::2] == ["booting", "no such image"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://bob:mAc@db/x", f"postgresql://bob:{MASK}@db/x"),
        ("'postgresql+psycopg://bob:m/A:c@@db/x'", f"'postgresql+psycopg://bob:{MASK}@db/x'"),
        ("postgresql://db/x?user=bob&password=mAc&sslmode=require",
         f"postgresql://db/x?user=bob&password={MASK}&sslmode=require"),
        ("http://mAc@proxy:3128 and https://bob:mAc@proxy", f"http://{MASK}@proxy:3128 and https://{MASK}@proxy"),
        ("https://b/k?X-Amz-Signature=mAc&v=1", f"https://b/k?X-Amz-Signature={MASK}&v=1"),
        ("https://b/k?sv=1&sig=mAc", f"https://b/k?sv=1&sig={MASK}"),
        ("AWS_SECRET_ACCESS_KEY=mAc more", f"AWS_SECRET_ACCESS_KEY={MASK} more"),
        ('{"client_secret": "m A c", "user": "bob"}', f'{{"client_secret": {MASK}, "user": "bob"}}'),
        ("a -----BEGIN EC PRIVATE KEY-----\nmAc\n-----END EC PRIVATE KEY----- b", f"a {MASK} b"),
        ("-----BEGIN PRIVATE KEY-----\nmAc cut", MASK),
    ],
)  # fmt: skip
def test_a_secret_is_known_by_its_form(text: str, shown: str) -> None:
    """It is made unreadable, and what stands around it is not."""
    assert masked(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////var/lib/store.sqlite",
        "https://dispatcher:7717/v1/tasks?after=3",
        "postgresql+psycopg://user@host/database",
        "instance b1-0 does not hold task 3 under token 17",
        "stop this attempt; see /etc/cloud-dispatch/config.toml:12",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """A message that is masked too much says nothing any more."""
    assert masked(text) == text


def test_what_is_known_to_be_secret_is_masked_in_any_form() -> None:
    """Where the form says nothing, the value does; nothing known masks nothing."""
    assert masked("invalid value mAc here", ["mAc"]) == f"invalid value {MASK} here"
    assert masked("plain", ["", None]) == "plain"


@pytest.mark.parametrize(
    "piece",
    [
        "token", "token.", "private-", ".", "a", "/", "://a:", "://", "http://", "http://a@", "https://x", "@", "x@",
        "?sig=", "token ", "token  =", 'token"', "token:'\"", "token= ", "Bearer ", "cda1.", " ", "\n",
        "-----BEGIN ", "-----END ", "-----BEGIN PRIVATE KEY", "-----BEGIN PRIVATE KEY-----",
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", ["", "token:", "://a:", "-----BEGIN PRIVATE KEY-----"])
def test_no_text_takes_long(first: str, piece: str) -> None:
    """Whatever strangers repeat, time grows with its length, and not with a power of it: it is the loop's. Sizes grow
    until the largest, so that this fails early where it fails."""
    for size in (1_024, 4_096, 16_384, 65_536):
        text = first + piece * (size // len(piece))
        begun = time.thread_time()
        masked(text)
        assert time.thread_time() - begun < 0.5, size
