"""Fuzzing: feeds damaged and hostile files to everything that reads a file (see README.md)."""
