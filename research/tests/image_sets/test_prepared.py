"""A prepared set equals the archive, a failure changes nothing, and damage is refused."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ltpll.candidates import Candidates
from ltpll.errors import UnknownNameError
from ltpll_research.image_sets import archives
from ltpll_research.image_sets.archives import PublishedArchive
from ltpll_research.image_sets.cifar import read_cifar10
from ltpll_research.image_sets.prepared import (
    ImageSet,
    data_root,
    load_image_set,
    prepare_image_set,
    read_meta,
    write_image_set,
)
from support.image_archives import cifar10_files, cifar100_files, tar_bytes, voc_files
from support.refusals import refusal


def tree(folder):
    """The content of every file in a folder and its subfolders, including hidden ones."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Write archives to disk and publish their checksums."""

    def publish(name, *members, packed=False):
        paths = []
        for i, files in enumerate(members):
            paths.append(tmp_path / "given" / f"{name}-{i}.tar")
            paths[-1].parent.mkdir(exist_ok=True)
            paths[-1].write_bytes(tar_bytes(files, packed=packed))
        sources = [
            PublishedArchive(
                f"https://example.invalid/{p.name}",
                hashlib.md5(p.read_bytes(), usedforsecurity=False).hexdigest(),
            )
            for p in paths
        ]
        monkeypatch.setitem(archives.PUBLISHED_ARCHIVES, name, tuple(sources))
        return paths

    return publish


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def good(publish, root):
    """The folder of a prepared cifar10, and the archive it came from."""
    (archive,) = publish("cifar10", cifar10_files()[0], packed=True)
    return prepare_image_set("cifar10", root, [archive]), archive


# ---- round trips -----------------------------------------------------------------------------


def assert_same(a, b):
    assert a.name == b.name
    assert a.classes == b.classes
    assert a.superclasses == b.superclasses
    for field in ("x_train", "y_train", "x_test", "y_test"):
        assert getattr(a, field).dtype == getattr(b, field).dtype
        assert np.array_equal(getattr(a, field), getattr(b, field))
    assert (a.superclass is None) == (b.superclass is None)
    assert a.superclass is None or np.array_equal(a.superclass, b.superclass)


@pytest.mark.parametrize("mmap", [False, True])
def test_a_loaded_cifar10_is_the_one_in_the_archive(good, root, mmap):
    folder, archive = good
    assert folder == root / "cifar10"
    loaded = load_image_set("cifar10", root, mmap=mmap)
    assert_same(loaded, read_cifar10([archive]))
    assert isinstance(loaded.x_train, np.memmap) == mmap
    assert sorted(tree(root)) == [
        f"cifar10/{file}"
        for file in ("meta.json", "x_test.npy", "x_train.npy", "y_test.npy", "y_train.npy")
    ]


def test_cifar100_keeps_its_superclasses(publish, root):
    prepare_image_set("cifar100", root, publish("cifar100", cifar100_files()[0], packed=True))
    loaded = load_image_set("cifar100", root)
    assert loaded.superclass.shape == (100,)
    assert loaded.superclass.dtype == np.int64
    assert np.bincount(loaded.superclass).tolist() == [5] * 20
    assert loaded.superclasses[3] == "coarse 3"


def test_voc_keeps_its_candidates(publish, root):
    paths = publish("voc2007", *voc_files())
    prepare_image_set("voc2007", root, paths[::-1])
    loaded = load_image_set("voc2007", root)
    assert len(loaded.y_test) == 40
    assert isinstance(loaded.candidates, Candidates)
    assert [[loaded.classes[label] for label in loaded.candidates.row(i)] for i in (0, 4)] == [
        ["bus", "car"],
        ["dog", "person"],
    ]
    assert loaded.candidates.classes == loaded.classes
    assert json.loads((root / "voc2007" / "meta.json").read_text())["sources"] == [
        {"archive": path.name, "md5": source.md5}
        for path, source in zip(paths, archives.PUBLISHED_ARCHIVES["voc2007"], strict=True)
    ]


def test_the_description_has_the_checksum_and_size_of_every_array(good):
    folder, archive = good
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["files"] == {
        path.name: {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "bytes": path.stat().st_size,
        }
        for path in folder.glob("*.npy")
    }
    assert meta["n_train"] == 35
    assert meta["n_test"] == 10
    assert meta["sources"] == [
        {"archive": archive.name, "md5": archives.PUBLISHED_ARCHIVES["cifar10"][0].md5}
    ]


