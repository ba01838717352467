"""Simulated clouds: accounts that behave like EC2, GCE and ARM where these differ.

Knows the domain, the provider SPI and `simulation.ports`; nothing of the dispatcher.

`settings` says what an account is, `faults` what goes wrong with it; both are data. `account` is the one engine, `ec2`,
`gce` and `arm` are the dialects that speak to it as their driver would speak to the cloud. `make` opens an account.
"""
