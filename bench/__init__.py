"""Benchmarks of cloud-dispatch, run by hand: ``python -m bench NAME --json``.

Owns how speed is measured here: as a ratio within one run, against a peer or a yardstick, over interleaved
repetitions, the worst ratio reported. Nothing in the product may import it, and no test may assert a timing.
"""
