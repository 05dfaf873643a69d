"""The paper's experiments, the models they compare with, and the benchmarks: not installed."""
