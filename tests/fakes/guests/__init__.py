"""VMs for fakes of clouds: each instance really boots its user data, as processes of this host."""

from __future__ import annotations

#: Where an instance asks who it is.
METADATA = "169.254.169.254"
#: The programs that the image brings, and where a guest finds programs.
BIN = "/run/image"
PATH = f"{BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
