"""Evaluation: how good predictions are, with true labels or with candidate sets alone."""
