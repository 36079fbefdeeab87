"""Views of images equal Pillow's results, are drawn with the documented distributions, and are
independent for each image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from ltpll.errors import InputError
from ltpll.views.crops import CropBox, padded_crop, resample, resized_crop, shift
from ltpll.views.images import (
    SMALL_CHUNK,
    VIEW_POLICIES,
    Draws,
    Hole,
    ImageViews,
    cut_out,
    random_hole,
)

MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
CPU = torch.device("cpu")
EVERY = [(policy, kind) for policy in VIEW_POLICIES for kind in ("weak", "strong")]
SIZE = (32, 32)
CHUNK = SMALL_CHUNK // (32 * 32)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n=8, height=32, width=32, seed=0):
    """Smooth images with noise, (n, 3, height, width) uint8."""
    rng = np.random.default_rng(seed)
    rows, columns = np.linspace(0, 1, height)[:, None], np.linspace(0, 1, width)
    slopes = rng.uniform(-200, 200, (2, n, 3, 1, 1))
    smooth = rng.uniform(20, 235, (n, 3, 1, 1)) + slopes[0] * rows + slopes[1] * columns
    return torch.from_numpy(
        (smooth + rng.normal(0, 8, (n, 3, height, width))).clip(0, 255).astype(np.uint8)
    )


def box_of(n, top, left, height, width, flip=False):
    return CropBox(
        *(torch.full((n,), float(value)) for value in (top, left, height, width)),
        torch.full((n,), flip),
    )


def views(policy="paper", **options):
    return ImageViews(policy, MEAN, STD, **options)


def levels(view):
    """The levels from 0 to 255 of a normalised view."""
    return (
        (view.float() * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)) * 255
    ).round()


def within(values, low, high):
    return bool(((values >= low) & (values <= high)).all())


# ---- crop, resize and flip -----------------------------------------------------------------------


def pillow_crop(image, top, left, height, width, flip):
    picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
    view = picture.crop((left, top, left + width, top + height)).resize(
        picture.size, Image.Resampling.BILINEAR
    )
    if flip:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(view)).permute(2, 0, 1)


@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    side=st.sampled_from([(32, 32), (128, 128), (20, 33)]),
    flip=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_cut_box_is_enlarged_as_by_pillow_within_one_level(data, side, flip, seed):
    x = images(1, *side, seed=seed)
    height, width = data.draw(st.integers(1, side[0])), data.draw(st.integers(1, side[1]))
    top, left = (
        data.draw(st.integers(0, side[0] - height)),
        data.draw(st.integers(0, side[1] - width)),
    )
    ours, theirs = (
        resample(x, box_of(1, top, left, height, width, flip))[0],
        pillow_crop(x[0], top, left, height, width, flip),
    )
    assert (ours.int() - theirs.int()).abs().max() <= 1
    assert (
        ours == theirs
    ).float().mean() > 0.9  # a tie may be rounded the other way in a whole row or column


def test_drawn_boxes_are_enlarged_as_by_pillow_within_one_level():
    x = images(200)
    box = resized_crop(200, SIZE, CPU, generator())
    theirs = torch.stack(
        [pillow_crop(image, *(int(value[k]) for value in box)) for k, image in enumerate(x)]
    )
    difference = (resample(x, box).int() - theirs.int()).abs()
    assert difference.max() <= 1
    assert (difference == 0).float().mean() > 0.999


def test_the_whole_image_as_a_box_is_the_image_and_a_flip_its_own_inverse():
    for x in (images(5), images(5, 18, 31)):
        whole = (0, 0, x.shape[2], x.shape[3])
        assert torch.equal(resample(x, box_of(5, *whole)), x)
        flipped = resample(x, box_of(5, *whole, flip=True))
        assert torch.equal(flipped, x.flip(3))
        assert torch.equal(resample(flipped, box_of(5, *whole, flip=True)), x)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(("top", "left"), [(0, 0), (-4, 4), (4, -4), (-1, -3), (3, 2)])
def test_a_moved_box_is_a_crop_of_the_image_padded_with_black(top, left, flip):
    x = images(3)
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4))[
        :, :, 4 + top : 36 + top, 4 + left : 36 + left
    ]
    for cut in (shift, resample):
        assert torch.equal(
            cut(x, box_of(3, top, left, 32, 32, flip)), padded.flip(3) if flip else padded
        )


def test_each_box_is_moved_by_its_own_draw():
    x = images(200, 24, 40)
    box = padded_crop(200, (24, 40), CPU, generator(7))
    assert torch.equal(shift(x, box), resample(x, box))


@pytest.mark.parametrize("size", [(32, 32), (128, 128)], ids=str)
def test_drawn_boxes_lie_inside_with_area_and_ratio_in_range_and_half_are_mirrored(size):
    n = 40_000
    box = resized_crop(n, size, CPU, generator(1))
    for start, length, side in ((box.top, box.height, size[0]), (box.left, box.width, size[1])):
        assert torch.equal(start, start.round())
        assert torch.equal(length, length.round())
        assert within(length, 1, side)
        assert within(start, 0, side)
        assert within(start + length, 1, side)
        free = side - length
        wide = free >= 4
        # uniform over the free + 1 places
        share = ((start + 0.5) / (free + 1))[wide].double()
        assert abs(share.mean() - 0.5) < 4 * (1 / 12 / len(share)) ** 0.5
    half = 0.5  # sides are rounded to whole pixels
    assert within((box.height + half) * (box.width + half), 0.2 * size[0] * size[1], torch.inf)
    assert within((box.width - half) / (box.height + half), 0, 4 / 3)
    assert within((box.width + half) / (box.height - half), 3 / 4, torch.inf)
    assert abs(int(box.flip.sum()) - n / 2) < 4 * (n / 4) ** 0.5


def one_box(rng, height, width):
    """Torchvision's rule in a loop: the sides of one box."""
    for _ in range(10):
        area = height * width * rng.uniform(0.2, 1)
        ratio = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return h, w
    return height, width


