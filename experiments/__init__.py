"""The paper's experiments, their baselines, and the benchmarks: not installed."""
