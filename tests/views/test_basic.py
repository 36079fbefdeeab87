"""Views change each example independently, exactly as documented, and do not modify their input."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from ltpll.errors import InputError
from ltpll.views import Cutout, Jitter, Shift, Views


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n, channels=2, height=5, width=6, seed=1):
    """Images whose pixels are all different and never zero."""
    count = n * channels * height * width
    order = torch.randperm(count, generator=generator(seed)) + 1.0
    return order.view(n, channels, height, width) - count - 2


POLICIES = {
    "shift": Shift(2),
    "cutout": Cutout(3),
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


# ---- shift ---------------------------------------------------------------------------------------


def moved(image, down, right):
    """One image moved, pixel by pixel; what comes from outside is the channel's smallest value."""
    channels, height, width = image.shape
    out = np.zeros_like(image)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                inside = 0 <= i - down < height and 0 <= j - right < width
                out[c, i, j] = image[c, i - down, j - right] if inside else image[c].min()
    return out


@pytest.mark.parametrize("pixels", [0, 1, 2, 4])
def test_shift_moves_each_image_by_one_of_the_possible_offsets_and_reaches_them_all(pixels):
    import scipy.stats  # here, since it takes a second

    n = 60 * (2 * pixels + 1) ** 2 // (3 if pixels == 4 else 1)
    image = images(1)[0].numpy()
    offsets = [
        (down, right) for down in range(-pixels, pixels + 1) for right in range(-pixels, pixels + 1)
    ]
    table = {moved(image, down, right).tobytes(): (down, right) for down, right in offsets}
    assert len(table) == len(offsets)
    views = Shift(pixels)(torch.from_numpy(image).expand(n, -1, -1, -1), generator(pixels)).numpy()
    seen = Counter(
        table[view.tobytes()] for view in views
    )  # an impossible view would raise a KeyError
    assert set(seen) == set(offsets)
    if pixels:  # both directions are uniform and independent
        assert scipy.stats.chisquare([seen[offset] for offset in offsets]).pvalue > 1e-3


def test_shift_moves_each_image_independently():
    x = images(40, channels=3)
    views = Shift(1)(x, generator(8)).numpy()
    offsets = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    for image, view in zip(x.numpy(), views, strict=True):
        assert sum(np.array_equal(view, moved(image, *offset)) for offset in offsets) == 1


def test_a_shift_beyond_the_image_leaves_its_background():
    image = images(1, channels=1, height=2, width=2)
    views = Shift(5)(image.expand(200, -1, -1, -1), generator())
    allowed = {
        moved(image[0].numpy(), down, right).tobytes()
        for down in range(-5, 6)
        for right in range(-5, 6)
    }
    assert {view.numpy().tobytes() for view in views} <= allowed
    assert bool((views == image.min()).flatten(1).all(1).any())


# ---- cutout --------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [0, 1, 3, 5])
def test_cutout_sets_one_square_to_zero_in_every_channel_and_nothing_else(side):
    x = images(200, channels=2, height=5, width=7)
    views = Cutout(side)(x, generator(side))
    corners = Counter()
    for image, view in zip(x.numpy(), views.numpy(), strict=True):
        hole = view == 0
        assert hole.sum() == 2 * side * side
        assert np.array_equal(view[~hole], image[~hole])
        assert np.array_equal(hole[0], hole[1])
        if side:
            rows, columns = np.nonzero(hole[0])
            assert (np.ptp(rows) + 1, np.ptp(columns) + 1) == (side, side)
            corners[int(rows.min()), int(columns.min())] += 1
    if side:
        assert {top for top, _ in corners} == set(range(5 - side + 1))
        assert {left for _, left in corners} == set(range(7 - side + 1))


def test_a_hole_larger_than_the_image_is_refused_with_its_side():
    with pytest.raises(InputError, match="9") as caught:
        Cutout(9)(images(2, height=8, width=12), generator())
    assert "\n" not in str(caught.value)


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


def test_draw_equals_applying_the_policies_by_hand_with_the_same_generator():
    x = images(12)
    before = x.clone()
    views = Views(weak=(Shift(1),), strong=(Shift(2), Cutout(2), Jitter(0.3, 0.2)))
    drawn = views.draw(x, ("weak", "strong", "strong"), generator(7))
    source = generator(7)
    expected = [Shift(1)(x, source)]
    for _ in range(2):
        expected.append(Jitter(0.3, 0.2)(Cutout(2)(Shift(2)(x, source), source), source))  # noqa: PERF401
    assert all(torch.equal(a, b) for a, b in zip(drawn, expected, strict=True))
    assert not torch.equal(drawn[1], drawn[2])
    assert torch.equal(x, before)


def test_two_weak_views_of_a_batch_differ():
    first, second = Views(weak=(Jitter(0.1),)).draw(images(4), ("weak", "weak"), generator())
    assert not torch.equal(first, second)
