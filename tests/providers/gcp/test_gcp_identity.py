"""Proofs of identity: whatever a stranger brings, only Google's token of the VM itself shows anything."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, hmac

from cloud_dispatch.provider.errors import NotProven, Transient
from cloud_dispatch_gcp import identity
from cloud_dispatch_gcp.identity import Keys, Token
from cloud_dispatch_gcp.settings import region_of
from tests.providers.gcp import scenes

AUDIENCE = f"cloud-dispatch-{scenes.BATCH}"


class Google:
    """Its certificates, and how often they were asked for."""

    def __init__(self, *names: str) -> None:
        self.names, self.asked, self.now, self.broken = list(names) or ["key-1"], 0, 0, False

    async def __call__(self) -> Any:
        self.asked += 1
        if self.broken:
            raise Transient("no answer")
        return {name: scenes.certificate(name) for name in self.names}

    def keys(self) -> Keys:
        return Keys(self, lambda: self.now)


async def said(proof: str, google: Google | None = None) -> Token:
    return await identity.token(proof, (google or Google()).keys())


def check(found: Token, **more: Any) -> None:
    wanted = {"audience": AUDIENCE, "project": scenes.PROJECT, "since_ms": 0, "now_ms": scenes.NOW_MS, **more}
    identity.check(found, **wanted)


async def test_a_token_says_which_vm_it_is_of() -> None:
    found = await said(scenes.token(scenes.claims()))
    check(found, since_ms=scenes.NOW_MS)
    assert (found.zone, found.name) == (scenes.ZONE, f"{scenes.BATCH}-0")


@pytest.mark.parametrize("zone", ["us-central1-ai1a", "us-south1-ai1b", "northamerica-northeast1-a"])
async def test_a_zone_for_accelerators_is_one(zone: str) -> None:
    """What is offered there must be able to prove itself: it would boot, be refused, and bill until it is given up."""
    assert scenes.settings(regions=[region_of(zone)], zones=[zone]).zones == (zone,)
    assert (await said(scenes.token(scenes.claims(vm={"zone": zone})))).zone == zone


def forged(change: Callable[[dict[str, Any]], Any]) -> str:
    """A token with claims that were changed after it was signed."""
    header, _, signature = scenes.token(scenes.claims()).split(".")
    changed = scenes.claims()
    change(changed)
    return f"{header}.{scenes.part(changed)}.{signature}"


def by_secret() -> str:
    """Signed with Google's public certificate as if it were a secret: the classic confusion of algorithms."""
    text = f"{scenes.part({'alg': 'HS256', 'kid': 'key-1'})}.{scenes.part(scenes.claims())}"
    mac = hmac.HMAC(scenes.certificate().encode(), hashes.SHA256())
    mac.update(text.encode())
    return f"{text}.{base64.urlsafe_b64encode(mac.finalize()).rstrip(b'=').decode()}"


FORGERIES: dict[str, Callable[[], str]] = {
    "unsigned": lambda: f"{scenes.part({'alg': 'none', 'kid': 'key-1'})}.{scenes.part(scenes.claims())}.",
    "no signature": lambda: scenes.token(scenes.claims()).rpartition(".")[0] + ".",
    "by a secret": by_secret,
    "own key": lambda: scenes.token(scenes.claims(), "mallory", kid="key-1"),
    "own key by its own name": lambda: scenes.token(scenes.claims(), "mallory"),
    "no name of a key": lambda: scenes.token(scenes.claims(), kid=None),
    "name changed": lambda: forged(lambda one: one["google"]["compute_engine"].update(instance_name="other-1")),
    "audience changed": lambda: forged(lambda one: one.update(aud="other")),
    "another issuer": lambda: scenes.token(scenes.claims(iss="https://example.com")),
    "of the account alone": lambda: scenes.token(scenes.claims(google={})),
    "without google": lambda: scenes.token({"iss": "https://accounts.google.com", "aud": AUDIENCE}),
    "zone of nowhere": lambda: scenes.token(scenes.claims(vm={"zone": "../x"})),
    "zone with a path": lambda: scenes.token(scenes.claims(vm={"zone": "us-central1-a/b"})),
    "name with a path": lambda: scenes.token(scenes.claims(vm={"instance_name": "a/b"})),
    "time as text": lambda: scenes.token(scenes.claims(iat="1795000000")),
    "time as truth": lambda: scenes.token(scenes.claims(iat=True)),
    "a list": lambda: f"{scenes.part([])}.{scenes.part([])}.AAAA",
    "padded": lambda: scenes.token(scenes.claims()) + "=",
    "spaces inside": lambda: scenes.token(scenes.claims()).replace(".", " .", 1),
    "too long": lambda: scenes.token(scenes.claims(x="y" * 20_000)),
    "nested": lambda: f"{base64.urlsafe_b64encode(b'[' * 9000).decode().rstrip('=')}.e30.AAAA",
}


