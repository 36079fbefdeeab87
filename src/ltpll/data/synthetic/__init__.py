"""Synthetic data: long tails and candidate sets drawn around known labels, and two small data sets that need no download."""
