"""Candidate sets of annotators, scales and pictures, and sets without their label."""

import numpy as np
import pytest
import torch

from ltpll.errors import InputError
from ltpll.synthetic import uniform_candidates
from ltpll_research.set_origins import (
    crowd_candidates,
    grouped_candidates,
    neighbour_candidates,
    remove_labels,
)
from support.refusals import refusal

LABELS = np.random.default_rng(0).integers(0, 9, 500)
DRAW = {
    "crowd": lambda labels, seed=0: crowd_candidates(labels, 9, seed=seed),
    "neighbours": lambda labels, seed=0: neighbour_candidates(labels, 9, seed=seed),
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


def test_annotators_are_right_as_often_as_they_should_be_and_err_as_the_confusion_says():
    confusion = np.zeros((3, 3))
    confusion[0, 1], confusion[1, 2], confusion[2, 0], confusion[2, 1] = 1, 1, 1, 3
    labels = np.repeat(np.arange(3), 4000)
    dense = (
        crowd_candidates(labels, 3, seed=0, accuracies=[0.7], confusion=confusion).dense().numpy()
    )
    expected = [[1, 0.3, 0], [0, 1, 0.3], [0.3 / 4, 0.9 / 4, 1]]
    for c in range(3):
        np.testing.assert_allclose(dense[labels == c].mean(0), expected[c], atol=0.03)


def test_perfect_annotators_leave_no_doubt():
    assert crowd_candidates(LABELS, 9, seed=0, accuracies=[1, 1, 1]).max_size == 1


def test_neighbours_are_adjacent_and_extend_by_their_reach_on_average():
    labels = np.full(3000, 50)
    candidates = neighbour_candidates(labels, 101, seed=0, reach=3)
    for i in range(50):
        row = candidates.row(i)
        assert row == list(range(row[0], row[-1] + 1))
        assert row[0] >= 44
        assert row[-1] <= 56
    assert float(candidates.sizes.float().mean()) == pytest.approx(7, abs=0.2)
    edge = neighbour_candidates([0, 100], 101, seed=0)
    assert (edge.row(0)[0], edge.row(1)[-1]) == (0, 100)


def test_every_label_of_a_picture_is_the_truth_of_one_of_its_rows():
    candidates, labels = grouped_candidates(80, [4, 3, 2, 1, 1], seed=0)
    groups = candidates.groups.numpy()
    assert sorted(set(groups.tolist())) == list(range(80))
    for group in range(80):
        rows = np.flatnonzero(groups == group)
        assert (np.diff(rows) == 1).all()
        for i in rows:
            assert candidates.row(int(i)) == sorted(set(labels[rows].tolist()))


def test_classes_repeat_as_often_as_they_should():
    candidates, labels = grouped_candidates(3000, np.ones(4), seed=0, repeats=[0, 0.5, 1, 2])
    pictures = [len(set(candidates.groups.numpy()[labels == c].tolist())) for c in range(4)]
    np.testing.assert_allclose(np.bincount(labels) / pictures, [1, 1.5, 2, 3], rtol=0.08)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: crowd_candidates([0], 2, seed=0, accuracies=[1.2]),
        lambda: neighbour_candidates([0], 2, seed=0, reach=-1),
        lambda: grouped_candidates(5, [1], seed=0),
        lambda: grouped_candidates(0, [1, 1], seed=0),
    ],
)
def test_settings_out_of_range_are_refused(draw):
    with pytest.raises(InputError):
        draw()


def test_labels_are_removed_from_the_share_of_sets_and_nothing_else_changes():
    y = np.random.default_rng(0).integers(0, 5, 4000)
    sets = uniform_candidates(y, 5, 0.3, seed=0)
    found = remove_labels(sets, y, 0.25, seed=1)
    lost = ~found.contains(torch.from_numpy(y)).numpy()
    assert lost.mean() == pytest.approx(0.25, abs=0.03)
    for i in range(len(y)):
        expected = set(sets.row(i)) - ({int(y[i])} if lost[i] else set())
        assert (
            set(found.row(i)) == expected
            if expected
            else (len(found.row(i)) == 1 and found.row(i) != [int(y[i])])
        )
    assert found.row(0) == remove_labels(sets, y, 0.25, seed=1).row(0)
    assert "The share is 1.5" in refusal(lambda: remove_labels(sets, y, 1.5, seed=0))


def test_wrong_labels_in_the_place_of_the_only_one_are_all_equally_frequent():
    y = np.zeros(3000, dtype=np.int64)
    found = remove_labels(uniform_candidates(y, 4, 0.0, seed=0), y, 1.0, seed=0)
    np.testing.assert_allclose(found.rows_per_class() / 3000, [0, 1 / 3, 1 / 3, 1 / 3], atol=0.04)
