"""Benchmarks: every figure is measured beside a baseline in the same run; `python -m benchmarks --help`."""
