"""The baselines that vote weights are compared with: what they must give for votes whose truth is
known.
"""

import numpy as np
import pytest

from benchmarks.crowds import (
    dawid_skene,
    share_of_best_guesses,
    shares_of,
    simulated_annotator,
    with_class_prior,
)
from ltpll import candidates_from_votes
from ltpll.synthetic import crowd_votes


def test_a_majority_counts_votes_and_breaks_ties_at_random():
    votes = candidates_from_votes(
        [0, 0, 0, 1, 1, 2], [0, 1, 2, 0, 1, 0], [1, 1, 2, 0, 2, 1], weights="counts", n_classes=3
    )
    shares = shares_of(votes)
    np.testing.assert_allclose(shares, [[0, 2 / 3, 1 / 3], [1 / 2, 0, 1 / 2], [0, 1, 0]], atol=1e-6)
    assert share_of_best_guesses(shares, np.asarray([1, 0, 2])).tolist() == [1, 0.5, 0]


def test_dawid_and_skene_undo_a_confusion_that_misleads_the_majority():
    y = np.random.default_rng(0).integers(0, 4, 1500)
    annotators = [0.9, 0.8, *(simulated_annotator("pairs", 4) for _ in range(2))]
    votes = crowd_votes(y, 4, seed=0, annotators=annotators)
    majority = share_of_best_guesses(
        shares_of(candidates_from_votes(*votes, weights="counts")), y
    ).mean()
    found = dawid_skene(*votes, len(y), 4)
    np.testing.assert_allclose(found.sum(1), 1)
    assert share_of_best_guesses(found, y).mean() > majority + 0.05


def test_the_class_prior_is_the_one_that_makes_the_likelihoods_most_likely():
    """Two classes, symmetric noise of 20 %: of n votes for the first class, n (0.8 p + 0.2 (1 − p))
    are expected.
    """
    likelihoods = np.repeat([[0.8, 0.2], [0.2, 0.8]], [62, 38], axis=0)
    assert with_class_prior(likelihoods, 1000).mean(0)[0] == pytest.approx(
        (0.62 - 0.2) / 0.6, abs=1e-6
    )
