"""Candidate sets of annotators, scales, models and pictures: what must hold for each."""

import numpy as np
import pytest
import torch

from ltpll.errors import InputError
from ltpll.synthetic import crowd_votes, top_k_candidates

LABELS = np.random.default_rng(0).integers(0, 9, 500)
DRAW = {
    "top-k": lambda labels, seed=0: top_k_candidates(labels, 9, 3, seed=seed),
}


@pytest.mark.parametrize("name", DRAW)
def test_sets_contain_their_true_label_and_depend_on_the_seed_alone(name):
    first = DRAW[name](LABELS)
    assert first.contains(torch.from_numpy(LABELS)).all()
    assert torch.equal(first.labels, DRAW[name](LABELS).labels)
    other = DRAW[name](LABELS, seed=1)
    assert len(first.labels) != len(other.labels) or not torch.equal(first.labels, other.labels)


@pytest.mark.parametrize("name", DRAW)
def test_labels_out_of_range_are_refused(name):
    with pytest.raises(InputError, match="Row 1 of the true labels is 9"):
        DRAW[name]([0, 9])


def test_a_model_without_doubt_still_lists_k_labels():
    candidates = top_k_candidates(LABELS, 9, 4, seed=0, signal=100.0)
    assert candidates.sizes.tolist() == [4] * 500
    weak = top_k_candidates(LABELS, 9, 4, seed=0, signal=-100.0)
    assert weak.contains(torch.from_numpy(LABELS)).all()


@pytest.mark.parametrize(
    "draw",
    [
        lambda: crowd_votes([0], 2, seed=0, annotators=[1.2]),
        lambda: crowd_votes([0], 2, seed=0, annotators=[]),
        lambda: crowd_votes([0], 2, seed=0, confusion=np.ones((3, 3))),
        lambda: top_k_candidates([0], 2, 3, seed=0),
    ],
)
def test_settings_out_of_range_are_refused(draw):
    with pytest.raises(InputError):
        draw()


# ---- votes ---------------------------------------------------------------------------------------


def test_annotators_vote_as_often_right_and_confuse_as_their_matrices_say():
    labels = np.repeat(np.arange(3), 4000)
    matrix = np.asarray([[0.5, 0.5, 0], [0, 1, 0], [0.2, 0.2, 0.6]])
    rows, annotators, votes = crowd_votes(labels, 3, seed=0, annotators=[0.7, matrix])
    assert np.array_equal(rows, np.repeat(np.arange(len(labels)), 2))
    assert (votes[annotators == 0] == labels).mean() == pytest.approx(0.7, abs=0.02)
    for c in range(3):
        given = votes[annotators == 1][labels == c]
        np.testing.assert_allclose(
            np.bincount(given, minlength=3) / len(given), matrix[c], atol=0.03
        )


def test_each_example_may_have_a_few_of_the_annotators_and_mislead_them_together():
    rows, annotators, votes = crowd_votes(LABELS, 9, seed=0, annotators=[1.0] * 20, per_row=3)
    assert np.bincount(rows).tolist() == [3] * len(LABELS)
    assert len(np.unique(rows * 20 + annotators)) == len(rows)
    assert np.array_equal(votes, LABELS[rows])
    rows, _, votes = crowd_votes(LABELS, 9, seed=0, annotators=[1.0] * 20, misleading=0.5)
    wrong = votes != LABELS[rows]
    assert wrong.mean() == pytest.approx(0.3, abs=0.03)
    for row in np.unique(rows[wrong]):
        assert len(np.unique(votes[wrong & (rows == row)])) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"annotators": []}, "number of annotators is 0"),
        ({"annotators": [1.2]}, "accuracy of an annotator is 1.2"),
        ({"annotators": [np.ones((2, 2))]}, r"A matrix of shape \(2, 2\)"),
        ({"per_row": 4}, "per_row is 4"),
        ({"misleading": 2.0}, "misleading is 2.0"),
    ],
)
def test_impossible_crowds_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        crowd_votes([0, 1, 2], 3, seed=0, **options)
