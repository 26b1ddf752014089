"""Flambeau beside PyTorch, on one machine, in one interleaved run: `python -m benchmarks`.

The README beside this file says how to read the table and how to add a case.
"""