def test_the_sides_of_boxes_are_distributed_as_by_torchvisions_loop():
    n = 20_000
    rng = np.random.default_rng(0)
    theirs = torch.tensor([one_box(rng, 32, 32) for _ in range(n)]).double()
    box = resized_crop(n, SIZE, CPU, generator(2))
    ours = torch.stack([box.height, box.width], 1).double()
    for statistic in (
        lambda s: s[:, 0],
        lambda s: s[:, 1],
        lambda s: s.prod(1),
        lambda s: (s[:, 0] / s[:, 1]).log(),
    ):
        a, b = statistic(ours), statistic(theirs)
        assert abs(a.mean() - b.mean()) < 4 * ((a.var() + b.var()) / n) ** 0.5
        assert abs(a.std() / b.std() - 1) < 4 / n**0.5


def test_where_no_box_fits_the_largest_central_one_is_taken():
    for size, expected in (
        ((32, 32), (0, 0, 32, 32)),
        ((30, 100), (0, 30, 30, 40)),
        ((100, 30), (30, 0, 40, 30)),
    ):
        box = resized_crop(50, size, CPU, generator(3), scale=(20, 30))
        assert {tuple(int(value[k]) for value in box[:4]) for k in range(50)} == {expected}


@pytest.mark.parametrize("side", [32, 64])
def test_padded_crops_are_moved_uniformly_by_up_to_an_eighth(side):
    n, pad = 30_000, side // 8
    box = padded_crop(n, (side, side), CPU, generator(4))
    for offset in (box.top, box.left):
        count = torch.bincount((offset + pad).long()).double()
        assert len(count) == 2 * pad + 1
        mean = n / len(count)
        assert within(count, mean - 4.5 * mean**0.5, mean + 4.5 * mean**0.5)
    assert abs(int(box.flip.sum()) - n / 2) < 4 * (n / 4) ** 0.5
    assert bool((box.height == side).all())
    assert bool((box.width == side).all())


# ---- hole ----------------------------------------------------------------------------------------


def test_a_hole_is_pillows_rectangle_from_its_first_to_its_last_row_and_column_and_the_rest_stays():
    x = images(300)
    hole = random_hole(300, SIZE, CPU, generator(5))
    view = cut_out(x, hole)
    for k in range(300):
        top, left, side = (float(value[k]) for value in hole)
        expected = Image.fromarray(x[k].permute(1, 2, 0).numpy())
        ImageDraw.Draw(expected).rectangle(
            (left, top, min(32, left + side), min(32, top + side)), (125, 123, 114)
        )
        assert np.array_equal(view[k].permute(1, 2, 0).numpy(), np.asarray(expected))


def test_holes_are_drawn_one_by_one_as_in_the_papers_code():
    hole = random_hole(500, (32, 48), CPU, generator(5))
    row, column, length = torch.rand(3, 500, generator=generator(5)).tolist()
    for k in range(500):
        side = 16 * length[k]
        assert float(hole.side[k]) == pytest.approx(side)
        assert float(hole.top[k]) == int(max(0, 32 * row[k] - side / 2))
        assert float(hole.left[k]) == int(max(0, 48 * column[k] - side / 2))


