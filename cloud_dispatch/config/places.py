"""Addresses of places in a cloud's bucket, as a configuration and a command name them. Pure."""

from __future__ import annotations

import re

BUCKET = re.compile(
    r"(?P<kind>s3|gs)://(?P<bucket>[a-z0-9][a-z0-9._-]{1,221})(?:/(?P<prefix>[A-Za-z0-9_!*'().=/-]*))?"
    r"|(?P<az>az)://(?P<account>[a-z0-9]{3,24})/(?P<container>[a-z0-9$][a-z0-9-]{2,62})"
    r"(?:/(?P<folder>[A-Za-z0-9_!*'().=/-]*))?"
)
BUCKET_FORMS = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://ACCOUNT/CONTAINER/PREFIX"
