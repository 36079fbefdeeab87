"""Image sets from what people have on disk, and candidate sets from what people said."""

import gzip
import json

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from ltpll.errors import InputError
from ltpll_research.image_sets.convert import (
    check_name,
    read_images,
    read_sets,
    with_labels_of_people,
)
from ltpll_research.image_sets.prepared import load_image_set, read_meta, write_image_set
from support.commands import research_here as research
from support.pictures import coloured_images
from support.refusals import refusal

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (12, 6, 6, 3), dtype=np.uint8)
LABELS = np.arange(12) % 3


def save_pictures(folder, name_of):
    for i, pixels in enumerate(PIXELS):
        path = folder / name_of(i, "abc"[LABELS[i]])
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)


def as_rows(x, y):
    return sorted((image.tobytes(), int(label)) for image, label in zip(x, y, strict=True))


EXPECTED = as_rows(PIXELS, LABELS)


# ---- folders -------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ["test", "val"])
def test_class_folders_below_train_and_test_are_the_splits(tmp_path, test):
    save_pictures(tmp_path, lambda i, c: f"{'train' if i < 9 else test}/{c}/{i}.png")
    found = read_images(tmp_path, "mine", side=6)
    assert found.classes == ("a", "b", "c")
    assert as_rows(found.x_train, found.y_train) == as_rows(PIXELS[:9], LABELS[:9])
    assert as_rows(found.x_test, found.y_test) == as_rows(PIXELS[9:], LABELS[9:])


def test_a_validation_folder_beside_a_test_folder_is_left_out(tmp_path):
    save_pictures(tmp_path, lambda i, c: f"{['train', 'test', 'val'][i // 3 % 3]}/{c}/{i}.png")
    found = read_images(tmp_path, "mine", side=6)
    assert (len(found.y_train), len(found.y_test)) == (6, 3)


def test_without_splits_a_share_of_every_class_is_held_out(tmp_path):
    save_pictures(tmp_path, lambda i, c: f"{c}/{i}.png")
    found, again = (read_images(tmp_path, "mine", side=6, test_share=0.25) for _ in range(2))
    assert np.bincount(found.y_test).tolist() == [1, 1, 1]
    assert np.array_equal(found.x_test, again.x_test)
    both = (
        np.concatenate([found.x_train, found.x_test]),
        np.concatenate([found.y_train, found.y_test]),
    )
    assert as_rows(*both) == EXPECTED


def test_folders_of_superclasses_are_kept(tmp_path):
    above = {"a": "x", "b": "y", "c": "x"}
    save_pictures(tmp_path, lambda i, c: f"{'train' if i < 9 else 'test'}/{above[c]}/{c}/{i}.png")
    found = read_images(tmp_path, "mine", side=6)
    assert (found.classes, found.superclasses) == (("a", "b", "c"), ("x", "y"))
    assert found.superclass.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("name_of", "fragment"),
    [
        (lambda i, c: f"{i}.png", "not in one folder per class"),
        (lambda i, c: f"{c}/{i}.png" if i else "p/q/0.png", "not in one folder per class"),
        (lambda i, c: f"{'train' if c != 'c' else 'test'}/{c}/{i}.png", "no training pictures"),
    ],
)
def test_folders_that_are_no_classes_are_refused(tmp_path, name_of, fragment):
    save_pictures(tmp_path, name_of)
    assert fragment in refusal(lambda: read_images(tmp_path, "mine", side=6))


# ---- arrays --------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["{0}_{1}", "{1}_{2}"])
def test_an_archive_of_arrays_has_names_of_keras_or_of_medmnist(tmp_path, names):
    arrays = {}
    for split, rows in (("train", slice(9)), ("test", slice(9, None))):
        arrays[names.format("x", split, "images")] = PIXELS[rows]
        arrays[names.format("y", split, "labels")] = LABELS[rows, None]  # MedMNIST's are a column
    np.savez(tmp_path / "a.npz", **arrays, classes=np.array(["ant", "bee", "cat"]))
    found = read_images(tmp_path / "a.npz", "mine")
    assert found.classes == ("ant", "bee", "cat")
    assert np.array_equal(found.x_train, PIXELS[:9])
    assert np.array_equal(found.y_test, LABELS[9:])


