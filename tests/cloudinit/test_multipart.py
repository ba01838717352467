"""Several documents in one user data: cloud-init merges them so that the bootstrap stays in force."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cloud_dispatch.cloudinit.multipart import cloud_configs, combine
from cloud_dispatch_local.cloudconfig import BadUserData, parse

OURS = "#cloud-config\nwrite_files: [{path: a, content: ours}]\nruncmd: [[sh, ours.sh]]\n"
SITE = "#cloud-config\nruncmd: [[echo, é]]\nwrite_files: [{path: b, content: theirs}]\npackages: [jq]\n"
MORE = "#cloud-config\nruncmd: [[echo, more]]\n"
#: Merges the parts of a user data as cloud-init's own handler of cloud-config does.
_MERGE = """
import email, json, sys
from cloudinit.handlers.cloud_config import CloudConfigPartHandler
class Paths: get_ipath = staticmethod(lambda _: None)
handler = CloudConfigPartHandler(Paths())
for part in email.message_from_file(sys.stdin).walk():
    if not part.is_multipart():
        handler.handle_part(None, "text/cloud-config", "", part.get_payload(decode=True).decode(), "", part)
        handler.file_names = ["x"]
print(json.dumps(handler.cloud_buf))
"""


def test_one_document_stays_as_it_is() -> None:
    """Nothing is wrapped that needs no wrapping, and a document is its own only part."""
    assert combine(OURS) == OURS
    assert cloud_configs(OURS) == [OURS]


def test_documents_are_put_together_and_parted_again() -> None:
    """Every character arrives, ours comes first, and the same documents give the same bytes."""
    whole = combine(OURS, [("site.yaml", SITE), ("more.yaml", MORE)])
    assert cloud_configs(whole) == [OURS, SITE, MORE]
    assert whole == combine(OURS, [("site.yaml", SITE), ("more.yaml", MORE)])
    assert whole.startswith("Content-Type: multipart/mixed")


def test_cloud_init_appends_what_is_an_operators_own() -> None:
    """By cloud-init's own merging: lists grow at their end, and nothing of the bootstrap is replaced."""
    modules = Path(sys.prefix) / "cloud-init" / "usr" / "lib" / "python3" / "dist-packages"
    done = subprocess.run(
        [sys.executable, "-c", _MERGE], input=combine(OURS, [("site.yaml", SITE), ("more.yaml", MORE)]),
        env={"PYTHONPATH": str(modules)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    merged = json.loads(done.stdout)
    assert merged["runcmd"] == [["sh", "ours.sh"], ["echo", "é"], ["echo", "more"]]
    assert [file["path"] for file in merged["write_files"]] == ["a", "b"]
    assert merged["packages"] == ["jq"]


def test_a_local_vm_understands_several_documents_or_says_what_not() -> None:
    """It merges as cloud-init does, and refuses what it has no program for."""
    plan = parse(combine(OURS, [("more.yaml", MORE)]))
    assert plan.commands == (("sh", "ours.sh"), ("echo", "more"))
    with pytest.raises(BadUserData, match="does not understand packages"):
        parse(combine(OURS, [("site.yaml", SITE)]))
    with pytest.raises(BadUserData, match="text/x-shellscript"):
        parse(combine(OURS, [("x", MORE)]).replace("text/cloud-config", "text/x-shellscript"))
