"""A control VM: the dispatcher as a service of systemd, with its backups. `units` says what is written, `host`
does it, `copies` are the backups."""