@pytest.mark.parametrize("make", FORGERIES.values(), ids=FORGERIES)
async def test_a_forgery_proves_nothing(make: Callable[[], str]) -> None:
    with pytest.raises(NotProven):
        await said(make())


@pytest.mark.parametrize(
    "wrong",
    [
        {"audience": "cloud-dispatch-b00000000002"},
        {"project": "other-project"},
        {"since_ms": scenes.NOW_MS + 1000},
        {"now_ms": scenes.NOW_MS + 3_600_000 + 300_001},
    ],
    ids=str,
)
async def test_a_token_of_other_things_proves_nothing(wrong: dict[str, Any]) -> None:
    found = await said(scenes.token(scenes.claims()))
    with pytest.raises(NotProven):
        check(found, **wrong)


async def test_a_new_token_of_an_old_vm_proves_nothing() -> None:
    """A name may have had another VM before the launch; it can ask for new tokens as long as it lives."""
    old = scenes.claims(vm={"instance_creation_timestamp": scenes.NOW_MS // 1000 - 60})
    with pytest.raises(NotProven, match="older"):
        check(await said(scenes.token(old)), since_ms=scenes.NOW_MS - 1000)


async def test_strangers_do_not_make_us_ask_google() -> None:
    """However many tokens of unknown keys come, it is asked once a minute."""
    google = Google()
    known = google.keys()
    await identity.token(scenes.token(scenes.claims()), known)
    for number in range(50):
        google.now += 1_000
        with pytest.raises((NotProven, Transient)):
            await identity.token(scenes.token(scenes.claims(), kid=f"unknown-{number}"), known)
        await identity.token(scenes.token(scenes.claims()), known)
    assert google.asked == 1


async def test_a_new_key_is_found() -> None:
    google = Google()
    known = google.keys()
    await identity.token(scenes.token(scenes.claims()), known)
    google.names.append("key-2")
    google.now += 61_000
    await identity.token(scenes.token(scenes.claims(), "key-2"), known)
    assert google.asked == 2


async def test_a_key_that_google_has_withdrawn_is_none_after_some_hours() -> None:
    google = Google("key-1", "key-2")
    known = google.keys()
    await identity.token(scenes.token(scenes.claims()), known)
    google.names = ["key-2"]
    google.now += 6 * 3_600_000
    with pytest.raises(NotProven):
        await identity.token(scenes.token(scenes.claims()), known)


async def test_keys_that_can_not_be_had_are_no_verdict() -> None:
    """Neither proven nor refused: the VM asks again. Keys that are known and young stay good."""
    google = Google()
    google.broken = True
    known = google.keys()
    for _ in range(3):
        with pytest.raises(Transient):
            await identity.token(scenes.token(scenes.claims()), known)
    assert google.asked == 1
    google.broken = False
    google.now += 60_000
    await identity.token(scenes.token(scenes.claims()), known)
    google.broken = True
    google.now += 3_600_000
    await identity.token(scenes.token(scenes.claims()), known)
    google.now += 6 * 3_600_000
    with pytest.raises(Transient):
        await identity.token(scenes.token(scenes.claims()), known)


def test_an_answer_without_keys_is_none() -> None:
    for nothing in ({}, [], {"key-1": "text"}, None):
        with pytest.raises(Transient):
            identity.keys(nothing)
