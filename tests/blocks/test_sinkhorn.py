import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltpll.blocks.sinkhorn import sinkhorn


def candidates_and_scores(seed, rows=60, classes=6, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    allowed = torch.rand(rows, classes, generator=g) < 0.5
    allowed[torch.arange(rows), torch.randint(classes, (rows,), generator=g)] = True
    scores = scale * torch.randn(rows, classes, generator=g)
    prior = torch.softmax(torch.randn(classes, generator=g) / 2, dim=0)
    return scores.masked_fill(~allowed, -torch.inf), prior


@pytest.mark.parametrize("seed", range(10))
def test_rows_sum_to_one_and_classes_get_their_shares(seed):
    scores, prior = candidates_and_scores(seed)
    labels = sinkhorn(scores, prior, iterations=1000)
    torch.testing.assert_close(labels.sum(1), torch.ones(len(labels)))
    torch.testing.assert_close(labels.mean(0), prior, atol=1e-4, rtol=0)
    assert not labels[scores == -torch.inf].any()


@pytest.mark.parametrize("seed", range(5))
def test_it_agrees_with_pot(seed):
    g = np.random.default_rng(seed)
    scores, prior = g.normal(size=(30, 5)), g.dirichlet(np.ones(5) * 3)
    import ot  # here, since it takes a second and only this test needs it

    theirs = 30 * ot.sinkhorn(
        np.full(30, 1 / 30), prior, -scores, reg=1.0, stopThr=1e-12, numItermax=10_000
    )
    ours = sinkhorn(
        torch.from_numpy(scores), torch.from_numpy(prior).float(), iterations=10_000, tolerance=1e-7
    )
    np.testing.assert_allclose(ours.numpy(), theirs, atol=2e-5)


def test_a_weighted_row_equals_that_many_copies():
    scores, prior = candidates_and_scores(0, rows=20)
    weights = torch.arange(20) % 3
    repeated = sinkhorn(scores.repeat_interleave(weights, dim=0), prior, iterations=1000)
    weighed = sinkhorn(scores, prior, weights.float(), iterations=1000)
    torch.testing.assert_close(
        weighed.repeat_interleave(weights, dim=0), repeated, atol=1e-4, rtol=0
    )
    torch.testing.assert_close(weighed.sum(1), torch.ones(20))


def test_a_uniform_prior_on_symmetric_scores_gives_the_symmetric_answer():
    n, a, b = 4, math.exp(2.0), 1.0
    scores = 2.0 * torch.eye(n).repeat(3, 1)
    expected = (
        torch.full((n, n), b / (a + (n - 1) * b)).fill_diagonal_(a / (a + (n - 1) * b)).repeat(3, 1)
    )
    torch.testing.assert_close(sinkhorn(scores, torch.full((n,), 1 / n)), expected)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.lists(
            st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=3, max_size=3
        ),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda prior: sum(prior) > 1e-3),
    st.integers(0, 2),
)
def test_finite_scores_never_give_anything_but_distributions(rows, prior, ruled_out):
    scores = torch.tensor(rows)
    scores[::2, ruled_out] = -torch.inf
    labels = sinkhorn(scores, torch.tensor(prior) / sum(prior))
    assert torch.isfinite(labels).all()
    torch.testing.assert_close(labels.sum(1), torch.ones(len(rows)), atol=1e-5, rtol=0)
    assert not labels[::2, ruled_out].any()


def test_a_class_that_no_row_may_have_gets_nothing_and_the_others_their_shares_of_the_rest():
    scores, _ = candidates_and_scores(1)
    scores[:, 2] = -torch.inf
    scores[:, 0] = scores[:, 0].clamp_min(-3)
    prior = torch.full((6,), 1 / 6)
    labels = sinkhorn(scores, prior, iterations=2000)
    torch.testing.assert_close(
        labels.mean(0), torch.tensor([0.2, 0.2, 0.0, 0.2, 0.2, 0.2]), atol=1e-4, rtol=0
    )


def test_it_stops_when_the_shares_are_right_and_not_before(monkeypatch):
    rounds = []
    real = torch.logsumexp
    monkeypatch.setattr(
        torch, "logsumexp", lambda *args, **kwargs: rounds.append(1) or real(*args, **kwargs)
    )
    scores, prior = candidates_and_scores(0)
    taken = []
    for tolerance in (1e-1, 1e-3, 1e-5):
        rounds.clear()
        labels = sinkhorn(scores, prior, iterations=500, tolerance=tolerance)
        assert float((labels.mean(0) - prior).abs().max()) <= tolerance
        taken.append(len(rounds))
    assert taken == sorted(taken)
    assert taken[0] < taken[-1] < 500
