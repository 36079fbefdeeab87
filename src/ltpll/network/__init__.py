"""Network: how a network runs, in training and for predictions, and how it is exported."""
