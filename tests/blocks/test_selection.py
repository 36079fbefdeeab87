import numpy as np
import pytest
import torch

from ltpll.blocks.selection import (
    fill_with_chosen,
    lowest_losses_per_class,
    masked_mean,
    mixup_partners,
    mixup_weights,
)


@pytest.mark.parametrize("seed", range(5))
def test_each_class_gives_its_quota_of_lowest_losses(seed):
    g = torch.Generator().manual_seed(seed)
    losses = torch.randint(0, 5, (40,), generator=g).float()  # with ties
    labels = torch.randint(0, 4, (40,), generator=g)
    quotas = torch.tensor([0, 1, 5, 100])
    expected = [False] * 40
    for k in range(4):
        members = sorted(
            (i for i in range(40) if labels[i] == k), key=lambda i: (float(losses[i]), i)
        )
        for i in members[: int(quotas[k])]:
            expected[i] = True
    assert lowest_losses_per_class(losses, labels, quotas).tolist() == expected


@pytest.mark.parametrize("n_chosen", [0, 1, 7, 20])
def test_partners_are_a_permutation_of_the_chosen_and_everyone_else_is_alone(n_chosen):
    g = torch.Generator().manual_seed(n_chosen)
    chosen = torch.zeros(20, dtype=torch.bool)
    chosen[torch.randperm(20, generator=g)[:n_chosen]] = True
    partner = mixup_partners(chosen, g)
    assert sorted(partner[chosen].tolist()) == chosen.nonzero().flatten().tolist()
    assert partner[~chosen].tolist() == (~chosen).nonzero().flatten().tolist()


def test_every_chosen_example_is_as_likely_a_partner_as_any_other():
    from scipy import stats  # here, since it takes a second to import

    g = torch.Generator().manual_seed(0)
    chosen = torch.tensor([True, False, True, True, False, True])
    drawn = np.asarray([mixup_partners(chosen, g).tolist() for _ in range(4000)])
    counts = np.stack([np.bincount(drawn[:, i], minlength=6) for i in (0, 2, 3, 5)])
    assert not counts[:, [1, 4]].any()
    assert stats.chisquare(counts[:, [0, 2, 3, 5]].ravel()).pvalue > 1e-3


def test_the_share_follows_a_folded_beta_distribution():
    from scipy import stats  # here, since it takes a second to import

    g = torch.Generator().manual_seed(0)
    draws = np.asarray([float(mixup_weights(4, g)) for _ in range(4000)])
    folded = lambda x: stats.beta(4, 4).cdf(x) - stats.beta(4, 4).cdf(1 - x)  # noqa: E731
    assert draws.min() >= 0.5
    assert stats.kstest(draws, folded).pvalue > 1e-3


def test_a_mean_over_chosen_values_ignores_the_others_even_if_they_are_infinite():
    values = torch.tensor([1.0, torch.inf, 3.0], requires_grad=True)
    mean = masked_mean(values, torch.tensor([True, False, True]))
    mean.backward()
    assert float(mean.detach()) == 2.0
    assert values.grad.tolist() == [0.5, 0.0, 0.5]
    assert float(masked_mean(values.detach(), torch.zeros(3, dtype=torch.bool))) == 0.0


@pytest.mark.parametrize("n_chosen", [1, 6, 7, 18])
def test_chosen_rows_fill_the_places_of_the_others_in_turn(n_chosen):
    g = torch.Generator().manual_seed(n_chosen)
    chosen = torch.zeros(18, dtype=torch.bool)
    chosen[torch.randperm(18, generator=g)[:n_chosen]] = True
    filled = fill_with_chosen(torch.arange(18.0), chosen)
    assert torch.equal(filled[chosen], torch.arange(18.0)[chosen])
    counts = filled.long().bincount(minlength=18)
    assert not counts[~chosen].any()
    assert counts[chosen].max() - counts[chosen].min() == (18 % n_chosen > 0)


def test_batch_norm_of_a_filled_batch_is_that_of_the_chosen_rows_if_they_divide_it():
    g = torch.Generator().manual_seed(0)
    values = torch.randn(18, 5, generator=g, dtype=torch.float64, requires_grad=True)
    chosen = torch.arange(18) % 3 == 1
    layer = torch.nn.BatchNorm1d(5, affine=False).double()
    filled, alone = layer(fill_with_chosen(values, chosen))[chosen], layer(values[chosen])
    torch.testing.assert_close(filled, alone)
    gradients = [torch.autograd.grad((one**3).sum(), values)[0] for one in (filled, alone)]
    torch.testing.assert_close(*gradients)


def test_without_chosen_rows_all_stay():
    values = torch.arange(4.0)
    assert torch.equal(fill_with_chosen(values, torch.zeros(4, dtype=torch.bool)), values)