def test_a_hole_of_eight_pixels_fills_nine_rows_and_is_clipped_only_at_the_end():
    x = torch.zeros(3, 3, 32, 32, dtype=torch.uint8)
    hole = Hole(
        torch.tensor([12.0, 0.0, 28.0]),
        torch.tensor([12.0, 0.0, 31.0]),
        torch.tensor([8.0, 8.5, 8.0]),
    )
    assert (cut_out(x, hole) > 0).sum((2, 3)).tolist() == [[81] * 3, [81] * 3, [4] * 3]


# ---- views ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "kind"), EVERY)
def test_the_same_state_of_the_generator_gives_the_same_views_and_another_state_others(
    policy, kind
):
    x, source = images(), generator(3)
    (first,), (second,) = (
        views(policy).draw(x, [kind], source),
        views(policy).draw(x, [kind], source),
    )
    (again,), (other,) = (
        views(policy).draw(x, [kind], generator(3)),
        views(policy).draw(x, [kind], generator(4)),
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("policy", "kind"), EVERY)
def test_equal_images_of_a_batch_get_different_views(policy, kind):
    (view,) = views(policy).draw(images(1).expand(64, -1, -1, -1), [kind], generator())
    assert len({one.numpy().tobytes() for one in view}) > (
        50 if (policy, kind) not in (("flip-crop", "weak"), ("crop", "weak")) else 30
    )


@pytest.mark.parametrize(("policy", "kind"), EVERY)
def test_the_view_of_an_image_does_not_depend_on_the_others_of_its_batch(policy, kind):
    n = CHUNK + 44  # more than one chunk
    x, policy = images(n), views(policy)
    draws = policy.parameters(kind, n, SIZE, CPU, generator(5))
    together = policy.apply(x, draws)
    for k in (0, 1, 17, CHUNK - 1, CHUNK, n - 1):
        parts = [
            None if part is None else type(part)(*(each[..., k : k + 1] for each in part))
            for part in draws
        ]
        assert torch.equal(policy.apply(x[k : k + 1], Draws(*parts))[0], together[k])


@pytest.mark.parametrize(("policy", "kind"), EVERY)
def test_drawing_leaves_the_images_and_the_global_random_state_alone(policy, kind):
    x, state = images(), torch.get_rng_state()
    before = x.clone()
    views(policy).draw(x, [kind], generator())
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("policy", "kind"), EVERY)
def test_views_do_not_depend_on_the_memory_format_of_the_images(policy, kind):
    x = images()
    (a,) = views(policy).draw(x, [kind], generator(8))
    (b,) = views(policy).draw(x.contiguous(memory_format=torch.channels_last), [kind], generator(8))
    assert torch.equal(a, b)


