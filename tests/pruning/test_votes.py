"""Pruning against a plain loop over rows, neighbours and labels."""

import math

import numpy as np
import pytest
import torch

from ltpll import Candidates, prune_candidates
from ltpll.pruning import votes
from ltpll.pruning.neighbours import nearest_neighbours
from ltpll.synthetic import grouped_candidates, uniform_candidates
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
    monkeypatch.setattr(votes, "VOTES_PER_PASS", 100)  # in several passes
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
    assert pruned.changed().tolist() == [i for i in range(120) if expected[i] != sets[i]]
    assert pruned.rows_per_class().tolist() == [
        sum(c in pruned.removed_from(i) for i in range(120)) for c in range(4)
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


def test_lost_labels_are_counted_overall_and_in_the_rarest_third():
    given = Candidates.of([[0, 1], [0, 1], [0, 2], [2, 0], [1, 2], [0]], n_classes=3)
    removed = np.asarray(
        [1, 0, 0, 1, 0, 1, 0, 0, 1, 0, 0], dtype=bool
    )  # 0 of row 0, 1 of row 1, 2 of row 2, 1 of row 4
    pruned = votes.remove_marked_labels(given, removed)
    assert [pruned.candidates.row(i) for i in range(6)] == [[1], [0], [0], [0, 2], [2], [0]]
    # Row 3 lacks its true label from the start, and that of row 5 is unknown. Class 2 is the
    # rarest.
    assert pruned.lost([0, 0, 2, 1, 1, -1]) == votes.Lost(rows=4, lost=3, rare_rows=1, rare_lost=1)


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
        votes.directions(torch.from_numpy(x).float()), votes.NEIGHBOURS
    ).rows.numpy()
    by_plain_votes = votes.relative_votes(index, candidates, frequency_power=0)
    plain = votes.remove_marked_labels(
        candidates, by_plain_votes < np.sort(by_plain_votes)[int(fair.removed.sum())]
    )
    assert fair.lost(labels).rare_lost < plain.lost(labels).rare_lost


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
