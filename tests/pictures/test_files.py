"""The user's pictures: the pixels that Pillow gives, and a reason for each unreadable one."""

import io
import struct
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from ltpll.backbones import Preprocessing
from ltpll.pictures import files as pictures
from ltpll.pictures import reading
from ltpll.pictures.cache import content_digest
from ltpll.pictures.files import list_pictures, with_box
from ltpll.pictures.reading import call_for_pictures, read_pictures
from support.refusals import refusal


def noise(width, height, seed=0, channels=3):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def gradient(width, height):
    """Smooth, so that JPEG changes it little."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack(
        [x * 255 // width, y * 255 // height, (x + y) * 255 // (width + height)], axis=2
    ).astype(np.uint8)


def one(folder, name, side):
    found = read_pictures(folder, [name], side)
    assert found.x.shape == (1, side, side, 3)
    assert found.x.dtype == np.uint8
    assert found.problems == []
    return found.x[0]


def padded(picture, side):
    """What Pillow makes of a picture, step by step."""
    scale = side / max(picture.size)
    small = picture.convert("RGB").resize(
        [max(1, round(s * scale)) for s in picture.size], Image.Resampling.BILINEAR
    )
    square = Image.new("RGB", (side, side))
    square.paste(small, ((side - small.width) // 2, (side - small.height) // 2))
    return np.asarray(square)


@pytest.mark.parametrize("size", [(32, 32), (50, 20), (20, 50), (7, 90), (200, 1), (1, 1), (9, 8)])
@pytest.mark.parametrize("suffix", ["png", "bmp", "webp", "tif", "ppm"])
def test_pictures_are_scaled_and_padded_as_pillow_does_it(tmp_path, size, suffix):
    picture = Image.fromarray(noise(*size))
    picture.save(tmp_path / f"a.{suffix}", **({"lossless": True} if suffix == "webp" else {}))
    np.testing.assert_array_equal(one(tmp_path, f"a.{suffix}", 32), padded(picture, 32))


def test_shrinking_averages_instead_of_picking(tmp_path):
    board = np.indices((256, 256)).sum(0) % 2 * 255
    Image.fromarray(board.astype(np.uint8)).save(tmp_path / "board.png")
    found = one(tmp_path, "board.png", 16)
    assert abs(found.astype(int) - 127).max() <= 2


@pytest.mark.parametrize("size", [(800, 600), (100, 900)])
def test_large_jpegs_are_read_at_a_fraction_and_look_the_same(tmp_path, size):
    picture = Image.fromarray(gradient(*size))
    picture.save(tmp_path / "a.jpg", quality=95)
    assert abs(one(tmp_path, "a.jpg", 32).astype(int) - padded(picture, 32)).max() <= 8


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_cameras_that_were_turned_are_turned_back(tmp_path, orientation, suffix):
    upright = Image.new("RGB", (40, 20))
    ImageDraw.Draw(upright).rectangle((0, 0, 19, 9), fill=(255, 255, 255))  # the upper left quarter
    undo = {
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }
    stored = upright
    for step in undo.get(orientation, []):
        stored = stored.transpose(step)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / f"a.{suffix}", exif=exif)
    found = one(tmp_path, f"a.{suffix}", 40).astype(int)
    assert found[12:18, 2:18].min() > 240
    assert found[:, 22:].max() < 15
    assert found[22:].max() < 15


def test_transparent_grey_palette_and_deep_pictures(tmp_path):
    grey = noise(8, 8, channels=1)[..., 0]
    deep = (grey.astype(np.uint16) * 257).astype(np.uint16)
    as_grey = np.repeat(grey[..., None], 3, axis=2)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(deep).save(tmp_path / "deep.png")
    Image.fromarray(deep).save(tmp_path / "deep.tif")
    Image.fromarray(grey.astype(np.int32) * 257).save(tmp_path / "integers.tif")
    Image.fromarray(grey.astype(np.float32) / 255).save(tmp_path / "floats.tif")
    Image.fromarray(grey.astype(np.int32) + 2**20).save(tmp_path / "huge.tif")
    for name in ("grey.png", "deep.png", "deep.tif", "integers.tif", "floats.tif"):
        np.testing.assert_array_equal(one(tmp_path, name, 8), as_grey, err_msg=name)
    assert one(tmp_path, "huge.tif", 8).min() > 250

    colours = noise(8, 8)
    palette = Image.fromarray(colours).quantize(16)
    palette.save(tmp_path / "palette.png")
    np.testing.assert_array_equal(
        one(tmp_path, "palette.png", 8), np.asarray(palette.convert("RGB"))
    )
    palette.save(tmp_path / "palette.gif")
    np.testing.assert_array_equal(
        one(tmp_path, "palette.gif", 8), np.asarray(palette.convert("RGB"))
    )

    alpha = np.dstack([colours, np.where(np.arange(64).reshape(8, 8) % 2, 255, 0).astype(np.uint8)])
    Image.fromarray(alpha).save(tmp_path / "alpha.png")
    np.testing.assert_array_equal(
        one(tmp_path, "alpha.png", 8), np.where(alpha[..., 3:] == 255, colours, 255)
    )
    Image.fromarray(np.dstack([grey, alpha[..., 3]]), "LA").save(tmp_path / "la.png")
    np.testing.assert_array_equal(
        one(tmp_path, "la.png", 8), np.where(alpha[..., 3:] == 255, as_grey, 255)
    )
    hidden = Image.fromarray(grey % 4, "P")
    hidden.putpalette([0, 0, 0, 10, 20, 30, 40, 50, 60, 70, 80, 90])
    hidden.save(tmp_path / "hidden.png", transparency=0)
    expected = np.asarray([[255] * 3, [10, 20, 30], [40, 50, 60], [70, 80, 90]], dtype=np.uint8)[
        grey % 4
    ]
    np.testing.assert_array_equal(one(tmp_path, "hidden.png", 8), expected)
    Image.fromarray(gradient(8, 8)).convert("CMYK").save(tmp_path / "cmyk.jpg", quality=100)
    assert abs(one(tmp_path, "cmyk.jpg", 8).astype(int) - gradient(8, 8)).max() < 40
    Image.fromarray(grey > 100).save(tmp_path / "bits.png")
    np.testing.assert_array_equal(one(tmp_path, "bits.png", 8), np.where(as_grey > 100, 255, 0))


def chunk(kind, content):
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def bomb(side):
    """A few bytes that claim to be a picture of side × side pixels."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@pytest.fixture
