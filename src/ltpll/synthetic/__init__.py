"""Synthetic data: long tails, candidate sets around true labels, and two small data sets."""

from __future__ import annotations

from ltpll.synthetic.ambiguity import superclass_candidates, uniform_candidates
from ltpll.synthetic.digits import load_digits_split
from ltpll.synthetic.example_tables import example_tables
from ltpll.synthetic.longtail import class_sizes, long_tail_subset
from ltpll.synthetic.origins import crowd_votes, top_k_candidates
from ltpll.synthetic.squares import four_squares

__all__ = [
    "class_sizes",
    "crowd_votes",
    "example_tables",
    "four_squares",
    "load_digits_split",
    "long_tail_subset",
    "superclass_candidates",
    "top_k_candidates",
    "uniform_candidates",
]
