"""Measurements of single things, each a module: `python -m experiments.benchmarks.NAME --help`."""
