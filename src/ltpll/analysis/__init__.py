"""Analysis: statistics of candidate sets, and the bound of the paper."""
