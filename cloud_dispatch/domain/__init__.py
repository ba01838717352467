"""The words of the business as frozen values, transition tables and errors: no I/O, no clock, no other layer."""
