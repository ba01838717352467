"""The hands beside cloud accounts that end VMs at their hard ends: what runs as a scheduled function of each cloud.

Knows the domain's rule (`domain.reaper`) and its own cloud's API, and nothing else of the core: each cloud's module is
packaged by Terraform with the modules that it imports, and has only its function's own Python around it.
"""
