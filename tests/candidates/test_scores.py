"""Scores become the sets that sorting each row gives, whatever holds them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from ltpll.candidates import Candidates, parsing
from ltpll.candidates.storage import POWER_OF_SCORES
from support.refusals import refusal


def naive(row, top_k, mass):
    """The chosen classes of one row, by sorting."""
    ranked = sorted(range(len(row)), key=lambda c: (-row[c], c))
    if top_k is not None:
        return sorted(c for c in ranked[:top_k] if row[c] > 0)
    chosen, total = [], 0.0
    for c in ranked:
        if total >= mass * sum(row) - 1e-6 * sum(row):
            break
        chosen.append(c)
        total += row[c]
    return sorted(c for c in chosen if row[c] > 0)


@pytest.mark.parametrize(
    "form", [np.asarray, torch.from_numpy, scipy.sparse.csr_array, scipy.sparse.coo_matrix]
)
@pytest.mark.parametrize(
    ("top_k", "mass"), [(1, None), (3, None), (None, 0.5), (None, 0.9), (None, 1)]
)
def test_sets_are_the_highest_scores(form, top_k, mass, monkeypatch):
    monkeypatch.setattr(parsing, "VALUES_PER_PASS", 16)  # several blocks
    rng = np.random.default_rng(0)
    matrix = (
        rng.random((20, 6)).round(1) * (rng.random((20, 6)) < 0.7)
        + np.eye(6)[rng.integers(0, 6, 20)] * 0.05
    )
    found = Candidates.from_scores(form(matrix), top_k=top_k, mass=mass, classes=list("abcdef"))
    assert [found.row(i) for i in range(20)] == [naive(row.tolist(), top_k, mass) for row in matrix]
    for i, row in enumerate(matrix):
        chosen = row[found.row(i)] ** POWER_OF_SCORES
        np.testing.assert_allclose(
            found.weights[found.offsets[i] : found.offsets[i + 1]], chosen / chosen.sum(), rtol=1e-5
        )


REFUSALS = {
    "no rule": (np.ones((2, 3)), {}, "Scores become sets by top_k"),
    "two rules": (np.ones((2, 3)), {"top_k": 1, "mass": 0.5}, "Scores become sets by top_k"),
    "too many": (
        np.ones((2, 3)),
        {"top_k": 4},
        "top_k is 4, but there are scores of only 3 classes",
    ),
    "no share": (np.ones((2, 3)), {"mass": 1.5}, "mass is 1.5"),
    "logits": (
        np.asarray([[1.0, 2.0], [0.5, -1.0]]),
        {"top_k": 1, "classes": ["a", "b"]},
        "Row 1 has the score -1.0 for 'b'",
    ),
    "nan": (np.asarray([[1.0, np.nan]]), {"top_k": 1}, "Row 0 has the score nan for 1"),
    "text": (np.asarray([["a", "b"]]), {"top_k": 1}, "A candidate matrix holds numbers"),
    "zeros": (np.asarray([[1.0, 2.0], [0.0, 0.0]]), {"mass": 0.5}, "Row 1 has no candidate label"),
    "one dimension": (np.ones(3), {"top_k": 1}, "A candidate matrix has two dimensions"),
    "no rows": (np.ones((0, 3)), {"top_k": 1}, "There are no rows"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_impossible_scores_are_refused_in_one_sentence(what):
    matrix, options, start = REFUSALS[what]
    assert refusal(lambda: Candidates.from_scores(matrix, **options)).startswith(start)
