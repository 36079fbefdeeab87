"""Training: the loop, and everything that keeps it fast, safe and resumable."""
