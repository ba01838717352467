"""`iam-policy`: what the dispatcher's credentials must be allowed, and no more."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cloud_dispatch.cli.options import ConfigFile
from cloud_dispatch.cli.session import load_config
from cloud_dispatch.domain.errors import InvalidInput, NotFound


def register(app: typer.Typer) -> None:
    app.command("iam-policy")(iam_policy)


def iam_policy(
    profile: Annotated[
        str, typer.Argument(help="The profile whose credentials it is for; default: the only one.")
    ] = "",
    config: ConfigFile = None,
) -> None:
    """Print the least that the dispatcher's credentials must be allowed for a profile, in its provider's own form.

    Example: cloud-dispatch iam-policy aws > policy.json
    """
    from cloud_dispatch.provider import registry

    settings = load_config(config)
    if not settings.dispatcher.deployment:
        hint = 'write deployment = "NAME": the rights are for what carries its tag'
        raise InvalidInput("it has no name yet", place="dispatcher.deployment", hint=hint)
    made = {
        name: registry.plugin(one.driver).policy(one.settings, settings.dispatcher.deployment, name)
        for name, one in settings.profiles.items()
        if profile in ("", name)
    }
    if profile and profile not in made:
        raise NotFound(f"no such profile {profile!r}", hint=f"profiles: {', '.join(sorted(settings.profiles))}")
    found = {name: document for name, document in made.items() if document is not None}
    if not found:
        raise NotFound("no profile's driver has a policy to print", hint="cloud-dispatch config show")
    if len(found) > 1:
        raise InvalidInput(f"several profiles have one: {', '.join(sorted(found))}", place="PROFILE", hint="name one")
    (document,) = found.values()
    print(json.dumps(document, indent=2))
