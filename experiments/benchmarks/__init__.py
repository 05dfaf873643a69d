"""Measurements of single things, a module each: `python -m experiments.benchmarks.NAME --help`."""
