"""Set predictions: likeliest labels inside and outside a set, against a loop."""

import numpy as np

from ltpll.candidates import Candidates
from ltpll.cleaning import set_predictions as module
from ltpll.cleaning.set_predictions import SetPredictions, predict_sets


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
        inside = sorted((-shares[i, k], k) for k in range(c) if sets[i, k])
        outside = sorted((-shares[i, k], k) for k in range(c) if not sets[i, k])
        assert found.inside[i] == inside[0][1]
        assert found.inside_probability[i] == -inside[0][0]
        assert found.second[i] == (inside[1] if len(inside) > 1 else inside[0])[1]
        assert found.second_probability[i] == (-inside[1][0] if len(inside) > 1 else 0)
        assert found.outside[i] == (outside[0][1] if outside else -1)
        assert found.outside_probability[i] == (-outside[0][0] if outside else 0)
        np.testing.assert_allclose(found.of_set[i], shares[i][sets[i]].sum(), rtol=1e-6)


def test_predictions_are_put_row_by_row_and_stored_as_tensors():
    whole, part = SetPredictions.empty(4), SetPredictions.empty(2)
    part.inside[:], part.of_set[:] = [7, 8], [0.25, 0.5]
    whole.put(np.asarray([3, 1]), SetPredictions.from_tensors(part.tensors()))
    assert whole.inside.tolist() == [0, 8, 0, 7]
    assert whole.of_set.tolist() == [0, 0.5, 0, 0.25]
