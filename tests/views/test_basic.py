"""Views change each example independently, exactly as documented, and do not modify their input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ltpll.views import Jitter, Views
from support.image_batches import generator, images

POLICIES = {
    "jitter": Jitter(0.5),
    "dropout": Jitter(0.1, 0.5),
    "no noise": Jitter(0.0, 0.5),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_the_same_state_of_the_generator_gives_the_same_view_and_the_next_state_another(policy):
    x = images(16)
    source = generator(3)
    first, second = policy(x, source), policy(x, source)
    assert torch.equal(first, policy(x, generator(3)))
    assert not torch.equal(first, second)
    assert not torch.equal(first, policy(x, generator(4)))


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_equal_examples_of_a_batch_get_different_draws(policy):
    x = images(1).expand(64, -1, -1, -1)
    views = policy(x, generator())
    assert len({view.numpy().tobytes() for view in views}) > 8


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_a_view_has_the_shape_and_type_of_its_input_and_does_not_change_it(policy):
    x = images(8)
    before = x.clone()
    state = torch.get_rng_state()
    view = policy(x, generator())
    assert torch.equal(x, before)
    assert view.shape == x.shape
    assert view.dtype == x.dtype
    view.zero_()
    assert torch.equal(x, before)
    assert torch.equal(
        torch.get_rng_state(), state
    )  # the generator is the only source of randomness


# ---- jitter --------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.05, 1.0, 3.0])
@pytest.mark.parametrize("shape", [(5000, 6), (300, 1, 10, 10)])
def test_jitter_adds_gaussian_noise_of_the_given_size(noise, shape):
    import scipy.stats  # here, since it takes a second

    x = torch.full(shape, 2.0)
    added = (Jitter(noise)(x, generator(1)) - x).double().flatten().numpy()
    n = len(added)
    assert abs(added.mean()) < 4 * noise / np.sqrt(n)
    assert abs(added.var() / noise**2 - 1) < 4 * np.sqrt(2 / n)
    assert scipy.stats.kstest(added / noise, "norm").pvalue > 1e-3


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_jitter_drops_the_given_share_of_values_and_keeps_the_others(dropout):
    x = torch.full((4000, 5), 7.0)
    view = Jitter(0.0, dropout)(x, generator(2))
    dropped = view == 0
    n = x.numel()
    assert abs(int(dropped.sum()) - n * dropout) < 4 * np.sqrt(n * dropout * (1 - dropout))
    assert bool((view[~dropped] == 7.0).all())
    per_column = dropped.double().mean(0).numpy()
    assert bool(
        (np.abs(per_column - dropout) < 4.5 * np.sqrt(dropout * (1 - dropout) / len(x))).all()
    )


def test_jitter_without_noise_and_dropout_is_the_identity():
    x = torch.randn(10, 4, generator=generator())
    assert torch.equal(Jitter(0.0)(x, generator()), x)


def test_noise_and_dropout_are_independent():
    x = torch.full((20_000, 1), 50.0)
    view = Jitter(1.0, 0.5)(x, generator(3))
    kept = view[view != 0].double().numpy() - 50
    assert abs(kept.mean()) < 4 / np.sqrt(len(kept))
    assert abs(kept.var() - 1) < 4 * np.sqrt(2 / len(kept))


def test_jitter_keeps_double_precision():
    assert (
        Jitter(0.1, 0.5)(torch.ones(3, 2, dtype=torch.float64), generator()).dtype == torch.float64
    )


# ---- policies together ---------------------------------------------------------------------------


def add(value):
    return lambda x, _generator: x + value


def times(value):
    return lambda x, _generator: x * value


@pytest.mark.parametrize(
    "kinds",
    [
        (),
        ("weak",),
        ("strong",),
        ("weak", "strong"),
        ("strong", "weak", "strong"),
        ("weak", "weak"),
    ],
)
def test_draw_gives_one_view_for_each_kind_in_the_order_asked_for_with_steps_in_turn(kinds):
    views = Views(weak=(add(1), times(10)), strong=(times(10), add(1)))
    x = torch.tensor([[1.0], [2.0]])
    drawn = views.draw(x, kinds, generator())
    assert isinstance(drawn, tuple)
    expected = {"weak": [[20.0], [30.0]], "strong": [[11.0], [21.0]]}
    assert [view.tolist() for view in drawn] == [expected[kind] for kind in kinds]
    assert x.tolist() == [[1.0], [2.0]]


def test_without_policies_a_view_is_the_batch_itself():
    x = images(3)
    weak, strong = Views().draw(x, ("weak", "strong"), generator())
    assert torch.equal(weak, x)
    assert torch.equal(strong, x)


def test_two_weak_views_of_a_batch_differ():
    first, second = Views(weak=(Jitter(0.1),)).draw(images(4), ("weak", "weak"), generator())
    assert not torch.equal(first, second)