def idx(array):
    sizes = np.asarray(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_of_fashion_mnist_are_read_as_grey_images(tmp_path, packed):
    grey = PIXELS[..., 0]
    for prefix, rows in (("train", slice(9)), ("t10k", slice(9, None))):
        for what, array in (("images-idx3", grey[rows]), ("labels-idx1", LABELS[rows])):
            path = tmp_path / f"{prefix}-{what}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    found = read_images(tmp_path, "fashion")
    assert np.array_equal(found.x_train, np.repeat(grey[:9, ..., None], 3, axis=3))
    assert np.array_equal(found.y_test, LABELS[9:])
    (tmp_path / f"t10k-labels-idx1-ubyte{'.gz' if packed else ''}").write_bytes(b"\0\0\x08\x01")
    assert "is not an idx file" in refusal(lambda: read_images(tmp_path, "fashion"))


def test_an_idx_file_that_claims_to_be_huge_is_refused_before_it_is_read(tmp_path):
    sizes = np.asarray([2**31, 2**10, 2**10], ">u4").tobytes()
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / f"{name}-ubyte").write_bytes(bytes([0, 0, 8, 3]) + sizes)
    assert "would expand" in refusal(lambda: read_images(tmp_path, "mine"))


def test_svhn_has_images_last_and_zeros_as_tens(tmp_path):
    labels = np.where(LABELS == 0, 10, LABELS)
    for split, rows in (("train", slice(9)), ("test", slice(9, None))):
        x = PIXELS[rows].transpose(1, 2, 3, 0)
        savemat(tmp_path / f"{split}_32x32.mat", {"X": x, "y": labels[rows, None].astype(np.uint8)})
    found = read_images(tmp_path, "svhn")
    assert np.array_equal(found.x_train, PIXELS[:9])
    assert np.array_equal(found.y_train, LABELS[:9])


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"x_train": PIXELS[:9].astype(float)}, "must be unsigned bytes"),
        ({"y_train": LABELS[:8]}, "not one class number per image"),
        ({"y_test": -LABELS[9:]}, "not one class number per image"),
        ({"x_test": PIXELS[9:, :4]}, "all of one size"),
        ({"classes": np.array(["a"])}, "no class name fits"),
        ({"x_test": np.array([{}])}, "plain arrays"),
    ],
)
def test_arrays_that_are_no_image_set_are_refused(tmp_path, change, fragment):
    arrays = {"x_train": PIXELS[:9], "y_train": LABELS[:9]}
    arrays |= {"x_test": PIXELS[9:], "y_test": LABELS[9:]}
    np.savez(tmp_path / "a.npz", **(arrays | change))
    assert fragment in refusal(lambda: read_images(tmp_path / "a.npz", "mine"))


@pytest.mark.parametrize("name", ["cifar10", "../a", "", ".a", "a b"])
def test_a_name_that_is_taken_or_leads_elsewhere_is_refused(name):
    with pytest.raises(InputError, match="choose another --name"):
        check_name(name)


# ---- sets of people ------------------------------------------------------------------------------


def test_votes_of_each_class_and_labels_of_each_person_become_sets(tmp_path):
    votes = np.array([[3, 0, 1], [0, 50, 0]])
    np.save(tmp_path / "counts.npy", votes)
    assert read_sets(tmp_path / "counts.npy", "abc").dense().tolist() == (votes > 0).tolist()
    np.save(tmp_path / "people.npy", np.array([[0, 0], [1, 2]]))
    assert [read_sets(tmp_path / "people.npy", "abc").row(i) for i in (0, 1)] == [[0], [1, 2]]


PEOPLE = [[[0, 2], [1]], [[1], [1, 2]], [[2], [2]]]


@pytest.mark.parametrize("content", [PEOPLE, {str(i): row for i, row in enumerate(PEOPLE)}])
@pytest.mark.parametrize(
    ("combine", "expected"),
    [("union", [[0, 1, 2], [1, 2], [2]]), ("largest", [[0, 2], [1, 2], [2]])],
)
def test_sets_of_several_people_are_joined_or_the_vaguest_is_taken(
    tmp_path, content, combine, expected
):
    (tmp_path / "sets.json").write_text(json.dumps(content))
    found = read_sets(tmp_path / "sets.json", "abc", combine)
    assert [found.row(i) for i in range(3)] == expected


