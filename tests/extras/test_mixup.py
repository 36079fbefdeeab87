import pytest
import torch

from ltpll.blocks.selection import mixup_weights
from ltpll.errors import InputError
from ltpll.extras import EXTRAS
from ltpll.interfaces import Batch
from ltpll.methods import METHODS
from support.problems import problem, step_of


def batch_of(method, seed=0):
    p = problem(method, seed=seed)
    g = torch.Generator().manual_seed(seed)
    views = tuple(torch.randn(len(p.targets), 3, generator=g) for _ in range(method.n_views))
    return Batch(views, p.targets, p.candidates), p


def test_inputs_and_targets_are_blended_with_one_share_and_one_partner_for_all_views():
    method = METHODS["corr"]()
    batch, _ = batch_of(method)
    own = EXTRAS["mixup"]().inputs(batch, torch.Generator().manual_seed(3))
    # The same draws, taken from the same generator state, give the truth for each example in a
    # plain loop.
    g = torch.Generator().manual_seed(3)
    share = mixup_weights(4, g)
    partner = torch.randperm(len(batch.targets), generator=g).tolist()
    for i, j in enumerate(partner):
        for view, mixed in zip(batch.views, own.views, strict=True):
            torch.testing.assert_close(mixed[i], share * view[i] + (1 - share) * view[j])
        torch.testing.assert_close(
            own.targets[i], share * batch.targets[i] + (1 - share) * batch.targets[j]
        )
        assert own.candidates[i].tolist() == [
            bool(a or b) for a, b in zip(batch.candidates[i], batch.candidates[j], strict=True)
        ]
    torch.testing.assert_close(own.targets.sum(1), torch.ones(len(own.targets)))


@pytest.mark.parametrize("name", METHODS)
def test_the_term_is_the_methods_own_loss_on_the_blend(name):
    method = METHODS[name]()
    batch, p = batch_of(method)
    own = EXTRAS["mixup"]().inputs(batch, torch.Generator().manual_seed(3))
    said = problem(method, seed=9).outputs
    term = EXTRAS["mixup"](weight=0.5).loss(method, step_of(p), own, said)
    torch.testing.assert_close(term, 0.5 * method.loss(said, own.targets, own.candidates))


def test_nothing_is_mixed_before_the_first_epoch_of_refinement():
    assert [EXTRAS["mixup"]().active(epoch) for epoch in range(3)] == [False, True, True]
    assert EXTRAS["mixup"](first_epoch=0).active(0)


@pytest.mark.parametrize("alpha", [0, -1, 0.5])
def test_an_alpha_that_is_not_a_positive_integer_is_refused(alpha):
    with pytest.raises(InputError, match="alpha"):
        EXTRAS["mixup"](alpha=alpha)
