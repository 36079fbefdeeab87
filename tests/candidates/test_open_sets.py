"""Open sets: guests, masks and weights, against sets of Python and the formula of the weights."""

import math

import numpy as np
import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.candidates.open_sets import OpenSets

C = 5
SETS = [{0, 1}, {2}, {0, 1, 2, 3, 4}, {1, 3, 4}, {4}]


def opened(shares=0.2, weights=None):
    sets = OpenSets(
        Candidates.of([sorted(one) for one in SETS], n_classes=C).with_weights(weights), shares
    )
    logits = torch.randn(len(SETS), C, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([0, 1, 2, 4])  # row 3 stays closed
    sets.add_outside_labels(index, logits[index])
    guests = {
        i: max(set(range(C)) - SETS[i], key=lambda c, i=i: float(logits[i, c])) for i in (0, 1, 4)
    }
    return sets, guests


def test_the_guest_is_the_likeliest_class_outside_the_set_and_sets_of_all_classes_have_none():
    sets, guests = opened()
    assert sets.outside_labels.tolist() == [guests.get(i, -1) for i in range(len(SETS))]


def test_masks_hold_the_candidates_and_the_guest():
    sets, guests = opened()
    found = sets[torch.tensor([4, 3, 2, 1, 0, -1])]
    for i, mask in zip([4, 3, 2, 1, 0, 4], found, strict=True):
        assert set(torch.nonzero(mask).flatten().tolist()) == SETS[i] | (
            {guests[i]} if i in guests else set()
        )


def test_the_sets_themselves_do_not_change():
    sets, _ = opened()
    assert [set(sets.row(i)) for i in range(len(SETS))] == SETS
    assert sets.sizes.tolist() == [len(one) for one in SETS]
    assert sets.rows_per_class().tolist() == [sum(c in one for one in SETS) for c in range(C)]


@pytest.mark.parametrize("shares", [0.2, [0, 0.4, 0.1, 0.3, 0.2, 0.5]])
def test_a_guest_has_the_weight_of_a_class_outside_a_random_set_of_this_size(shares):
    sets, guests = opened(shares)
    sets.outside_strength.fill_(0.5)
    found = sets.log_weights(torch.arange(len(SETS)))
    for i, one in enumerate(SETS):
        k = len(one)
        share = shares if isinstance(shares, float) else shares[k]
        for c in range(C):
            expected = (
                math.log(0.5 * share / (1 - share) * k / (C - k)) if guests.get(i) == c else 0
            )
            assert float(found[i, c]) == pytest.approx(expected, abs=1e-6)


def test_the_weights_of_candidates_are_kept():
    weights = np.arange(1, 1 + sum(map(len, SETS)), dtype=float)
    sets, guests = opened(weights=weights)
    plain = (
        Candidates.of([sorted(one) for one in SETS], n_classes=C)
        .with_weights(weights)
        .log_weights(torch.arange(len(SETS)))
    )
    found = sets.log_weights(torch.arange(len(SETS)))
    for i, one in enumerate(SETS):
        for c in one:
            assert found[i, c] == plain[i, c]
        if i in guests:
            assert found[i, guests[i]] != 0


def test_a_share_of_zero_gives_a_guest_next_to_no_weight():
    sets, guests = opened([0.0] * (C + 1))
    found = sets.log_weights(torch.arange(len(SETS)))
    assert all(-30 < float(found[i, guest]) < -20 for i, guest in guests.items())


def test_a_class_that_is_predicted_more_often_than_sets_allow_is_held_back():
    most = np.asarray([0.3, 0.3, 0.3, 0.3, 0.3])
    sets = OpenSets(Candidates.of([[0]] * 4, n_classes=C), 0.2)
    sets.limit_outside_shares(most)
    logits = torch.tensor([[0.0, 4.0, 3.0, 0.0, 0.0]] * 4)
    index = torch.arange(4)
    sets.add_outside_labels(index, logits)
    p = [math.exp(value) / sum(map(math.exp, [0, 4, 3, 0, 0])) for value in (0, 4, 3, 0, 0)]
    held_back = [2 * min(0.0, math.log(0.3 / value)) for value in p]
    assert held_back[1] < 0 == held_back[2]
    assert sets.outside_labels.tolist() == [2] * 4  # 4 + 2 log(0.3 / 0.70) < 3
    odds = 0.2 / 0.8 * 1 / (C - 1)
    assert sets.log_weights(index)[0, 2].item() == pytest.approx(math.log(odds), abs=1e-5)
    sets.add_outside_labels(
        index, logits + torch.tensor([0.0, 3.0, 0.0, 0.0, 0.0])
    )  # class 1 is likelier by far, and the guest all the same
    assert sets.outside_labels.tolist() == [1] * 4
    p = math.exp(7) / (math.exp(7) + math.exp(3) + 3)
    assert sets.log_weights(index)[0, 1].item() == pytest.approx(
        math.log(odds) + 2 * math.log(0.3 / p), abs=1e-4
    )


def test_without_a_limit_no_class_is_held_back():
    sets = OpenSets(Candidates.of([[0]] * 2, n_classes=C), 0.2)
    sets.add_outside_labels(torch.arange(2), torch.tensor([[0.0, 9.0, 3.0, 0.0, 0.0]] * 2))
    assert sets.outside_labels.tolist() == [1, 1]
    assert sets.log_weights(torch.arange(2))[0, 1].item() == pytest.approx(
        math.log(0.2 / 0.8 / (C - 1)), abs=1e-5
    )
