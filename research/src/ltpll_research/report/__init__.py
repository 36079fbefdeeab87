"""The page of studies and benchmark runs."""
