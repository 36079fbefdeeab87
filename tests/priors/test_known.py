"""A prior that the user states."""

import numpy as np
import pytest

from ltpll.candidates import Candidates
from ltpll.priors import known_prior
from support.refusals import refusal

SETS = Candidates.of(["cat|dog", "cat", "dog|fox", "fox|cat"])


@pytest.mark.parametrize(
    "shares",
    [[6, 3, 1], np.array([0.6, 0.3, 0.1]), {"fox": 1, "cat": 6, "dog": 3}],
    ids=["counts", "array", "mapping"],
)
def test_shares_or_counts_become_the_estimate_and_both_bounds(shares):
    found = known_prior(SETS, shares)
    for values in (found.estimate, found.lower, found.upper):
        np.testing.assert_allclose(values, [0.6, 0.3, 0.1])
    assert found.how == "given"


def test_bounds_are_kept_and_the_estimate_lies_between_them_and_sums_to_one():
    found = known_prior(SETS, {"cat": (0.5, 0.9), "dog": [0.1, 0.3], "fox": 0.1})
    np.testing.assert_allclose(found.lower, [0.5, 0.1, 0.1])
    np.testing.assert_allclose(found.upper, [0.9, 0.3, 0.1])
    assert found.estimate.sum() == pytest.approx(1)
    assert ((found.lower <= found.estimate) & (found.estimate <= found.upper)).all()


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"cat": 1, "dog": 1}, "'fox' has no share"),
        ({"cat": 1, "dog": 1, "fox": 1, "cow": 1}, "'cow' is not a class"),
        ([1, 2], "There are 2 class shares for 3 classes"),
        ([1, -2, 3], "The share of class 'dog' is -2"),
        ([1, float("nan"), 3], "The share of class 'dog' is nan"),
        ([0, 0, 0], "All class shares are zero"),
        ({"cat": (0.5, 0.2), "dog": 1, "fox": 1}, "a lower and an upper bound"),
        (
            {"cat": (0.1, 0.2), "dog": (0.1, 0.2), "fox": (0.1, 0.2)},
            "sum to 0.3 and the upper bounds to 0.6",
        ),
    ],
)
def test_impossible_shares_are_refused(shares, words):
    assert words in refusal(lambda: known_prior(SETS, shares))
