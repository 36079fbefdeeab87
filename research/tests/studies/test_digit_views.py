"""Views of the digits change each image independently, exactly as documented."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from ltpll.errors import InputError
from ltpll.views import Jitter, Views
from ltpll_research.studies.digit_views import Cutout, Shift
from support.image_batches import generator, images

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


def test_views_equal_applying_the_policies_by_hand_with_the_same_generator():
    x = images(12)
    before = x.clone()
    views = Views(weak=(Shift(1),), strong=(Shift(2), Cutout(2), Jitter(0.3, 0.2)))
    drawn = views.draw(x, ("weak", "strong"), generator(7))
    source = generator(7)
    expected = [
        Shift(1)(x, source),
        Jitter(0.3, 0.2)(Cutout(2)(Shift(2)(x, source), source), source),
    ]
    assert all(torch.equal(a, b) for a, b in zip(drawn, expected, strict=True))
    assert torch.equal(x, before)
