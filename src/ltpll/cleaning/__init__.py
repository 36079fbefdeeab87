"""Cleaning: from a user's table with candidate sets, through training and out-of-fold predictions, to one label per row."""
