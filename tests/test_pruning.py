"""Pruning against a plain loop over rows, neighbours and labels."""

import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from ltpll import Candidates, prune_candidates, pruning
from ltpll.pruning import nearest_neighbours
from ltpll.synthetic import uniform_candidates
from ltpll_research.set_origins import grouped_candidates
from support.refusals import refusal


def blobs(n, n_classes, seed, spread=0.6):
    """Long-tailed classes around points on a sphere."""
    rng = np.random.default_rng(seed)
    labels = np.sort(
        rng.choice(n_classes, n, p=0.5 ** np.arange(n_classes) / (2 - 0.5 ** (n_classes - 1)))
    )
    return (rng.normal(size=(n_classes, 5)) * 2)[labels] + spread * rng.normal(size=(n, 5)), labels


def by_loop(x, sets, weights, groups, k, threshold):
    """The labels that are left in each row."""
    x = (x - x.mean(0)) / x.std(0)
    classes = sorted({label for labels in sets for label in labels})
    frequency = {c: sum(row.get(c, 0) for row in weights) for c in classes}
    left = []
    for i, labels in enumerate(sets):
        others = [
            j for j in range(len(sets)) if j != i and (groups is None or groups[j] != groups[i])
        ]
        cosines = {
            j: float(x[i] @ x[j] / np.linalg.norm(x[i]) / np.linalg.norm(x[j])) for j in others
        }
        nearest = sorted(others, key=lambda j: -cosines[j])[:k]
        score = {
            c: sum(weights[j].get(c, 0) for j in nearest) / math.sqrt(frequency[c]) for c in labels
        }
        best = max(score.values())
        left.append([c for c in labels if best == 0 or score[c] >= threshold * best])
    return left


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_labels_with_few_votes_are_removed(monkeypatch, grouped, weighted):
    monkeypatch.setattr(pruning, "VOTES_PER_PASS", 100)  # in several passes
    x, labels = blobs(120, 4, seed=0)
    candidates = uniform_candidates(labels, 4, 0.4, seed=1)
    rng = np.random.default_rng(2)
    groups = rng.integers(0, 30, 120).tolist() if grouped else None
    if grouped:
        candidates = candidates.with_groups(groups)
    if weighted:
        candidates = candidates.with_weights(rng.uniform(0.1, 1, len(candidates.labels)))
    sets = [candidates.row(i) for i in range(120)]
    flat = iter(
        candidates.weights.tolist() if weighted else [1 / len(row) for row in sets for _ in row]
    )
    weights = [{label: next(flat) for label in row} for row in sets]
    pruned = prune_candidates(x, candidates, neighbours=6, threshold=0.5)
    expected = by_loop(x, sets, weights, groups, 6, 0.5)
    assert [pruned.candidates.row(i) for i in range(120)] == expected
    assert 0 < int(pruned.removed.sum()) < len(candidates.labels) / 2
    assert [pruned.removed_from(i) for i in range(120)] == [
        [c for c in before if c not in after] for before, after in zip(sets, expected, strict=True)
    ]
    assert pruned.candidates.groups is candidates.groups
    if weighted:
        for i in (0, 50, 119):
            total = sum(weights[i][c] for c in expected[i])
            start, end = pruned.candidates.offsets[i : i + 2].tolist()
            np.testing.assert_allclose(
                pruned.candidates.weights[start:end],
                [weights[i][c] / total for c in expected[i]],
                rtol=1e-5,
            )


def test_marked_labels_are_removed():
    given = Candidates.of([[0, 1], [0, 1], [0, 2], [2, 0], [1, 2], [0]], n_classes=3)
    removed = np.asarray(
        [1, 0, 0, 1, 0, 1, 0, 0, 1, 0, 0], dtype=bool
    )  # 0 of row 0, 1 of row 1, 2 of row 2, 1 of row 4
    pruned = pruning.remove_marked_labels(given, removed)
    assert [pruned.candidates.row(i) for i in range(6)] == [[1], [0], [0], [0, 2], [2], [0]]


def test_no_set_becomes_empty_and_single_candidates_stay():
    x, labels = blobs(200, 5, seed=3)
    candidates = uniform_candidates(labels, 5, 0.5, seed=4)
    pruned = prune_candidates(x, candidates, threshold=1.0).candidates
    assert (pruned.sizes >= 1).all()
    single = candidates.sizes == 1
    assert single.any()
    assert all(pruned.row(i) == candidates.row(i) for i in single.nonzero().flatten().tolist())
    nothing = prune_candidates(x, candidates, threshold=0.0).candidates
    assert torch.equal(nothing.labels, candidates.labels)


def test_nothing_is_removed_where_nobody_votes():
    x = np.random.default_rng(5).normal(size=(6, 2))
    alone = Candidates.of([[0, 1]] * 6, n_classes=3, groups=["a"] * 6)
    assert not prune_candidates(x, alone).removed.any()
    assert not prune_candidates([[1.0, 2.0]], Candidates.of([[0, 1]], n_classes=3)).removed.any()
    disjoint = Candidates.of([[0, 1], [2, 3]], n_classes=4)
    assert not prune_candidates([[1.0], [2.0]], disjoint).removed.any()


