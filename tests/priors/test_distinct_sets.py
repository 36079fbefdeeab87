"""Estimates of the class prior from sets alone: against loops, brute force and repeated draws."""

from collections import Counter

import numpy as np
import pytest

from ltpll.candidates import Candidates
from ltpll.priors.distinct_sets import distinct_sets
from ltpll.priors.estimate import average_prior, em_deviation, em_prior
from ltpll.synthetic import uniform_candidates
from support.candidate_sets import long_tailed, random_sets


def test_identical_sets_are_merged_and_counted():
    candidates, _ = random_sets(200)
    sets = distinct_sets(candidates)
    found = {frozenset(sets.matrix[i].indices.tolist()): n for i, n in enumerate(sets.counts)}
    assert found == Counter(frozenset(candidates.row(i)) for i in range(200))
    assert sets.n == 200
    assert sets.appearances.tolist() == candidates.rows_per_class().tolist()


@pytest.mark.parametrize("seed", range(5))
def test_em_finds_the_maximum_of_the_likelihood_that_brute_force_finds(seed):
    candidates, _ = random_sets(40, 3, seed, probability=0.8)
    prior, gap = em_prior(distinct_sets(candidates), tolerance=1e-6)
    dense = candidates.dense().numpy().astype(float)
    grid = np.asarray([(a, b, 400 - a - b) for a in range(1, 399) for b in range(1, 400 - a)]) / 400
    likelihood = np.log(dense @ grid.T).sum(0)
    assert prior.sum() == pytest.approx(1)
    assert gap <= 1e-6
    assert np.log(dense @ prior).sum() >= likelihood.max() - 1e-6
    np.testing.assert_allclose(prior, grid[likelihood.argmax()], atol=0.005)


def test_em_ends_where_plain_steps_written_out_end():
    candidates, _ = random_sets(80, 5, 3)
    rows = [candidates.row(i) for i in range(80)]
    prior = [1 / 5] * 5
    for _ in range(3000):
        new = [0.0] * 5
        for row in rows:
            total = sum(prior[j] for j in row)
            for j in row:
                new[j] += prior[j] / total / len(rows)
        prior = new
    np.testing.assert_allclose(
        em_prior(distinct_sets(candidates), tolerance=1e-9)[0], prior, atol=1e-5
    )


def test_the_promised_distance_from_the_maximum_holds():
    sets = distinct_sets(long_tailed(imbalance=20, ambiguity=0.5)[0])
    exact, _ = em_prior(sets, tolerance=1e-8)

    def likelihood(prior):
        return float(sets.counts @ np.log(sets.matrix @ prior))

    for tolerance in (100, 1, 0.01):
        rough, gap = em_prior(sets, tolerance)
        assert gap <= tolerance
        assert 0 <= likelihood(exact) - likelihood(rough) + 1e-6 <= tolerance + 1e-5


def test_the_average_uniform_target_is_that_of_a_loop():
    candidates, _ = random_sets(50)
    naive = np.zeros(5)
    for i in range(50):
        naive[candidates.row(i)] += 1 / len(candidates.row(i)) / 50
    np.testing.assert_allclose(average_prior(distinct_sets(candidates)), naive)


def test_the_deviation_of_known_labels_is_the_multinomials():
    sets = distinct_sets(Candidates.of([[0]] * 5000 + [[1]] * 3000 + [[2]] * 2000))
    prior, _ = em_prior(sets)
    share = np.asarray([0.5, 0.3, 0.2])
    np.testing.assert_allclose(
        em_deviation(sets, prior), np.sqrt(share * (1 - share) / 10_000), rtol=1e-3
    )


def test_the_deviation_is_how_much_em_varies_from_draw_to_draw():
    rng = np.random.default_rng(0)
    share, found = np.asarray([0.6, 0.3, 0.1]), []
    for seed in range(200):
        sets = distinct_sets(uniform_candidates(rng.choice(3, 500, p=share), 3, 0.4, seed=seed))
        found.append(em_prior(sets)[0])
    np.testing.assert_allclose(em_deviation(sets, share), np.std(found, axis=0), rtol=0.2)
