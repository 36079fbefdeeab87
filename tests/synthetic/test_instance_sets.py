"""Sets that depend on the example: how often each label joins, compared with a plain loop."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from ltpll.synthetic import instance_candidates, load_digits_split, superclass_candidates
from support.refusals import refusal

P = np.array([0.5, 0.2, 0.02, 0.18, 0.1])  # of one example, whose true label is 0
GROUPS = [0, 1, 0, 0, 1]


def joining_rates(p, true, rate, groups=None):
    """The probability of each label, class by class, in plain Python."""
    allowed = [groups is None or groups[j] == groups[true] for j in range(len(p))]
    wrong = [p[j] if j != true and allowed[j] else 0.0 for j in range(len(p))]
    shares = [value / max(wrong) for value in wrong]
    if rate is not None:
        mean = sum(shares) / sum(allowed)
        shares = [min(rate * value / mean, 1.0) for value in shares]
    return np.asarray([1.0 if j == true else share for j, share in enumerate(shares)])


@pytest.mark.parametrize("rate", [0.1, 0.4, 1.0, None])
@pytest.mark.parametrize("groups", [None, GROUPS])
def test_each_label_joins_as_often_as_its_normalised_share_says(rate, groups):
    n = 20_000
    drawn = instance_candidates(
        np.zeros(n, int), 5, np.tile(P, (n, 1)), seed=0, rate=rate, superclass=groups
    )
    expected = joining_rates(P, 0, rate, groups)
    error = np.sqrt(expected * (1 - expected) / n)
    assert (np.abs(drawn.dense().numpy().mean(0) - expected) <= 4 * error).all()


def test_sets_have_about_rate_times_the_classes_wrong_labels_where_no_share_is_cut_off():
    y = np.arange(5000) % 20
    p = np.random.default_rng(7).uniform(0.5, 1, (5000, 20))
    sizes = instance_candidates(y, 20, p, seed=0, rate=0.2).sizes.numpy()
    assert sizes.mean() == pytest.approx(1 + 0.2 * 20, abs=0.1)


def test_a_label_that_a_classifier_finds_likely_joins_more_often():
    digits = load_digits_split(seed=0)
    x, y = digits.x_pool.reshape(-1, 64), digits.y_pool
    model = LogisticRegression(max_iter=200).fit(x[::8], y[::8])
    drawn = instance_candidates(y, 10, model, features=x, seed=0)
    given = instance_candidates(y, 10, model.predict_proba(x), seed=0)
    assert torch.equal(drawn.dense(), given.dense())
    assert drawn.contains(torch.from_numpy(y)).all()
    p = model.predict_proba(x)
    p[np.arange(len(y)), y] = -1
    order, joined = np.argsort(p, 1), drawn.dense().numpy()
    rates = [joined[np.arange(len(y)), order[:, -rank]].mean() for rank in (1, 2, 3)]
    assert rates[0] > rates[1] > rates[2] > 0.1


def test_a_classifier_that_has_not_seen_every_class_gives_the_others_nothing():
    x = np.random.default_rng(0).normal(size=(60, 3))
    y = np.arange(60) % 3
    model = LogisticRegression().fit(x[y < 2], y[y < 2])
    dense = instance_candidates(y, 3, model, features=x, seed=0).dense().numpy()
    assert not dense[y < 2, 2].any()


def test_a_model_without_doubt_leaves_singletons():
    y = np.arange(6) % 3
    assert instance_candidates(y, 3, np.eye(3)[y], seed=0, rate=9.0).sizes.tolist() == [1] * 6


def test_only_labels_of_the_superclass_join_with_the_ambiguity_itself():
    y = np.arange(20_000) % 5
    dense = superclass_candidates(y, GROUPS, 0.3, seed=0, only=True).dense().numpy()
    same = np.equal.outer(GROUPS, GROUPS)[y]
    assert not dense[~same].any()
    wrong = same & (np.arange(5) != y[:, None])
    assert dense[wrong].mean() == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize(
    ("p", "options", "fragment"),
    [
        (np.ones((2, 3)), {}, "not those of 3 examples"),
        (np.full((3, 3), np.nan), {}, "give finite ones"),
        (-np.ones((3, 3)), {}, "none below zero"),
        (np.ones((3, 3)), {"rate": -1}, "rate"),
        (np.ones((3, 3)), {"superclass": [0, 1]}, "the superclass of each"),
    ],
)
def test_what_gives_no_shares_is_refused(p, options, fragment):
    assert fragment in refusal(lambda: instance_candidates([0, 1, 2], 3, p, seed=0, **options))
