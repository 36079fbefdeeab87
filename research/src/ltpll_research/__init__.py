"""Research: image benchmarks, small studies, the paper's tables and figures, and speed."""

from ltpll.runs.schema import CHECKS, Kind
from ltpll_research.schema import benchmark_problem

CHECKS |= dict.fromkeys((Kind.BENCHMARK, Kind.STUDY), benchmark_problem)