def test_preparing_twice_gives_the_same_bytes(good, root):
    before = tree(root)
    prepare_image_set("cifar10", root, [good[1]])
    assert tree(root) == before


def test_loading_needs_neither_pooch_nor_a_reader(good, root):
    code = (
        "import sys\n"
        "sys.modules['pooch'] = None\n"
        "from ltpll_research.image_sets.prepared import load_image_set\n"
        f"load_image_set('cifar10', {str(root)!r})\n"
        "readers = ['ltpll_research.image_sets.' + name for name in ('cifar', 'voc')]\n"
        "sys.exit(any(m in sys.modules for m in (*readers, 'PIL', 'requests')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- preparations that fail ------------------------------------------------------------------


def break_record(files):
    files["cifar-10-batches-bin/test_batch.bin"] = files["cifar-10-batches-bin/test_batch.bin"][1:]


def break_member(files):
    del files["cifar-10-batches-bin/data_batch_5.bin"]


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize(
    ("damage", "fragment"),
    [(break_record, "cannot reshape"), (break_member, "data_batch_5.bin")],
)
def test_a_bad_archive_leaves_everything_as_it_was(publish, root, existing, damage, fragment):
    if existing:
        prepare_image_set("cifar10", root, publish("cifar10", cifar10_files()[0]))
    before = tree(root)
    files = cifar10_files(1)[0]
    damage(files)
    archive = publish("cifar10", files)
    assert fragment in refusal(lambda: prepare_image_set("cifar10", root, archive))
    assert tree(root) == before


def test_a_modified_archive_is_refused(good, root):
    before = tree(root)
    good[1].write_bytes(tar_bytes(cifar10_files(1)[0]))
    assert "md5 sum" in refusal(lambda: prepare_image_set("cifar10", root, [good[1]]))
    assert tree(root) == before


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
@pytest.mark.parametrize("array", [0, 1, 3])
def test_a_full_disk_or_an_interrupt_leaves_the_old_set(good, root, monkeypatch, error, array):
    before, saved, real = tree(root), [], np.save

    def save(path, content, **options):
        real(path, content, **options)
        saved.append(path)
        if len(saved) > array:
            raise error

    monkeypatch.setattr(np, "save", save)
    if isinstance(error, OSError):
        message = refusal(lambda: prepare_image_set("cifar10", root, [good[1]]))
        assert "(No space left): free some space" in message
    else:
        with pytest.raises(KeyboardInterrupt):
            prepare_image_set("cifar10", root, [good[1]])
    assert tree(root) == before
    assert names(root) == ["cifar10"]


def test_leftovers_of_a_killed_preparation_are_removed(good, root):
    (root / ".cifar10.tmp").mkdir()
    (root / ".cifar10.tmp" / "x_train.npy").write_text("half")
    prepare_image_set("cifar10", root, [good[1]])
    assert names(root) == ["cifar10"]


def test_a_users_folder_with_the_name_of_a_set_is_left_alone(good, tmp_path):
    theirs = tmp_path / "mine" / "cifar10"
    theirs.mkdir(parents=True)
    (theirs / "precious").write_text("work")
    message = refusal(lambda: prepare_image_set("cifar10", tmp_path / "mine", [good[1]]))
    assert f"{theirs} exists and was not written by ltpll" in message
    assert tree(tmp_path / "mine") == {"cifar10/precious": b"work"}
    assert "is not an image set" in refusal(lambda: load_image_set("cifar10", tmp_path / "mine"))


def test_a_set_behind_a_link_is_replaced_at_its_target(good, root, tmp_path):
    (root / "cifar10").rename(tmp_path / "elsewhere")
    (root / "cifar10").symlink_to(tmp_path / "elsewhere")
    prepare_image_set("cifar10", root, [good[1]])
    assert (root / "cifar10").is_symlink()
    assert load_image_set("cifar10", root).y_train.shape == (35,)


def test_a_root_that_is_a_file_is_refused(good, tmp_path):
    (tmp_path / "taken").write_text("precious")
    assert "cannot be written" in refusal(
        lambda: prepare_image_set("cifar10", tmp_path / "taken", [good[1]])
    )
    assert (tmp_path / "taken").read_text() == "precious"


# ---- loading ---------------------------------------------------------------------------------


def test_a_missing_set_names_the_command_to_run(tmp_path, monkeypatch):
    message = refusal(lambda: load_image_set("cifar10", tmp_path))
    assert f"run `ltpll-research data prepare cifar10 --data-root {tmp_path}`" in message
    monkeypatch.setenv("LTPLL_DATA", str(tmp_path))
    assert "run `ltpll-research data prepare cifar10`." in refusal(
        lambda: load_image_set("cifar10")
    )


@pytest.mark.parametrize("call", [load_image_set, prepare_image_set])
def test_an_unknown_set_lists_the_known_ones(call, tmp_path):
    message = refusal(lambda: call("../cifar10", tmp_path), UnknownNameError)
    assert "cifar10, cifar100, voc2007" in message


def test_a_flipped_byte_is_found_by_verify(good, root):
    path = good[0] / "x_train.npy"
    content = bytearray(path.read_bytes())
    content[-7] ^= 1
    path.write_bytes(content)
    load_image_set("cifar10", root)
    message = refusal(lambda: read_meta(good[0], verify=True))
    assert "x_train.npy has changed since it was written" in message
    assert f"ltpll-research data prepare cifar10 --data-root {root}" in message


def resave(array):
    """Replace the array in a file and correct its size: only the content is wrong."""

    def damage(folder):
        file = "y_train.npy" if array.ndim == 1 else "x_train.npy"
        np.save(folder / file, array)
        correct_size(folder, file)

    return damage


def correct_size(folder, file):
    meta = json.loads((folder / "meta.json").read_text())
    meta["files"][file]["bytes"] = (folder / file).stat().st_size
    (folder / "meta.json").write_text(json.dumps(meta))


def edit(**changes):
    def damage(folder):
        meta = json.loads((folder / "meta.json").read_text())
        (folder / "meta.json").write_text(json.dumps({**meta, **changes}))

    return damage


def pickled(folder):
    np.save(folder / "y_train.npy", np.asarray([{}], dtype=object), allow_pickle=True)
    correct_size(folder, "y_train.npy")


def packed_labels(folder):
    np.savez(folder / "packed.npz", a=np.zeros(35, dtype=np.int64))
    (folder / "packed.npz").replace(folder / "y_train.npy")
    correct_size(folder, "y_train.npy")


def open_header(folder):
    content = (folder / "x_test.npy").read_bytes()
    (folder / "x_test.npy").write_bytes(content.replace(b"), }", b")   ", 1))


def test_a_set_without_entries_for_superclasses_is_read(good, root):
    meta = json.loads((good[0] / "meta.json").read_text())
    (good[0] / "meta.json").write_text(
        json.dumps({key: value for key, value in meta.items() if not key.startswith("superclass")})
    )
    assert load_image_set("cifar10", root).superclass is None


@pytest.mark.parametrize(
    ("damage", "fragment"),
    [
        (lambda folder: (folder / "x_test.npy").unlink(), "x_test.npy has None bytes"),
        (
            lambda folder: (folder / "x_test.npy").write_bytes(b"short"),
            "x_test.npy has 5 bytes instead of 30848",
        ),
        (lambda folder: (folder / "meta.json").write_text("{"), "meta.json: "),
        (lambda folder: (folder / "meta.json").write_text("[]"), "meta.json: Expected `object`"),
        (edit(format="ltpll image set 2"), "it is not a 'ltpll image set 1'"),
        (edit(name="cifar100"), "called 'cifar10'"),
        (edit(classes=3), "$.classes"),
        (edit(n_train="35"), "$.n_train"),
        (edit(n_train=34), "does not hold 34 images"),
        (edit(superclasses=1), "$.superclasses"),
        (
            edit(files={"../../etc/passwd": {"bytes": 1, "sha256": ""}}),
            "it does not list the array files",
        ),
        (edit(classes=["a", "b"]), "does not hold 35 images and labels of 2 classes"),
        (resave(np.zeros((35, 32, 32, 3), dtype=np.float32)), "does not hold 35 images"),
        (resave(np.zeros((35, 32, 32, 1), dtype=np.uint8)), "does not hold 35 images"),
        (resave(np.zeros(35, dtype=np.int32)), "does not hold 35 images"),
        (resave(np.zeros(34, dtype=np.int64)), "does not hold 35 images"),
        (resave(np.full(35, -1)), "does not hold 35 images"),
        (pickled, "Object arrays cannot be loaded"),
        (lambda folder: (folder / "meta.json").write_text("[" * 100_000), "meta.json: "),
        (edit(superclass=[10**30] * 10), "damaged"),
        (open_header, "EOF in multi-line statement"),
        (packed_labels, "damaged"),
    ],
)
def test_a_damaged_set_is_refused(good, root, damage, fragment):
    damage(good[0])
    message = refusal(lambda: load_image_set("cifar10", root))
    assert f"The image set in {good[0]} is damaged" in message
    assert fragment in message


@pytest.mark.parametrize(
    ("offsets", "labels", "fragment"),
    [
        ([0, 1, 2], [0, 1], "do not fit"),
        ([0, 2, 1, 3], [0, 1, 0], "damaged"),
        ([0, 1, 1, 2], [0, 2], "damaged"),
    ],
)
def test_damaged_candidates_are_refused(root, offsets, labels, fragment):
    x, y = np.zeros((3, 2, 2, 3), dtype=np.uint8), np.asarray([0, 1, 0])
    candidates = Candidates.of([[0, 1], [1], [0]])
    folder = write_image_set(
        ImageSet("voc2007", x, y, x, y, ("a", "b"), candidates=candidates), root
    )
    assert load_image_set("voc2007", root).candidates.row(0) == [0, 1]
    np.savez(folder / "candidates.npz", offsets=offsets, labels=labels)
    meta = json.loads((folder / "meta.json").read_text())
    meta["files"]["candidates.npz"]["bytes"] = (folder / "candidates.npz").stat().st_size
    (folder / "meta.json").write_text(json.dumps(meta))
    assert fragment in refusal(lambda: load_image_set("voc2007", root))


# ---- the data root and the list --------------------------------------------------------------


def test_the_data_root_is_the_option_then_the_variable_then_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LTPLL_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert data_root() == tmp_path / ".cache" / "ltpll"
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_root() == Path("/cache/ltpll")
    monkeypatch.setenv("LTPLL_DATA", "~/data")
    assert data_root() == tmp_path / "data"
    assert data_root("/mine") == Path("/mine")
    for name in ("LTPLL_DATA", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])
    assert (
        refusal(data_root)
        == "There is no home folder for the cache folder to be in: set LTPLL_DATA to a folder."
    )