@pytest.mark.parametrize("n", [8, CHUNK + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_views_have_the_type_and_memory_format_asked_for(dtype, channels_last, n):
    options = {"dtype": dtype, "channels_last": channels_last}
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x = images(n)
    exact = views().draw(x, ("weak", "strong"), generator(9))
    for view, reference in zip(
        views(**options).draw(x, ("weak", "strong"), generator(9)), exact, strict=True
    ):
        assert view.dtype == dtype
        assert view.shape == x.shape
        assert view.is_contiguous(memory_format=layout)
        assert torch.equal(view, reference.to(dtype))
    assert views(**options).plain(x).is_contiguous(memory_format=layout)
    assert views(**options).plain(x).dtype == dtype


def test_plain_images_are_normalised_and_not_changed_otherwise():
    x = images()
    expected = (x.double() / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(
        3, 1, 1
    )
    assert torch.allclose(views().plain(x).double(), expected, atol=1e-5)


def test_views_are_normalised_as_plain_images_are():
    x, draws = images(), Draws(box_of(8, 0, 0, 32, 32), None, None, None)
    assert torch.equal(views().apply(x, draws), views().plain(x))


def test_a_weak_view_without_colours_shows_the_box_alone_and_a_fifth_of_the_papers_are_grey():
    x = images(2000)
    (view,) = views("paper").draw(x, ["weak"], generator(10))
    shown = levels(view)
    grey = (shown[:, 0] == shown[:, 1]).flatten(1).all(1) & (shown[:, 0] == shown[:, 2]).flatten(
        1
    ).all(1)
    assert abs(int(grey.sum()) - 400) < 4 * 320**0.5
    (cropped,) = views("flip-crop").draw(x, ["weak"], generator(10))
    assert torch.equal(
        levels(cropped), shift(x, padded_crop(2000, SIZE, CPU, generator(10))).float()
    )


def test_crops_that_are_never_mirrored_are_the_other_ones_unflipped():
    x, mirrored = images(64), padded_crop(64, SIZE, CPU, generator(10))
    assert mirrored.flip.any()
    (cropped,) = views("crop").draw(x, ["weak"], generator(10))
    assert torch.equal(
        levels(cropped), shift(x, mirrored._replace(flip=torch.zeros(64, dtype=torch.bool))).float()
    )


def test_photographs_keep_a_third_of_their_area_and_their_colours():
    box = views("photo").parameters("weak", 20_000, (96, 96), CPU, generator(3)).box
    half = 0.5  # sides are rounded to whole pixels
    assert within((box.height + half) * (box.width + half), 0.35 * 96 * 96, torch.inf)
    # By torchvision's rule, areas are uniform apart from boxes that do not fit, most of which are
    # large.
    assert float((box.height * box.width).quantile(0.1)) == pytest.approx(
        (0.35 + 0.1 * 0.65) * 96 * 96, rel=0.03
    )
    x = images(50)
    (view,) = views("photo").draw(x, ["weak"], generator(10))
    assert torch.equal(
        levels(view),
        resample(x, resized_crop(50, SIZE, CPU, generator(10), scale=(0.35, 1.0))).float(),
    )


@pytest.mark.parametrize("policy", VIEW_POLICIES)
def test_views_of_some_rows_are_the_same_as_among_all_rows(policy):
    x, places = images(CHUNK + 9), torch.tensor([3, 0, 17, CHUNK + 8])
    everything = views(policy).draw(x, ("weak", "strong"), generator(12))
    some = views(policy).draw(x, ("weak", "strong"), generator(12), places)
    assert all(
        torch.equal(view, whole[places]) for view, whole in zip(some, everything, strict=True)
    )


def test_one_view_is_drawn_for_each_kind_in_the_order_asked_for():
    x = images()
    drawn = views().draw(x, ("strong", "weak", "weak"), generator(11))
    source = generator(11)
    expected = [views().draw(x, [kind], source)[0] for kind in ("strong", "weak", "weak")]
    assert all(torch.equal(a, b) for a, b in zip(drawn, expected, strict=True))
    assert not torch.equal(drawn[1], drawn[2])
    assert views().draw(x, (), generator()) == ()


@pytest.mark.parametrize(
    ("policy", "kind"), EVERY[:3]
)  # tracing takes a second or more, and the fourth adds nothing
def test_applying_draws_is_one_graph_without_synchronisation_and_gives_the_same_views(policy, kind):
    # A shape or branch that depends on values would break the graph. The graph computes every
    # operation for every image and selects, as on a GPU, whereas on a CPU only the required
    # operations are computed.
    x, made = images(200), views(policy, channels_last=True)
    draws = made.parameters(kind, 200, SIZE, CPU, generator(12))
    torch.compiler.reset()
    traced = torch.compile(made.apply, fullgraph=True, backend="eager", dynamic=False)
    assert torch.equal(traced(x, draws), made.apply(x, draws))


@pytest.mark.parametrize(("policy", "kind"), EVERY)
def test_autocast_does_not_change_views(policy, kind):
    x = images()
    (expected,) = views(policy).draw(x, [kind], generator(13))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (view,) = views(policy).draw(x, [kind], generator(13))
    assert torch.equal(view, expected)


def test_large_images_and_single_ones_work_too():
    for shape in ((3, 128, 128), (1, 32, 32), (2, 24, 40)):
        x = images(*shape)
        for policy, kind in EVERY:
            (view,) = views(policy).draw(x, [kind], generator())
            assert view.shape == x.shape
            assert bool(view.isfinite().all())
            assert within(levels(view), 0, 255)


# ---- refusals ------------------------------------------------------------------------------------


def test_an_unknown_policy_is_refused_with_the_names_of_the_others():
    with pytest.raises(InputError, match="crop, flip-crop, paper") as caught:
        ImageViews("papper", MEAN, STD)
    assert "papper" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((2, 3, 8, 8), torch.float32), ((2, 1, 8, 8), torch.uint8), ((3, 8, 8), torch.uint8)],
)
def test_anything_but_a_batch_of_uint8_colour_images_is_refused(shape, dtype):
    x = torch.zeros(shape, dtype=dtype)
    for use in (views().plain, lambda x: views().draw(x, ["weak"], generator())):
        with pytest.raises(InputError, match="uint8"):
            use(x)


@pytest.mark.parametrize(
    ("mean", "std"), [((0.5,), (0.5,)), (MEAN, (0.2, 0.0, 0.2)), (MEAN, (0.2, 0.2))]
)
def test_statistics_that_do_not_fit_colour_images_are_refused(mean, std):
    with pytest.raises(InputError, match="three"):
        ImageViews("paper", mean, std)
