"""The ambiguity degree, against a plain count."""

import random

import pytest

from ltpll.analysis.describe import ambiguity_degree
from ltpll.candidates import Candidates
from ltpll.synthetic import uniform_candidates


def test_the_ambiguity_degree_is_the_largest_share_of_a_wrong_label_in_a_class():
    sets = Candidates.from_sets([{0, 1}, {0, 1}, {0, 2}, {0}, {1, 2}, {1}, {2}], n_classes=3)
    assert ambiguity_degree(sets, [0, 0, 0, 0, 1, 1, 2]) == 0.5


@pytest.mark.parametrize("seed", range(5))
def test_the_ambiguity_degree_equals_a_plain_count(seed):
    rng = random.Random(seed)
    labels = [rng.randrange(6) for _ in range(40)]
    sets = [{true, *(c for c in range(6) if rng.random() < 0.3)} for true in labels]
    shares = []
    for a in set(labels):
        own = [s for s, true in zip(sets, labels, strict=True) if true == a]
        shares += [sum(b in s for s in own) / len(own) for b in range(6) if b != a]
    assert ambiguity_degree(Candidates.from_sets(sets, n_classes=6), labels) == pytest.approx(
        max(shares)
    )


def test_the_ambiguity_degree_of_sets_without_wrong_labels_is_zero():
    assert ambiguity_degree(Candidates.from_sets([{0}, {1}], n_classes=2), [0, 1]) == 0


def test_the_ambiguity_degree_of_many_uniform_sets_is_about_their_probability():
    labels = [c for c in range(4) for _ in range(2000)]
    found = ambiguity_degree(uniform_candidates(labels, 4, 0.3, seed=0), labels)
    assert found == pytest.approx(0.3, abs=0.03)
    assert found > 0.3  # the largest of twelve shares
