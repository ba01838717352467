"""Several boot documents as one user data: MIME, as cloud-init reads it. Owns how they are put together and parted.

A later cloud-config replaces what an earlier one says, unless it asks for something else: an operator's own must not
put the bootstrap out of force, so that it asks to append its lists and to leave what is there.
"""

from __future__ import annotations

import email
import hashlib
from collections.abc import Sequence
from email.message import Message
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

_MERGE = "list(append)+dict(no_replace,recurse_list)+str()"
_KIND = "cloud-config"


def combine(document: str, others: Sequence[tuple[str, str]] = ()) -> str:
    """`document`, with `others` (name and text of a cloud-config) behind it where there are any. Deterministic."""
    if not others:
        return document
    seed = hashlib.sha256("\0".join((document, *(text for _, text in others))).encode()).hexdigest()
    whole = MIMEMultipart(boundary=f"=={seed[:32]}==")
    whole.attach(_part("cloud-dispatch", document))
    for name, text in others:
        part = _part(name, text)
        part["Merge-Type"] = _MERGE
        whole.attach(part)
    return whole.as_string()


def cloud_configs(user_data: str) -> list[str]:
    """The cloud-config documents of a user data, one or several."""
    if user_data.startswith("#"):
        return [user_data]
    return [_text(part) for part in email.message_from_string(user_data).walk() if part.get_content_subtype() == _KIND]


def _part(name: str, text: str) -> Message:
    part = MIMEText(text, _KIND, "us-ascii" if text.isascii() else "utf-8")
    part.add_header("Content-Disposition", "attachment", filename=name)
    return part


def _text(part: Message) -> str:
    body = part.get_payload(decode=True)
    return body.decode(part.get_content_charset("utf-8")) if isinstance(body, bytes) else ""
