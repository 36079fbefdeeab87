"""Data: what is read from files and written to them, and data drawn at random."""
