"""Batch norm, shortcut and ReLU in one layer equal the three operations; without a GPU, kernels
run in Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ltpll.kernels import norm_kernels
from ltpll.kernels.conv_kernels import neighbourhoods
from ltpll.models.norm import NormReLU
from support.kernel_device import DEVICE

pytestmark = pytest.mark.kernels


def inputs(channels, height, width, batch=3):
    generator = torch.Generator().manual_seed(0)
    x, shortcut = 2 * torch.randn(
        2, batch, channels, height, width, generator=generator
    ) + torch.tensor([3.0, 0.0]).view(2, 1, 1, 1, 1)
    return [
        one.to(DEVICE).contiguous(memory_format=torch.channels_last).requires_grad_()
        for one in (x, shortcut)
    ]


def layer(channels, **options):
    made = NormReLU(channels, **options).to(DEVICE)
    with torch.no_grad():
        made.weight.copy_(torch.linspace(0.5, 1.5, channels))
        made.bias.copy_(torch.linspace(-0.5, 0.5, channels))
        made.running_mean.fill_(0.3)
        made.running_var.fill_(1.3)
    return made


def in_a_row(made, x, shortcut):
    mean, var = made.running_mean.clone(), made.running_var.clone()
    out = F.batch_norm(x, mean, var, made.weight, made.bias, made.training, 0.1, made.eps)
    out = out if shortcut is None else out + shortcut
    out = torch.relu(out) if made.relu else out
    return out, out[:, :, ::2, ::2] if made.subsamples else out, mean, var


def gradients(results, used, wanted):
    """The gradients of a function that weights every value of the used results differently."""
    total = sum(
        (
            one * torch.linspace(-1, 1, one.numel(), device=DEVICE).view_as(one).sin() * (one + 1)
        ).sum()
        for one in used(results)
    )
    return torch.autograd.grad(total, wanted)


USED = {"first": lambda r: r[:1], "second": lambda r: r[1:2], "both": lambda r: r[:2]}
CASES = [
    (16, 7, 5, False, False, False),
    (64, 6, 8, False, True, False),
    (128, 4, 6, True, True, False),
    (64, 4, 6, True, True, True),
    (32, 6, 4, False, True, True),
    (32, 5, 5, True, False, False),
]


@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize(("channels", "height", "width", "adds", "relu", "subsamples"), CASES)
def test_kernels_give_the_results_and_gradients_of_the_three_in_a_row(
    channels, height, width, adds, relu, subsamples, used
):
    x, shortcut = inputs(channels, height, width)
    made = layer(channels, relu=relu, subsamples=subsamples)
    wanted = [x, made.weight, made.bias, *([shortcut] if adds else [])]
    expected = in_a_row(made, x, shortcut if adds else None)
    expected_gradients = gradients(expected, USED[used], wanted)

    statistics = (
        made.weight,
        made.bias,
        made.running_mean,
        made.running_var,
        made.num_batches_tracked,
        made._counter,
    )
    results = norm_kernels.NormReLUFunction.apply(
        x, shortcut if adds else None, *statistics, 0.1, made.eps, relu, subsamples
    )
    for ours, theirs in zip((*results, made.running_mean, made.running_var), expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    assert made.num_batches_tracked == 1
    for ours, theirs in zip(
        gradients(results, USED[used], wanted), expected_gradients, strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-3)
    assert not made._counter.any()


def test_a_mean_far_from_zero_leaves_the_variance_exact():
    """A variance from the mean square would be lost to rounding here: the values are 1000 ± 0.1,
    and float32 has seven digits."""
    x, _ = inputs(16, 4, 4)
    made = layer(16, relu=False)
    made.running_mean.fill_(1000.0)
    with torch.no_grad():
        x = 1000 + 0.1 * x / x.std()
    statistics = (
        made.weight,
        made.bias,
        made.running_mean,
        made.running_var,
        made.num_batches_tracked,
        made._counter,
    )
    norm_kernels.NormReLUFunction.apply(x, None, *statistics, 1.0, made.eps, False, False)
    torch.testing.assert_close(
        made.running_var, x.double().var((0, 2, 3)).float(), atol=0, rtol=1e-4
    )


@pytest.mark.parametrize(("adds", "subsamples"), [(False, False), (True, False), (True, True)])
def test_scale_and_shift_is_batch_norm_with_running_statistics(adds, subsamples):
    x, shortcut = (one.detach() for one in inputs(32, 4, 6))
    made = layer(32, subsamples=subsamples).eval()
    scale = made.weight * torch.rsqrt(made.running_var + made.eps)
    ours = norm_kernels.scale_and_shift(
        x,
        scale,
        made.bias - made.running_mean * scale,
        shortcut if adds else None,
        True,
        subsamples,
    )
    for one, expected in zip(ours, in_a_row(made, x, shortcut if adds else None)[:2], strict=True):
        torch.testing.assert_close(one, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("adds", "relu", "subsamples"), [(False, True, False), (True, True, True), (True, False, False)]
)
def test_the_layer_is_the_three_in_a_row(training, adds, relu, subsamples):
    x, shortcut = inputs(24, 5, 4)  # not a power of two: without kernels, wherever this runs
    made = layer(24, relu=relu, subsamples=subsamples).train(training)
    first, second, mean, var = in_a_row(made, x, shortcut if adds else None)
    ours = made(x, shortcut if adds else None)
    torch.testing.assert_close(ours[0], first)
    torch.testing.assert_close(ours[1], second)
    torch.testing.assert_close(made.running_mean, mean)
    torch.testing.assert_close(made.running_var, var)


def test_a_checkpoint_of_the_layer_is_one_of_batch_norm():
    assert NormReLU(16).state_dict().keys() == nn.BatchNorm2d(16).state_dict().keys()


@pytest.mark.parametrize("channels", [1, 3])
def test_a_product_with_neighbourhoods_is_a_convolution(channels):
    generator = torch.Generator().manual_seed(0)
    x = (
        torch.randn(3, channels, 6, 8, generator=generator)
        .to(DEVICE)
        .contiguous(memory_format=torch.channels_last)
    )
    weight = torch.randn(5, channels, 3, 3, generator=generator).to(DEVICE)
    around = neighbourhoods(x)
    flat = weight.permute(0, 2, 3, 1).flatten(1)
    ours = F.linear(around, F.pad(flat, (0, around.shape[3] - flat.shape[1]))).permute(0, 3, 1, 2)
    torch.testing.assert_close(ours, F.conv2d(x, weight, padding=1), atol=1e-5, rtol=1e-4)
