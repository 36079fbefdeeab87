"""Each operation on a batch gives what Pillow gives for each image alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from ltpll.views.colours import (
    BRIGHTNESS,
    CONTRAST,
    HUE,
    NOTHING,
    SATURATION,
    Colours,
    random_colours,
    recolour,
    shift_hue,
)
from ltpll.views.randaugment import OPERATIONS, Operations, operate, random_operations

SIZES = [(32, 32), (128, 128), (9, 14)]
FACTORS = (0.0, 0.05, 0.3, 0.5, 0.613, 0.95, 1.0, 1.2, 1.4, 1.9)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(height=32, width=32, seed=0):
    """Noise, smooth gradients with noise, constant, two-valued, extreme and narrow images, (n, 3,
    height, width) uint8."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (4, 3, height, width))
    rows, columns = np.linspace(0, 1, height)[:, None], np.linspace(0, 1, width)
    slopes = rng.uniform(-200, 200, (2, 6, 3, 1, 1))
    smooth = (
        rng.uniform(20, 235, (6, 3, 1, 1))
        + slopes[0] * rows
        + slopes[1] * columns
        + rng.normal(0, 6, (6, 3, height, width))
    )
    constant = np.broadcast_to(
        np.array([0, 1, 77, 254, 255])[:, None, None, None], (5, 3, height, width)
    )
    mixed = np.broadcast_to(np.array([12, 200, 99])[:, None, None], (1, 3, height, width))
    pairs = np.where(
        rng.random((4, 3, height, width)) < 0.3,
        *np.array([[0, 10, 254, 100], [255, 11, 255, 180]])[:, :, None, None, None],
    )
    narrow = rng.integers(100, 109, (2, 3, height, width))
    rare = np.full((1, 3, height, width), 40)
    rare[0, :, 0, 0] = 41  # one odd pixel: equalize has a step of zero
    parts = [
        part.clip(0, 255).astype(np.uint8)
        for part in (noise, smooth, constant, mixed, pairs, narrow, rare)
    ]
    return torch.from_numpy(np.concatenate(parts))


def to_pillow(image):
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())


def by_pillow(x, function):
    """A function of one Pillow image on each image of a batch."""
    return torch.stack(
        [torch.from_numpy(np.array(function(to_pillow(image)))).permute(2, 0, 1) for image in x]
    )


def operated(x, name, magnitude=0.0):
    which = torch.full((1, len(x)), OPERATIONS.index(name))
    return operate(x, Operations(which, torch.full((1, len(x)), float(magnitude))))


def largest_difference(a, b):
    assert a.dtype == b.dtype == torch.uint8
    assert a.shape == b.shape
    return int((a.int() - b.int()).abs().max())


def affine(*matrix):
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, matrix)


ENHANCEMENTS = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "colour": ImageEnhance.Color,
    "sharpness": ImageEnhance.Sharpness,
}


# ---- tables and blends: exact --------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ENHANCEMENTS)
def test_enhancements_are_those_of_pillow_exactly(name, size):
    x = pictures(*size)
    for factor in FACTORS:
        theirs = by_pillow(
            x, lambda image, factor=factor: ENHANCEMENTS[name](image).enhance(factor)
        )
        assert largest_difference(operated(x, name, factor), theirs) == 0, factor


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ["autocontrast", "equalize"])
def test_autocontrast_and_equalize_are_those_of_pillow_exactly(name, size):
    for seed in range(5):
        x = pictures(*size, seed=seed)
        assert largest_difference(operated(x, name), by_pillow(x, getattr(ImageOps, name))) == 0


def test_autocontrast_is_exact_for_every_pair_of_extremes():
    low, high = torch.triu_indices(256, 256).to(torch.uint8)
    ramp = torch.arange(256, dtype=torch.uint8).expand(len(low), 256)
    x = torch.maximum(torch.minimum(ramp, high[:, None]), low[:, None])
    count = len(x) // 3 * 3
    images = x[:count].view(-1, 3, 16, 16)[::29]
    assert (
        largest_difference(
            operated(images, "autocontrast"), by_pillow(images, ImageOps.autocontrast)
        )
        == 0
    )