def test_dividing_by_the_frequency_keeps_true_rare_labels():
    """At the threshold at which plain votes remove as many labels."""
    candidates, labels = grouped_candidates(300, 0.5 ** np.arange(6), seed=6)
    rng = np.random.default_rng(7)
    x = (rng.normal(size=(6, 5)) * 2)[labels] + 1.5 * rng.normal(size=(len(labels), 5))
    fair = prune_candidates(x, candidates)
    index = nearest_neighbours(
        pruning.directions(torch.from_numpy(x).float()), pruning.NEIGHBOURS
    ).numpy()
    by_plain_votes = pruning.relative_votes(index, candidates, frequency_power=0)
    plain = pruning.remove_marked_labels(
        candidates, by_plain_votes < np.sort(by_plain_votes)[int(fair.removed.sum())]
    )
    rare = torch.from_numpy(np.where(labels >= 4, labels, -1))
    kept = {
        name: int(one.candidates.contains(rare).sum())
        for name, one in (("fair", fair), ("plain", plain))
    }
    assert kept["fair"] > kept["plain"]


@pytest.mark.parametrize(
    ("features", "options", "words"),
    [
        (np.zeros((2, 3, 4, 4)), {}, "compute features of pictures first"),
        (np.zeros((3, 2)), {}, "3 rows of features, but 2 sets"),
        (np.zeros((2, 2)), {"neighbours": 0}, "neighbours is 0"),
        (np.zeros((2, 2)), {"threshold": 1.5}, "threshold is 1.5"),
        ([[1.0], [np.nan]], {}, "NaN"),
    ],
)
def test_what_cannot_be_used_is_refused(features, options, words):
    assert words in refusal(lambda: prune_candidates(features, ["cat|dog", "dog"], **options))


# ---- neighbours


def neighbours_by_loop(x, k, groups=None):
    """Row by row, in double precision; of equal distances the lower number first."""
    found = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i and (groups is None or groups[i] != groups[j])]
        distances = [(float(np.linalg.norm(x[i].astype(np.float64) - x[j])), j) for j in others]
        row = [j for _, j in sorted(distances)[:k]]
        found.append(row + [-1] * (k - len(row)))
    return np.asarray(found)


@pytest.mark.parametrize("n", [700, 1031])  # blocks of 64 rows, and a shorter one at the end
def test_neighbours_are_those_of_scikit_learn(monkeypatch, n):
    monkeypatch.setattr(pruning, "VALUES_PER_BLOCK", 64 * n)
    # Far from the origin, where products lose precision.
    x = np.random.default_rng(n).normal(size=(n, 12)).astype(np.float32) + 100
    x[: n // 2] += np.arange(n // 2)[:, None] / 50  # in an order
    found = nearest_neighbours(torch.from_numpy(x), 7)
    reference = NearestNeighbors(n_neighbors=7, algorithm="brute").fit(x.astype(np.float64))
    np.testing.assert_array_equal(found, reference.kneighbors()[1])


def test_rows_of_the_same_group_are_not_neighbours(monkeypatch):
    monkeypatch.setattr(pruning, "VALUES_PER_BLOCK", 1600)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(90, 3)).astype(np.float32)
    groups = rng.integers(0, 20, 90)
    x += groups[:, None] * 5  # the nearest rows are those of the own group
    found = nearest_neighbours(torch.from_numpy(x), 5, groups=torch.from_numpy(groups))
    np.testing.assert_array_equal(found, neighbours_by_loop(x, 5, groups))


def test_of_equal_distances_the_lower_number_comes_first(monkeypatch):
    monkeypatch.setattr(pruning, "VALUES_PER_BLOCK", 1600)
    x = np.repeat(np.random.default_rng(2).integers(0, 9, size=(30, 4)), 3, axis=0).astype(
        np.float32
    )  # each row three times
    found = nearest_neighbours(torch.from_numpy(x), 2)
    np.testing.assert_array_equal(
        found, [[j for j in range(i - i % 3, i - i % 3 + 3) if j != i] for i in range(90)]
    )


def test_if_all_rows_are_equal_every_neighbour_is_another_row(monkeypatch):
    monkeypatch.setattr(pruning, "VALUES_PER_BLOCK", 1600)
    found = nearest_neighbours(torch.full((50, 3), 0.1), 4)
    assert (found != torch.arange(50)[:, None]).all()
    assert all(len(set(row)) == 4 and min(row) >= 0 for row in found.tolist())


def test_with_fewer_rows_than_neighbours_the_rest_is_missing():
    found = nearest_neighbours(torch.tensor([[0.0], [1.0], [3.0]]), 4)
    assert found.tolist() == [[1, 2, -1], [0, 2, -1], [1, 0, -1]]
    alone = nearest_neighbours(torch.zeros(3, 2), 1, groups=torch.zeros(3, dtype=torch.int64))
    assert alone.tolist() == [[-1], [-1], [-1]]
