from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from ltpll.views.features import FeatureViews


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_plain_features_are_standardised_as_scikit_learn_does_it(offset):
    x = (np.random.default_rng(0).normal(offset, 3, (10_000, 4)) * [1, 10, 0.1, 1]).astype(
        np.float32
    )
    x[:, 3] = 7.0
    views = FeatureViews.of(torch.from_numpy(x))
    expected = StandardScaler().fit_transform(x.astype(np.float64))
    np.testing.assert_allclose(
        views.plain(torch.from_numpy(x)).numpy(), expected, atol=0.02 if offset else 1e-4
    )


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 1e9), (1e300, 0.0), (1e-300, 0.0)])
def test_features_that_float32_would_blur_are_standardised_in_float64(scale, offset):
    x = np.random.default_rng(0).normal(0, 3, (1000, 3)) * scale + offset
    x[:, 2] = offset
    views = FeatureViews.of(torch.from_numpy(x))
    plain = views.plain(torch.from_numpy(x))
    assert plain.dtype == torch.float32
    np.testing.assert_allclose(
        plain.numpy(), StandardScaler().fit_transform((x - offset) / scale), atol=1e-6
    )
    assert float(views.plain(torch.from_numpy(x[:1]))[0, 0]) == float(plain[0, 0])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_scaled_features_are_divided_by_the_root_of_their_mean_square(kind):
    x = (np.random.default_rng(0).normal(2, [1, 10, 0.1, 0], (500, 4))).astype(kind)
    plain = FeatureViews.of(torch.from_numpy(x), scaled=True).plain(torch.from_numpy(x))
    centred = x - x.mean(0, dtype=np.float64)
    np.testing.assert_allclose(plain, centred / np.sqrt((centred**2).mean()), atol=1e-4)
    constant = torch.ones(3, 2)
    assert not FeatureViews.of(constant, scaled=True).plain(constant).any()


def test_images_are_standardised_by_channel():
    x = (
        torch.randn(50, 3, 4, 5, generator=torch.Generator().manual_seed(0))
        * torch.tensor([1.0, 5.0, 9.0]).view(3, 1, 1)
        + 2
    )
    plain = FeatureViews.of(x).plain(x)
    torch.testing.assert_close(plain.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(plain.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)


def test_a_strong_view_has_noise_and_leaves_features_out_and_a_weak_one_is_the_row_itself():
    x = torch.randn(4000, 6, generator=torch.Generator().manual_seed(0)) * 5 + 3
    views = FeatureViews.of(x)
    weak, strong = views.draw(x, ("weak", "strong"), torch.Generator().manual_seed(1))
    plain = views.plain(x)
    assert torch.equal(weak, plain)
    noisy, _ = replace(views, noise=(0.05, 0.2)).draw(
        x, ("weak", "strong"), torch.Generator().manual_seed(1)
    )
    assert float((noisy - plain).std()) == pytest.approx(0.05, rel=0.05)
    left_out = strong == 0
    assert float(left_out.float().mean()) == pytest.approx(0.2, abs=0.01)
    assert float((strong - plain)[~left_out].std()) == pytest.approx(0.2, rel=0.05)


def test_the_same_generator_state_gives_the_same_views():
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    views = FeatureViews.of(x)
    one, other = (
        views.draw(x, ("weak", "strong"), torch.Generator().manual_seed(1)) for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