@pytest.mark.parametrize("bits", [4, 5, 6, 7, 8])
def test_posterize_keeps_the_first_bits_exactly(bits):
    x = pictures()
    assert (
        largest_difference(
            operated(x, "posterize", bits),
            by_pillow(x, lambda image: ImageOps.posterize(image, bits)),
        )
        == 0
    )


@pytest.mark.parametrize("threshold", [0, 0.5, 1, 77, 127.5, 128, 254, 255, 255.5, 256])
def test_solarize_inverts_values_from_the_threshold_on_exactly(threshold):
    x = pictures()
    assert (
        largest_difference(
            operated(x, "solarize", threshold),
            by_pillow(x, lambda i: ImageOps.solarize(i, threshold)),
        )
        == 0
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    factor=st.floats(0, 2, width=32),
    name=st.sampled_from(sorted(ENHANCEMENTS)),
)
def test_any_factor_gives_what_pillow_gives(seed, factor, name):
    x = torch.randint(0, 256, (2, 3, 8, 8), generator=generator(seed), dtype=torch.uint8)
    assert (
        largest_difference(
            operated(x, name, factor),
            by_pillow(x, lambda image: ENHANCEMENTS[name](image).enhance(factor)),
        )
        == 0
    )


# ---- movements: at least 99% of the pixels -------------------------------------------------------


def movements(name, magnitude, width, height):
    return {
        "rotate": lambda image: image.rotate(magnitude),
        "shear-x": affine(1, magnitude, 0, 0, 1, 0),
        "shear-y": affine(1, 0, 0, magnitude, 1, 0),
        "translate-x": affine(1, 0, magnitude * width, 0, 1, 0),
        "translate-y": affine(1, 0, 0, 0, 1, magnitude * height),
    }[name]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ["rotate", "shear-x", "shear-y", "translate-x", "translate-y"])
def test_movements_take_the_pixels_that_pillow_takes(name, size):
    x = pictures(*size)[:8]
    for share in (-1, -0.83, -0.5, -0.017, 0, 0.21, 0.333, 0.77, 1):
        magnitude = float(np.float32(share * (30 if name == "rotate" else 0.3)))
        ours, theirs = (
            operated(x, name, magnitude),
            by_pillow(x, movements(name, magnitude, size[1], size[0])),
        )
        assert (ours == theirs).all(1).float().mean() >= 0.99, magnitude
        assert (ours.float() - theirs.float()).abs().mean() < 1, magnitude


def test_what_a_movement_brings_in_from_outside_is_black():
    white = torch.full((1, 3, 32, 32), 255, dtype=torch.uint8)
    for name in ("rotate", "shear-x", "shear-y", "translate-x", "translate-y"):
        view = operated(white, name, 30 if name == "rotate" else 0.3)
        assert set(view.unique().tolist()) == {0, 255}
        assert torch.equal(view[:, 0], view[:, 2])


# ---- together ------------------------------------------------------------------------------------


def test_identity_and_neutral_magnitudes_change_nothing():
    x = pictures()
    neutral = {"identity": 0.3, "posterize": 8, "solarize": 256, **dict.fromkeys(ENHANCEMENTS, 1.0)}
    neutral |= dict.fromkeys(["rotate", "shear-x", "shear-y", "translate-x", "translate-y"], 0.0)
    for name, magnitude in neutral.items():
        assert torch.equal(operated(x, name, magnitude), x), name


def test_operations_do_not_change_their_input():
    x = pictures()
    before = x.clone()
    operate(x, random_operations(3, len(x), x.device, generator()))
    assert torch.equal(x, before)


def test_each_image_of_a_batch_gets_its_own_operations_one_after_the_other():
    x = pictures()[torch.arange(120) % 10]
    drawn = random_operations(3, len(x), x.device, generator(1))
    assert set(drawn.which.flatten().tolist()) == set(range(14))
    expected = []
    for image, which, magnitude in zip(
        x, drawn.which.T.tolist(), drawn.magnitude.T.tolist(), strict=True
    ):
        one = image[None]
        for k, m in zip(which, magnitude, strict=True):
            one = operated(one, OPERATIONS[k], m)
        expected.append(one[0])
    assert torch.equal(operate(x, drawn), torch.stack(expected))


