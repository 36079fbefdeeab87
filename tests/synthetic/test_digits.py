"""The digits: a balanced test set, a pool that shares no image with it, and one scale for both."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from sklearn.datasets import load_digits

from ltpll.errors import InputError
from ltpll.synthetic import load_digits_split


def restored(x, split):
    """The raw pixels of standardised images: the smallest is 0 and the largest 16."""
    everything = np.concatenate([split.x_pool, split.x_test])
    low, high = everything.min(), everything.max()
    return np.rint((x - low) / (high - low) * 16).astype(int)


@pytest.mark.parametrize(("seed", "per_class"), [(0, 50), (1, 50), (2, 10), (3, 1)])
def test_the_split_is_the_whole_set_with_a_balanced_test_part(seed, per_class):
    split = load_digits_split(seed=seed, test_per_class=per_class)
    assert np.bincount(split.y_test).tolist() == [per_class] * 10
    assert len(split.y_pool) + len(split.y_test) == 1797
    assert split.x_pool.shape == (1797 - 10 * per_class, 1, 8, 8)
    assert split.x_test.shape == (10 * per_class, 1, 8, 8)
    assert (split.x_pool.dtype, split.x_test.dtype) == (np.float32, np.float32)
    assert (split.y_pool.dtype, split.y_test.dtype) == (np.int64, np.int64)


def test_pool_and_test_hold_every_image_with_its_label_once():
    split = load_digits_split(seed=4)
    raw = load_digits()
    pool = [
        (image.tobytes(), label)
        for image, label in zip(restored(split.x_pool, split), split.y_pool, strict=True)
    ]
    test = [
        (image.tobytes(), label)
        for image, label in zip(restored(split.x_test, split), split.y_test, strict=True)
    ]
    whole = [
        (image.astype(int).tobytes(), label)
        for image, label in zip(raw.images, raw.target, strict=True)
    ]
    assert (
        len(set(whole)) == 1797
    )  # no image of the original occurs twice, so images tell rows apart
    assert not set(pool) & set(test)
    assert Counter(pool) + Counter(test) == Counter(whole)


def test_images_are_standardised_with_the_pool_alone():
    split = load_digits_split(seed=5)
    assert abs(split.x_pool.mean(dtype=np.float64)) < 1e-5
    assert abs(split.x_pool.std(dtype=np.float64) - 1) < 1e-5
    raw = restored(split.x_pool, split).astype(np.float64)
    np.testing.assert_allclose(
        split.x_test, (restored(split.x_test, split) - raw.mean()) / raw.std(), atol=1e-5
    )
    assert abs(split.x_test.mean(dtype=np.float64)) > 1e-5  # its own statistics were not used


def test_the_same_seed_gives_the_same_split_and_another_seed_another():
    first, again, other = (load_digits_split(seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.x_test, other.x_test)


@pytest.mark.parametrize("per_class", [175, 1000, -1])  # the rarest digit has 174 images
def test_a_test_set_that_cannot_be_balanced_is_refused(per_class):
    with pytest.raises(InputError) as caught:
        load_digits_split(seed=0, test_per_class=per_class)
    assert "\n" not in str(caught.value)