def folder(tmp_path):
    """Two good pictures, in a folder and below it, among all kinds of others."""
    made = tmp_path / "pictures"
    (made / "below").mkdir(parents=True)
    Image.fromarray(noise(8, 8, 1)).save(made / "good.png")
    Image.fromarray(noise(8, 8, 2)).save(made / "below" / "good.png")
    whole = io.BytesIO()
    Image.fromarray(noise(64, 64)).save(whole, "JPEG")
    (made / "cut.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    (made / "cut.png").write_bytes((made / "good.png").read_bytes()[:100])
    (made / "empty.png").write_bytes(b"")
    (made / "text.png").write_text("no picture")
    (made / "script.eps").write_text(
        "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    )
    (made / "large.png").write_bytes(bomb(11_000))
    (made / "bomb.png").write_bytes(bomb(60_000))
    frames = [Image.fromarray(noise(8, 8, seed)) for seed in range(3)]
    for name in ("moving.gif", "moving.webp", "pages.tif"):
        frames[0].save(made / name, save_all=True, append_images=frames[1:])
    Image.fromarray(gradient(64, 64)).save(
        made / "phone.jpg", format="MPO", save_all=True, append_images=frames[:1]
    )
    (made / "link.png").symlink_to(made / "good.png")
    (made / "loop.png").symlink_to(made / "loop.png")
    return made


PROBLEMS = {
    "cut.jpg": "is truncated or damaged",
    "cut.png": "is truncated or damaged",
    "empty.png": "is empty",
    "text.png": "is not in a supported format",
    "script.eps": "is not in a supported format",
    "large.png": "has 11000 × 11000 pixels, more than 89 million",
    "bomb.png": "has more than 89 million pixels",
    "moving.gif": "is animated or has several pages (3 frames)",
    "moving.webp": "is animated or has several pages (3 frames)",
    "pages.tif": "is animated or has several pages (3 frames)",
    "below": "is not a file",
    "": "is not a file",
    "none.png": "does not exist",
    "nul\0.png": "does not exist",
    "below\\good.png": "does not exist",
}


def test_pictures_that_cannot_be_read_are_skipped_and_listed_in_order(folder, recwarn):
    seen = []
    paths = ["good.png", *PROBLEMS, "below/good.png", "link.png"]
    found = read_pictures(
        folder, paths, 8, on_error="skip", on_progress=lambda *progress: seen.append(progress)
    )
    assert found.kept.tolist() == [0, len(paths) - 2, len(paths) - 1]
    assert found.kept.dtype == np.int64
    np.testing.assert_array_equal(found.x, [noise(8, 8, 1), noise(8, 8, 2), noise(8, 8, 1)])
    assert [path for path, _ in found.problems] == list(PROBLEMS)
    for path, reason in found.problems:
        assert PROBLEMS[path] in reason
        assert "\n" not in reason
    assert seen == [(len(paths), len(paths))]
    assert not recwarn.list


@pytest.mark.parametrize("path", PROBLEMS)
def test_or_else_the_first_one_stops_it(folder, path):
    message = refusal(lambda: read_pictures(folder, ["good.png", path, "none"], 8))
    assert f"The picture {path!r}" in message
    assert "(row 2)" in message
    assert PROBLEMS[path] in message


def test_a_loop_of_links_is_a_problem(folder):
    assert [
        path
        for path, _ in read_pictures(folder, ["good.png", "loop.png"], 8, on_error="skip").problems
    ] == ["loop.png"]


def test_what_phones_write_beside_a_picture_is_no_second_frame(folder):
    assert abs(one(folder, "phone.jpg", 64).astype(int) - gradient(64, 64)).mean() < 8


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize(
    "path",
    [
        "../secret.png",
        "below/../../secret.png",
        "/etc/passwd",
        "out.png",
        "outside/secret.png",
        "..",
        "..\\x",
        "C:\\x",
    ],
)
def test_a_path_that_leaves_the_folder_is_refused_even_where_problems_are_skipped(
    folder, path, on_error
):
    Image.fromarray(noise(8, 8)).save(folder.parent / "secret.png")
    (folder / "out.png").symlink_to(folder.parent / "secret.png")
    (folder / "outside").symlink_to(folder.parent)
    message = refusal(lambda: read_pictures(folder, ["good.png", path], 8, on_error=on_error))
    assert "leads out of" in message
    assert "(row 2)" in message


def test_a_folder_that_is_itself_a_link_is_fine(folder):
    link = folder.parent / "link"
    link.symlink_to(folder)
    np.testing.assert_array_equal(one(link, "good.png", 8), noise(8, 8, 1))


def test_rows_stay_in_order_over_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PROGRESS_EVERY", 4)
    monkeypatch.setattr(reading, "AHEAD", 3)
    for i in range(10):
        Image.new("RGB", (3, 3), (i, i, i)).save(tmp_path / f"{i}.png")
    seen = []
    order = [3, 1, 4, 1, 5, 9, 2, 6, 0, 8, 7]
    found = read_pictures(
        tmp_path,
        [f"{i}.png" for i in order],
        2,
        on_progress=lambda *progress: seen.append(progress),
    )
    assert found.x[:, 0, 0, 0].tolist() == order
    assert seen == [(4, 11), (8, 11), (11, 11)]
    assert read_pictures(tmp_path, [], 2).x.shape == (0, 2, 2, 3)


def test_refusals_of_the_call_itself(folder):
    assert "There is no folder" in refusal(lambda: read_pictures(folder / "none", ["a"], 8))
    assert "side is 0" in refusal(lambda: read_pictures(folder, ["good.png"], 0))
    assert "on_error is 'ignore'" in refusal(
        lambda: read_pictures(folder, ["good.png"], 8, on_error="ignore")
    )
    assert "None of the 2 pictures" in refusal(
        lambda: read_pictures(folder, ["none", "empty.png"], 8, on_error="skip")
    )


# ---- the geometry of a backbone ------------------------------------------------------------------


def resized_and_cropped(picture, resize, side, filter):
    """Scale the shorter edge, then cut out the middle, in two steps."""
    shorter = min(picture.size)
    large = picture.resize([edge * resize // shorter for edge in picture.size], filter)
    left, top = (large.width - side) // 2, (large.height - side) // 2
    return np.asarray(large.crop((left, top, left + side, top + side)))


@pytest.mark.parametrize("size", [(60, 40), (40, 61), (32, 32), (7, 50)])
@pytest.mark.parametrize(
    ("resize", "resample"), [(None, "bilinear"), (36, "bicubic"), (48, "lanczos"), (40, "nearest")]
)
def test_a_crop_is_the_middle_of_the_scaled_picture(tmp_path, size, resize, resample):
    picture = Image.fromarray(noise(*size))
    picture.save(tmp_path / "a.png")
    found = read_pictures(
        tmp_path, ["a.png"], Preprocessing(32, fit="crop", resize=resize, resample=resample)
    ).x[0]
    expected = resized_and_cropped(picture, resize or 32, 32, Image.Resampling[resample.upper()])
    np.testing.assert_array_equal(found, expected)


def test_stretching_changes_the_aspect_ratio(tmp_path):
    picture = Image.fromarray(noise(50, 20))
    picture.save(tmp_path / "a.png")
    found = read_pictures(
        tmp_path, ["a.png"], Preprocessing(16, fit="stretch", resample="bicubic")
    ).x[0]
    np.testing.assert_array_equal(found, picture.resize((16, 16), Image.Resampling.BICUBIC))


@pytest.mark.parametrize("fit", ["pad", "crop", "stretch"])
@pytest.mark.parametrize("size", [(800, 600), (130, 520), (65, 64)])
def test_a_jpeg_is_never_decoded_smaller_than_needed(tmp_path, monkeypatch, fit, size):
    """A draft that is too small would be scaled up again and lose its details."""
    decoded = []
    original = pictures._as_rgb
    monkeypatch.setattr(
        pictures, "_as_rgb", lambda picture: decoded.append(picture.size) or original(picture)
    )
    Image.fromarray(gradient(*size)).save(tmp_path / "a.jpg", quality=95)
    read_pictures(
        tmp_path, ["a.jpg"], Preprocessing(32, fit=fit, resize=48 if fit == "crop" else None)
    )
    needed = 2 * (48 if fit == "crop" else 32)
    assert decoded[0] == size or min(decoded[0]) >= needed
    assert (
        min(decoded[0]) < 2 * needed or max(size) < 8 * needed
    )  # a larger fraction than needed would take longer


def test_a_crop_of_a_long_thin_picture_needs_little_memory(tmp_path):
    """Scaled as a whole, it would have 224 × 4,480,000 pixels."""
    Image.fromarray(noise(20_000, 1)).save(tmp_path / "a.png")
    found = read_pictures(tmp_path, ["a.png"], Preprocessing(224, fit="crop")).x[0]
    assert found.shape == (224, 224, 3)
    assert (found == found[0]).all()


def test_inverted_cmyk_as_adobe_writes_it_has_the_right_colours(tmp_path):
    red = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    red.save(tmp_path / "red.jpg", quality=100)
    assert b"Adobe" in (tmp_path / "red.jpg").read_bytes()
    pixel = one(tmp_path, "red.jpg", 16)[8, 8].tolist()
    assert pixel[0] > 245
    assert max(pixel[1:]) < 10


# ---- a folder ------------------------------------------------------------------------------------


def test_the_pictures_of_a_folder_are_listed_by_suffix_in_order(tmp_path):
    inner = tmp_path / "photos"
    (inner / "b" / "c").mkdir(parents=True)
    (inner / ".hidden").mkdir()
    for name in (
        "b/c/2.JPG",
        "b/1.png",
        "a.webp",
        "notes.txt",
        "b/.hidden.png",
        ".hidden/x.png",
        "._a.jpg",
        "é.jpeg",
        "labels.csv",
    ):
        (inner / name).write_bytes(b"")
    (tmp_path / "secret.png").write_bytes(b"")
    (inner / "inside.png").symlink_to(inner / "a.webp")
    (inner / "outside.png").symlink_to(tmp_path / "secret.png")
    (inner / "linked").symlink_to(tmp_path)
    assert list_pictures(inner) == ["a.webp", "b/1.png", "b/c/2.JPG", "inside.png", "é.jpeg"]


def test_a_link_to_nothing_is_listed_and_reported_when_it_is_read(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "gone.png").symlink_to(tmp_path / "none.png")
    assert list_pictures(tmp_path) == ["a.png", "gone.png"]


def test_a_folder_without_pictures_and_names_that_are_not_text_are_refused(tmp_path):
    assert "There are no pictures in" in refusal(lambda: list_pictures(tmp_path))
    assert "There is no folder" in refusal(lambda: list_pictures(tmp_path / "none"))
    (tmp_path / "a\udcff.png").write_bytes(b"")
    assert "is not UTF-8" in refusal(lambda: list_pictures(tmp_path))


def test_a_box_is_the_part_of_the_picture_that_pillow_crops(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    boxes = {
        (10, 5, 8, 8): (10, 5, 18, 13),
        (2.5, 3.2, 4, 4.5): (2, 3, 7, 8),
        (35, 20, 20, 20): (35, 20, 40, 30),
    }
    found = read_pictures(tmp_path, [with_box("a.png", *box) for box in boxes], 16).x
    for picture, (left, top, right, bottom) in zip(found, boxes.values(), strict=True):
        Image.fromarray(pixels[top:bottom, left:right]).save(tmp_path / "part.png")
        assert np.array_equal(picture, read_pictures(tmp_path, ["part.png"], 16).x[0])
    assert "the box is outside of them" in refusal(
        lambda: read_pictures(tmp_path, ["a.png#xywh=50,0,5,5"], 8)
    )
    assert "does not exist" in refusal(lambda: read_pictures(tmp_path, ["b.png#xywh=0,0,5,5"], 8))
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "link.png").symlink_to(tmp_path / "a.png")
    for path in ("../a.png#xywh=0,0,5,5", "link.png#xywh=0,0,5,5"):
        assert "leads out of" in refusal(
            lambda path=path: read_pictures(tmp_path / "inner", [path], 8)
        )


def test_boxes_of_one_picture_are_different_content(tmp_path):
    Image.fromarray(noise(40, 30)).save(tmp_path / "a.png")
    names = ("a.png", "a.png#xywh=0,0,9,9", "a.png#xywh=5,5,9,9", "a.png#xywh=0,0,9,9")
    digests = [content_digest(str(tmp_path / name)) for name in names]
    assert len(set(digests)) == 3
    assert digests[1] == digests[3]


def test_threads_work_ahead_in_order_and_end_with_their_caller(tmp_path):
    begun, before = [], threading.active_count()
    paths = [str(i) for i in range(1000)]

    def number(file):
        begun.append(file)
        return int(Path(file).name)

    results = call_for_pictures(number, tmp_path, paths, "stop", 10)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(begun) <= 5 + 10
    results.close()
    assert threading.active_count() == before
    assert list(call_for_pictures(number, tmp_path, [], "stop", 1)) == []