def test_a_chain_of_three_operations_is_that_of_pillow():
    x = pictures()[torch.arange(200) % 10]
    drawn = random_operations(3, len(x), x.device, generator(2))

    def chained(image, which, magnitude):
        for k, m in zip(which, magnitude, strict=True):
            name = OPERATIONS[k]
            if name in ENHANCEMENTS:
                image = ENHANCEMENTS[name](image).enhance(m)
            elif name in ("autocontrast", "equalize"):
                image = getattr(ImageOps, name)(image)
            elif name in ("posterize", "solarize"):
                image = getattr(ImageOps, name)(image, int(m) if name == "posterize" else m)
            elif name != "identity":
                image = movements(name, m, 32, 32)(image)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    expected = torch.stack(
        [
            chained(to_pillow(i), w, m)
            for i, w, m in zip(x, drawn.which.T.tolist(), drawn.magnitude.T.tolist(), strict=True)
        ]
    )
    assert (operate(x, drawn) == expected).float().mean() > 0.99


def test_operations_are_drawn_uniformly_with_magnitudes_uniform_in_their_ranges():
    n = 42_000
    which, magnitude = random_operations(1, n, torch.device("cpu"), generator(3))
    ranges = {
        "posterize": (4, 7),
        "solarize": (0, 256),
        "rotate": (-30, 30),
        **dict.fromkeys(ENHANCEMENTS, (0.05, 0.95)),
    }
    for k, name in enumerate(OPERATIONS):
        drawn = magnitude[which == k].double()
        assert abs(len(drawn) - n / 14) < 4 * (n / 14 * 13 / 14) ** 0.5
        if name in ("identity", "autocontrast", "equalize"):
            continue
        low, high = ranges.get(name, (-0.3, 0.3))
        assert low - 1e-6 <= drawn.min()
        assert drawn.max() <= high + 1e-6
        variance = 1.25 if name == "posterize" else (high - low) ** 2 / 12
        assert abs(drawn.mean() - (low + high) / 2) < 4 * (variance / len(drawn)) ** 0.5
        assert abs(drawn.var() / variance - 1) < 4 * (1 / len(drawn)) ** 0.5
    assert set(magnitude[which == OPERATIONS.index("posterize")].tolist()) == {4, 5, 6, 7}


def test_the_operations_of_the_rounds_are_independent():
    which = random_operations(2, 50_000, torch.device("cpu"), generator(4)).which
    pairs = torch.bincount(which[0] * 14 + which[1], minlength=196).double()
    mean = 50_000 / 196
    assert float(((pairs - mean) ** 2 / mean).sum()) < 195 + 4 * (2 * 195) ** 0.5


# ---- colours -------------------------------------------------------------------------------------


def jittered(x, steps, amounts, grey=False):
    """Every image through the steps (at most four) with the amounts of brightness, contrast,
    saturation and hue."""
    order = torch.tensor([*steps, *[NOTHING] * (4 - len(steps))])[:, None].expand(4, len(x))
    return recolour(
        x,
        Colours(
            order, torch.tensor(amounts)[:, None].expand(4, len(x)), torch.full((len(x),), grey)
        ),
    )


@pytest.mark.parametrize("factor", FACTORS)
def test_brightness_contrast_and_saturation_are_those_of_pillow_exactly(factor):
    x = pictures()
    for step, name in ((BRIGHTNESS, "brightness"), (CONTRAST, "contrast"), (SATURATION, "colour")):
        theirs = by_pillow(x, lambda image, name=name: ENHANCEMENTS[name](image).enhance(factor))
        assert largest_difference(jittered(x, [step], [factor] * 4), theirs) == 0


def pillow_hue(image, turns):
    """Torchvision's rule: Pillow's hue of 256 steps, moved by whole steps around the circle."""
    hue, saturation, value = image.convert("HSV").split()
    moved = (np.array(hue).astype(int) + int(turns * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(moved.astype(np.uint8)), saturation, value)).convert(
        "RGB"
    )


