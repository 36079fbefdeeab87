"""Cleaning: from a table with candidate sets, through training, to one label per row."""