def test_labels_of_cifar10n_are_the_union_of_three_people_and_its_truth_is_checked(tmp_path):
    images = coloured_images(4, 2, 1)
    labels = {f"random_label{k}": (images.y_train + (k == 3)) % 4 for k in (1, 2, 3)}
    np.savez(tmp_path / "n.npz", **labels, clean_label=images.y_train, worse_label=images.y_train)
    found = with_labels_of_people(images, tmp_path / "n.npz")
    expected = [sorted({y, (y + 1) % 4}) for y in images.y_train.tolist()]
    assert [sorted(found.candidates.row(i)) for i in range(8)] == expected
    np.savez(tmp_path / "n.npz", **labels, clean_label=images.y_train[::-1])
    message = refusal(lambda: with_labels_of_people(images, tmp_path / "n.npz"))
    assert "not those of cifar10" in message


def test_labels_of_test_images_exchange_the_splits(tmp_path):
    images = coloured_images(4, 5, 3)
    np.save(tmp_path / "h.npy", np.eye(4)[images.y_test])
    found = with_labels_of_people(images, tmp_path / "h.npy")
    assert np.array_equal(found.x_train, images.x_test)
    assert np.array_equal(found.y_test, images.y_train)
    np.save(tmp_path / "h.npy", np.eye(4))
    assert "has 4 sets" in refusal(lambda: with_labels_of_people(images, tmp_path / "h.npy"))


@pytest.mark.parametrize(
    ("name", "content", "fragment"),
    [
        ("a.pkl", b"\x80\x04", "docs/benchmarks.md says how pickled labels are converted"),
        ("a.json", b"[[1]]", "does not hold lists of class numbers"),
        ("a.json", b'{"1": [[1]]}', "cannot be read"),
        ("a.json", b"[" * 100_000, "cannot be read"),
        ("a.json", b"[[[7]]]", "7"),
        ("a.json", b"[[]]", "Row 0"),
        ("a.npy", b"\x93NUMPY", "plain arrays"),
    ],
)
def test_files_that_hold_no_sets_are_refused(tmp_path, name, content, fragment):
    (tmp_path / name).write_bytes(content)
    assert fragment in refusal(lambda: read_sets(tmp_path / name, "abc"))


# ---- an image set of one's own -------------------------------------------------------------------


def test_four_arrays_and_class_names_are_an_image_set(tmp_path):
    arrays = {"x_train": PIXELS[..., :1], "y_train": LABELS.astype(np.int32)}
    arrays |= {"x_test": PIXELS[..., 0], "y_test": LABELS.astype(np.uint8)}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "meta.json").write_text('{"classes": ["a", "b", "c"], "superclass": [0, 0, 1]}')
    found = load_image_set(str(tmp_path))
    assert np.array_equal(found.x_train, np.repeat(PIXELS[..., :1], 3, axis=3))
    assert found.y_train.dtype == found.y_test.dtype == np.int64
    assert (found.name, found.superclass.tolist()) == (tmp_path.name, [0, 0, 1])
    other = load_image_set(str(tmp_path))
    assert found.content == other.content != ""
    np.save(tmp_path / "y_train.npy", LABELS[::-1])
    assert load_image_set(str(tmp_path)).content != found.content


def test_a_converted_set_is_listed_and_found_by_its_name_and_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LTPLL_DATA", str(tmp_path / "root"))
    save_pictures(tmp_path / "pets", lambda i, c: f"{c}/{i}.png")
    shown = research("data", "convert", tmp_path / "pets", "--side", "6")
    assert "pets: 9 training and 3 test images of 3 classes" in shown
    assert "pets: 9 training" in research("data", "list")
    folder = tmp_path / "root" / "pets"
    assert read_meta(folder, verify=True).classes == ("a", "b", "c")
    assert np.array_equal(load_image_set("pets").x_test, load_image_set(str(folder)).x_test)
    (tmp_path / "sets.json").write_text(json.dumps([[[0, 1, 2]]] * 9))
    more = ["--labels", tmp_path / "sets.json", "--name", "voted"]
    assert "voted: 9 training" in research("data", "convert", "pets", *more)
    assert load_image_set("voted").candidates.row(0) == [0, 1, 2]
    assert "already" in research("data", "convert", "pets", status=2)


def test_a_set_that_is_no_published_one_cannot_be_damaged_unnoticed(tmp_path):
    images = coloured_images(3, 4, 2)._replace(name="mine")
    folder = write_image_set(images, tmp_path)
    (folder / "x_test.npy").write_bytes(b"short")
    message = refusal(lambda: load_image_set("mine", tmp_path))
    assert "x_test.npy has 5 bytes" in message
    assert "docs/benchmarks.md" in message
