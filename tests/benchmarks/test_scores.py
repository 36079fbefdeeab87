"""The benchmark of scores never lets a weak model score the rows that it was trained on."""

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.scores import MODELS, problem, weak_scores


def test_weak_models_score_other_rows_than_their_own():
    everything = {row.tobytes() for row in load_digits().data.astype(np.float32)}
    for how in MODELS.values():
        (x, y), (x_scorer, y_scorer) = problem(None, None, "digits", 0, **how)
        assert not {row.tobytes() for row in x} & {row.tobytes() for row in x_scorer}
        assert {row.tobytes() for row in x_scorer} <= everything
        counts = np.bincount(y)
        assert counts[0] > 10 * counts[-1] > 0  # long-tailed
        scores = weak_scores(x_scorer, y_scorer, x[:5], 10, 0, **how)
        np.testing.assert_allclose(scores.sum(1), 1, rtol=1e-5)
    assert np.bincount(y_scorer)[0] < np.bincount(y_scorer)[-1]  # the opposite class prior
