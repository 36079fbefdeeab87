"""Fuzzing: everything that reads a file, given damaged and hostile ones by the million (README.md says how)."""
