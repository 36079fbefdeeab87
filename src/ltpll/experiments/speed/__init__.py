"""Speed: benchmarks of the training engine and of candidate storage."""
