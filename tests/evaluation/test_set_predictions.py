"""Set predictions: likeliest labels and probabilities of sets, against a loop."""

import numpy as np
import torch

from ltpll.candidates import Candidates
from ltpll.evaluation import set_predictions as module
from ltpll.evaluation.set_predictions import TEMPERATURES, SetPredictions, predict_sets


def test_predictions_are_those_of_a_plain_loop_however_many_rows_come_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    n, c = 37, 5
    sets = rng.random((n, c)) < 0.5
    sets[:, 0] |= ~sets.any(1)
    sets[3], sets[4] = True, [False, True, False, False, False]
    shares = rng.dirichlet(np.ones(c), n).astype(np.float32)
    x = np.arange(n)[:, None]
    monkeypatch.setattr(module, "PROBABILITIES_AT_ONCE", 30)
    seen = []

    def probabilities(part):
        seen.append(len(part))
        return shares[part[:, 0]]

    found = predict_sets(probabilities, x, Candidates.of(sets))
    assert max(seen) <= 8
    assert sum(seen) == n
    for i in range(n):
        members, others = (
            [k for k in range(c) if sets[i, k] == inside] for inside in (True, False)
        )
        ranked = sorted(members, key=lambda k: -shares[i, k])
        assert found.inside[i] == ranked[0]
        assert found.outside[i] == (max(others, key=lambda k: shares[i, k]) if others else -1)
        assert found.supported[i] == (shares[i].argmax() in members)
        assert found.candidates[found.offsets[i] : found.offsets[i + 1]].tolist() == members
        assert (
            found.candidate_probability[found.offsets[i] : found.offsets[i + 1]].tolist()
            == shares[i, members].tolist()
        )
        for t, temperature in enumerate(TEMPERATURES):
            powers = shares[i].astype(np.float64) ** (1 / temperature)
            np.testing.assert_allclose(
                found.set_probability[i, t], powers[members].sum() / powers.sum(), rtol=1e-4
            )


def test_labels_share_the_probability_of_their_set_with_the_other_candidates_by_weight():
    rng = np.random.default_rng(0)
    sets = rng.random((40, 6)) < 0.5
    sets[:, 0] |= ~sets.any(1)
    shares = rng.dirichlet(np.ones(6), 40).astype(np.float32)
    votes = rng.uniform(0.1, 1, (40, 6))
    candidates = Candidates.of(sets).with_weights(votes[sets])
    found = SetPredictions.of(torch.from_numpy(shares), candidates)
    inside = found.most_probable(found.candidate_shares(2.0))
    for i, one in enumerate(sets):
        powers = np.where(one, votes[i] * np.sqrt(shares[i].astype(np.float64)), 0)
        first, *others = sorted(np.flatnonzero(one), key=lambda k: -powers[k])
        best = others[0] if others else first
        assert (inside.label[i], inside.runner_up[i]) == (first, best)
        np.testing.assert_allclose(inside.share[i], powers[first] / powers.sum(), rtol=1e-5)
        np.testing.assert_allclose(
            inside.runner_up_share[i], powers[best] / powers.sum() if others else 0, rtol=1e-5
        )


def test_rows_are_put_and_selected_in_any_order_and_stored_as_tensors():
    rng = np.random.default_rng(0)
    sets = Candidates.of([[0], [0, 1, 2], [2], [0, 2], [1, 2]])
    shares = torch.from_numpy(rng.dirichlet(np.ones(3), 5).astype(np.float32))
    whole, rows = SetPredictions.of(shares, sets), np.asarray([3, 1, 4])
    part = whole.select(rows)
    expected = SetPredictions.of(shares[torch.from_numpy(rows)], sets.select(rows))
    for name, values in expected.tensors().items():
        assert torch.equal(part.tensors()[name], values), name
    empty = SetPredictions.empty(sets)
    empty.store_rows(rows, SetPredictions.from_tensors(part.tensors()))
    empty.store_rows(np.asarray([0, 2]), whole.select(np.asarray([0, 2])))
    for name, values in whole.tensors().items():
        assert torch.equal(empty.tensors()[name], values), name


def test_probabilities_of_all_classes_are_kept_if_they_are_few_and_come_back_calibrated(
    monkeypatch,
):
    rng = np.random.default_rng(1)
    sets, shares = (
        Candidates.of(rng.random((20, 4)) < 2),
        rng.dirichlet(np.full(4, 0.2), 20).astype(np.float32),
    )
    found = SetPredictions.of(torch.from_numpy(shares), sets)
    np.testing.assert_allclose(found.probabilities().astype(np.float32), shares, atol=2e-3)
    powers = np.maximum(shares, 1e-38).astype(np.float64) ** (1 / 3)
    np.testing.assert_allclose(
        found.probabilities(3.0), powers / powers.sum(1, keepdims=True), atol=2e-3
    )
    again = SetPredictions.from_tensors(found.tensors())
    assert (again.select(np.array([3, 1])).log_probability == found.log_probability[[3, 1]]).all()
    monkeypatch.setattr(module, "PROBABILITIES_STORED", 79)
    whole = SetPredictions.empty(sets)
    whole.store_rows(np.arange(20), found)
    assert whole.probabilities() is None
    assert SetPredictions.from_tensors(whole.tensors()).log_probability is None
