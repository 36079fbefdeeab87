"""Experiments: image benchmarks, small studies, the paper's tables, and speed measurements."""
