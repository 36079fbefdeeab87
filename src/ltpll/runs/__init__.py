"""Runs: a config, a folder and a stream of records."""