@pytest.mark.parametrize("steps", [-25, -13, -1, 0, 1, 7, 19, 25])
def test_hue_is_that_of_pillow_up_to_its_coarse_steps(steps):
    # Pillow rounds hue and saturation down to 256 steps each, and a step of hue is up to six levels
    # of a channel.
    x = pictures()
    theirs = by_pillow(x, lambda image: pillow_hue(image, (steps + 0.01 * np.sign(steps)) / 255))
    difference = (jittered(x, [HUE], [1.0, 1.0, 1.0, steps / 255]).float() - theirs.float()).abs()
    assert difference.max() <= 12
    assert difference.mean() < 0.5


def test_a_third_of_a_turn_moves_each_channel_to_the_next():
    x = pictures()
    assert largest_difference(shift_hue(x, torch.full((len(x),), 1 / 3)), x.roll(1, 1)) == 0


def test_no_shift_and_a_whole_turn_change_nothing_and_a_shift_keeps_value_and_greys():
    x = pictures()
    for turns in (0.0, 1.0, -1.0):
        assert torch.equal(shift_hue(x, torch.full((len(x),), turns)), x)
    moved = shift_hue(x, torch.full((len(x),), 0.07))
    assert torch.equal(moved.amax(1), x.amax(1))
    assert torch.equal(moved.amin(1), x.amin(1))
    assert torch.equal(moved[10:15], x[10:15])  # the constant images


def test_the_steps_of_the_jitter_follow_the_order_of_each_image():
    x = pictures()[torch.arange(96) % 10]
    drawn = random_colours(len(x), x.device, generator(5), jitter_rate=1.0)
    orders = {tuple(order) for order in drawn.order.T.tolist()}
    assert len(orders) > 20
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    expected = []
    for k, image in enumerate(x):
        one = image[None]
        for step in drawn.order[:, k].tolist():
            one = jittered(one, [step], drawn.amount[:, k].tolist())
        expected.append(jittered(one, [], [1.0, 1.0, 1.0, 0.0], grey=bool(drawn.grey[k]))[0])
    assert torch.equal(recolour(x, drawn), torch.stack(expected))


def test_grey_images_have_equal_channels_and_the_brightness_of_pillow():
    x = pictures()
    grey = jittered(x, [], [1.0, 1.0, 1.0, 0.0], grey=True)
    assert torch.equal(grey, by_pillow(x, lambda image: image.convert("L").convert("RGB")))
    assert torch.equal(grey[:, 0], grey[:, 1])


def test_images_without_jitter_and_grey_stay_as_they_are():
    x = pictures()
    assert torch.equal(jittered(x, [], [0.3, 0.3, 0.3, 0.1]), x)


def test_jitter_and_grey_come_at_their_rates_and_all_orders_and_amounts_are_equally_likely():
    n = 48_000
    order, amount, grey = random_colours(n, torch.device("cpu"), generator(6))
    jitter = order[0] != NOTHING
    assert abs(int(jitter.sum()) - 0.8 * n) < 4 * (0.16 * n) ** 0.5
    assert abs(int(grey.sum()) - 0.2 * n) < 4 * (0.16 * n) ** 0.5
    assert abs(int((grey & jitter).sum()) - 0.16 * n) < 4 * (0.16 * 0.84 * n) ** 0.5
    codes = torch.bincount(
        (order[:, jitter] * torch.tensor([64, 16, 4, 1])[:, None]).sum(0), minlength=256
    )
    counts = codes[codes > 0].double()
    assert len(counts) == 24
    mean = counts.mean()
    assert float(((counts - mean) ** 2 / mean).sum()) < 23 + 4 * (2 * 23) ** 0.5
    for k, (middle, width) in enumerate([(1, 0.4), (1, 0.4), (1, 0.4), (0, 0.1)]):
        assert amount[k].min() >= middle - width - 1e-6
        assert amount[k].max() <= middle + width + 1e-6
        assert abs(amount[k].double().mean() - middle) < 4 * width / (3 * n) ** 0.5
