"""Random candidate sets with their true labels."""

import numpy as np

from ltpll.candidates import Candidates
from ltpll.synthetic import class_sizes, uniform_candidates


def random_sets(n=60, n_classes=5, seed=0, probability=0.4):
    """Sets with true labels in them, whose labels join with probabilities of their own."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n)
    inside = rng.random((n, n_classes)) < probability * rng.random(n_classes)
    inside[np.arange(n), labels] = True
    return Candidates.from_matrix(inside), labels.tolist()


def long_tailed(n_classes=10, largest=3000, imbalance=50, ambiguity=0.3, seed=0):
    labels = np.repeat(np.arange(n_classes), class_sizes(largest, n_classes, imbalance))
    return uniform_candidates(labels, n_classes, ambiguity, seed=seed), labels.tolist()