def test_sets_are_written_to_and_read_from_the_folder_in_the_environment_variable(
    good, monkeypatch, tmp_path
):
    monkeypatch.setenv("LTPLL_DATA", str(tmp_path / "variable"))
    assert prepare_image_set("cifar10", archives=[good[1]]) == tmp_path / "variable" / "cifar10"
    assert load_image_set("cifar10").y_test.shape == (10,)


# ---- benchmark packs -------------------------------------------------------------------------


def strips(images, per_strip, **options):
    """Encoded vertical strips of images, as in a pack."""
    parts = []
    for start in range(0, len(images), per_strip):
        buffer = io.BytesIO()
        Image.fromarray(np.concatenate(images[start : start + per_strip])).save(buffer, **options)
        parts.append(buffer.getvalue())
    return np.frombuffer(b"".join(parts), dtype=np.uint8), np.cumsum([0, *map(len, parts)])


def test_benchmark_packs_become_image_sets(tmp_path, root, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (7, 32, 32, 3), dtype=np.uint8)
    buffer, offsets = strips(x, 3, format="WEBP", lossless=True)
    y = np.arange(7, dtype=np.uint8)
    common = {
        "train_buf": buffer,
        "train_off": offsets,
        "test_buf": buffer,
        "test_off": offsets,
        "y_train": y,
        "y_test": y,
    }
    coarse = {
        "names": [f"f{i}" for i in range(100)],
        "coarse_of_fine": np.arange(100) // 5,
        "coarse_names": [f"c{i}" for i in range(20)],
    }
    np.savez(tmp_path / "fine.npz", **common, **coarse)
    sets = rng.integers(0, 2, (7, 20), dtype=np.uint8)
    sets[np.arange(7), y] = 1
    np.savez(
        tmp_path / "voc.npz", **common, names=[f"v{i}" for i in range(20)], candidates=sets, size=32
    )
    script = Path(__file__).parents[3] / "benchmarks" / "unpack_packs.py"
    arguments = [script, tmp_path / "fine.npz", tmp_path / "voc.npz", "--data-root", root]
    monkeypatch.setattr(sys, "argv", [str(argument) for argument in arguments])
    runpy.run_path(str(script), run_name="__main__")
    fine, voc = load_image_set("cifar100", root), load_image_set("voc2007", root)
    for one in (fine, voc):
        assert np.array_equal(one.x_train, x)
        assert one.y_test.tolist() == list(range(7))
    assert fine.superclass.tolist() == (np.arange(100) // 5).tolist()
    assert fine.superclasses == tuple(f"c{i}" for i in range(20))
    assert np.array_equal(voc.candidates.dense().numpy(), sets.astype(bool))
    assert voc.classes[19] == "v19"
