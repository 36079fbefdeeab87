"""The kernels of image views against the batched torch operations, which test_randaugment compares
with Pillow.

Without a GPU they run in Triton's interpreter.
"""

import pytest
import torch

from ltpll.kernels import view_kernels as kernels
from ltpll.views import colours
from ltpll.views import crops as resize
from ltpll.views import randaugment as operations
from ltpll.views.crops import HOLE, cut_out, random_hole
from ltpll.views.images import VIEW_POLICIES, ImageViews
from support.kernel_device import DEVICE

pytestmark = pytest.mark.kernels
SIZES = [(16, 16), (9, 14)]


def images(batch, size, seed=0):
    """Noise, gradients and flat images, in the memory layout of a data set."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (batch, *size, 3), generator=generator, dtype=torch.uint8)
    x[::4] = (x[::4].float() * 0.2 + 60 + torch.linspace(0, 90, size[1])[:, None]).to(torch.uint8)
    x[1::8] = x[1::8, :1, :1]
    return x.permute(0, 3, 1, 2).to(DEVICE)


def generator():
    return torch.Generator(DEVICE).manual_seed(1)


@pytest.mark.parametrize("size", SIZES)
def test_resampled_crops_equal_matrix_products_within_a_level_of_rounding(size):
    x = images(12, size)
    box = resize.resized_crop(12, size, DEVICE, generator())
    ours, theirs = kernels.resample_on_gpu(x, box).int(), resize.resample(x, box).int()
    assert (ours - theirs).abs().max() <= 1
    assert (ours != theirs).float().mean() < 0.002


@pytest.mark.parametrize("size", SIZES)
def test_padded_crops_are_the_same(size):
    x = images(12, size)
    box = resize.padded_crop(12, size, DEVICE, generator())
    torch.testing.assert_close(kernels.shift_on_gpu(x, box), resize.shift(x, box), rtol=0, atol=0)


@pytest.mark.parametrize("size", SIZES)
def test_colours_are_the_same_within_a_level_of_rounding(size):
    x = images(12, size).contiguous()
    drawn = colours.random_colours(12, DEVICE, generator(), grey_rate=0.2)
    ours, theirs = kernels.recolour_on_gpu(x, drawn).int(), colours.recolour(x, drawn).int()
    assert (ours - theirs).abs().max() <= 2
    assert (ours != theirs).float().mean() < 0.002


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("operation", operations.OPERATIONS)
def test_an_operation_is_the_same(operation, size):
    x = images(4, size).contiguous()
    number = operations.OPERATIONS.index(operation)
    drawn = operations.random_operations(1, 400, DEVICE, generator())
    chosen = (drawn.which[0] == number).nonzero().flatten()[:4]
    drawn = operations.Operations(drawn.which[:, chosen], drawn.magnitude[:, chosen])
    torch.testing.assert_close(
        kernels.operate_on_gpu(x, drawn, operations.movement(*drawn, *x.shape[2:])),
        operations.operate(x, drawn),
        rtol=0,
        atol=0,
    )


def test_rounds_of_operations_follow_one_another():
    x = images(16, (16, 16)).contiguous()
    drawn = operations.random_operations(3, 16, DEVICE, generator())
    torch.testing.assert_close(
        kernels.operate_on_gpu(x, drawn, operations.movement(*drawn, *x.shape[2:])),
        operations.operate(x, drawn),
        rtol=0,
        atol=0,
    )


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_holes_and_normalising_are_the_same(layout):
    x = images(12, (9, 14))
    hole = random_hole(12, (9, 14), DEVICE, generator())
    scale, offset = [0.01, 0.02, 0.03], [-1.0, 0.5, 2.0]
    for given in (hole, None):
        expected = (x if given is None else cut_out(x, given)).float()
        expected = expected * torch.tensor(scale, device=DEVICE).view(3, 1, 1) + torch.tensor(
            offset, device=DEVICE
        ).view(3, 1, 1)
        out = kernels.cut_out_and_normalise_on_gpu(
            x, given, HOLE, scale, offset, torch.float32, layout
        )
        assert out.is_contiguous(memory_format=layout)
        torch.testing.assert_close(out, expected)
        low = kernels.cut_out_and_normalise_on_gpu(
            x, given, HOLE, scale, offset, torch.bfloat16, layout
        )
        torch.testing.assert_close(low, expected.to(torch.bfloat16), atol=0.01, rtol=0.01)


@pytest.mark.parametrize("policy", sorted(VIEW_POLICIES))
@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_whole_views_are_the_same_except_where_rounding_decides(policy, kind):
    x = images(10, (32, 32))
    views = ImageViews(policy, (0.5, 0.4, 0.3), (0.25, 0.2, 0.3), channels_last=True)
    draws = views.parameters(kind, 10, (32, 32), DEVICE, generator())
    ours = views._apply_kernels(x, draws)
    cpu = [None if part is None else type(part)(*(each.cpu() for each in part)) for part in draws]
    theirs = views.apply(x.cpu(), type(draws)(*cpu)).to(DEVICE)
    # Equalize and autocontrast can amplify a difference of one level, so only the share of
    # differing pixels is checked.
    assert ((ours - theirs).abs() > 1e-4).float().mean() < 0.01
