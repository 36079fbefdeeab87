"""Research: image benchmarks, small studies, the paper's tables and figures, and speed measurements."""
