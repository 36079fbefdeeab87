"""Runs: the folder, log, record and summary of every training."""
