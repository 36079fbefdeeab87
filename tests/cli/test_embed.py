"""The embed command: from a folder or a table to features that `ltpll train` accepts."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from ltpll.backbones import Backbone
from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.tables.reading import Reading
from support.commands import ltpll_here as ltpll
from support.photos import FakeEmbedder, fake_backbone
from support.user_tables import write_csv, write_trees


@pytest.fixture
def trees(tmp_path, monkeypatch):
    """A table of 48 pictures, the third of which is damaged, and a network that takes no time."""
    write_trees(tmp_path, 48)
    (tmp_path / "pictures" / "002.png").write_bytes(b"no picture")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LTPLL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ltpll.backbones.embedder.Embedder", lambda *_, **__: FakeEmbedder())
    monkeypatch.setattr(
        Backbone, "from_pretrained", classmethod(lambda cls, source: fake_backbone())
    )
    return tmp_path


EMBED = ("--backbone", "fake", "--out", "e.npy")


def test_a_picture_that_cannot_be_read_stops_the_job_and_skipping_it_leaves_a_table_to_train_on(
    trees,
):
    message = ltpll("embed", "labels.csv", "--images", "pictures", *EMBED, status=2)
    assert "The picture '002.png' in pictures (row 3) is not in a supported format" in message
    assert not (trees / "e.npy").exists()
    printed = ltpll("embed", "labels.csv", "--images", "pictures", *EMBED, "--on-error", "skip")
    assert "Wrote 47 rows of 5 features to e.npy" in printed
    assert "002.png is not in a supported format" in printed
    command = re.search(r"Next: ltpll (.*)", printed).group(1).split()
    assert command == ["train", "e.table.csv", "--features", "e.npy"]
    with Path("labels.csv").open() as before, Path("e.table.csv").open() as after:
        rows, left = list(csv.reader(before)), list(csv.reader(after))
    assert left == rows[:3] + rows[4:]
    printed = ltpll(*command, "--epochs", "1", "--folds", "0", "--device", "cpu", "--out", "run")
    assert "47 examples (5 features)" in printed
    # The whole table has one row more. A shuffled one is joined by path.
    message = ltpll(
        "train", "labels.csv", "--features", "e.npy", "--epochs", "1", "--out", "other", status=2
    )
    assert "e.npy lacks the features of 1 of 48 examples (002.png)" in message
    write_csv(trees / "shuffled.csv", left[0], left[:0:-1])
    printed = ltpll(
        "train",
        "shuffled.csv",
        *command[2:],
        "--epochs",
        "1",
        "--folds",
        "0",
        "--device",
        "cpu",
        "--out",
        "shuffled",
    )
    assert "in the order of the table" not in printed
    read = [
        read_examples(TableSource(Path(name), features=Path("e.npy"))).x
        for name in ("e.table.csv", "shuffled.csv")
    ]
    np.testing.assert_array_equal(read[0], read[1][::-1])


def test_a_table_of_annotations_gives_one_row_per_picture_in_its_order(trees):
    votes = [
        [f"{i:03d}.png", worker, label]
        for worker, label in (("a", "ash"), ("b", "birch"))
        for i in (7, 3, 5)
    ]
    write_csv(trees / "votes.csv", ["image", "worker", "label"], votes)
    printed = ltpll("embed", "votes.csv", "--images", "pictures", "--path", "image", *EMBED)
    assert "Next: ltpll train votes.csv --features e.npy" in printed
    found = np.load("e.npy")
    how = Reading(annotators="union", task="image")
    joined = read_examples(TableSource(Path("votes.csv"), how, features=Path("e.npy"))).x
    np.testing.assert_array_equal(joined, found)
    ltpll("embed", "pictures", *EMBED, "--on-error", "skip")
    # The folder's third picture is skipped.
    np.testing.assert_array_equal(found, np.load("e.npy")[[6, 2, 4]])


def test_parts_are_joined_from_the_cache(trees, monkeypatch):
    command = ("embed", "pictures", "--backbone", "fake", "--on-error", "skip")
    for part in ("1/3", "2/3", "3/3"):
        printed = ltpll(*command, "--out", f"{part[0]}.npy", "--part", part)
        assert "run the command without --part" in printed
    assert [len(np.load(f"{k}.npy")) for k in (1, 2, 3)] == [16, 16, 15]
    asked = FakeEmbedder()
    monkeypatch.setattr("ltpll.backbones.embedder.Embedder", lambda *_, **__: asked)
    ltpll(*command, "--out", "e.npy")
    assert asked.n_pictures == 0
    rows = [0, *range(2, 47, 3)]  # the third picture is skipped
    np.testing.assert_array_equal(np.load("e.npy")[rows], np.load("1.npy"))


def test_a_parquet_table_is_left_as_parquet(trees):
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"{i:03d}.png" for i in range(6)]
    pq.write_table(
        pa.table({"file": names, "candidates": [["ash"], ["ash", "birch"]] * 3, "n": range(6)}),
        "t.parquet",
    )
    printed = ltpll(
        "embed", "t.parquet", "--images", "pictures", "--path", "file", *EMBED, "--on-error", "skip"
    )
    assert "Next: ltpll train e.table.parquet --features e.npy" in printed
    left = pq.read_table("e.table.parquet")
    assert left["file"].to_pylist() == names[:2] + names[3:]
    assert left["candidates"].to_pylist() == [
        ["ash"],
        ["ash", "birch"],
        ["ash", "birch"],
        ["ash"],
        ["ash", "birch"],
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["none"], "none is not a folder"),
        (["labels.csv"], "give their folder with --images"),
        (["none.csv", "--images", "pictures"], "There is no file none.csv"),
        (["labels.csv", "--images", "none"], "There is no folder none of pictures"),
        (["labels.csv", "--images", "pictures", "--path", "paht"], "did you mean 'path'?"),
        (
            ["plain.csv", "--images", "pictures"],
            "has neither a column path nor a column id that names pictures",
        ),
        (["pictures", "--path", "path"], "--path belong to a table"),
        (["empty"], "There are no pictures in empty"),
        (["pictures", "--part", "4/3"], "--part is '4/3'"),
        (["pictures", "--part", "third"], "--part is 'third'"),
        (["pictures", "--on-error", "ignore"], "on_error is 'ignore'"),
        (["pictures", "--out", "e.csv"], "e.csv must end in .npy"),
        (["pictures", "--out", "labels.csv/e.npy"], "cannot be written"),
        (
            ["e.rows.csv", "--images", "pictures"],
            "e.rows.csv is an input of this command and would be overwritten",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_embedded_is_refused_in_one_sentence(trees, arguments, expected):
    (trees / "empty").mkdir()
    write_csv(trees / "plain.csv", ["a", "b"], [[1, 2]])
    write_csv(trees / "e.rows.csv", ["path"], [["001.png"]])
    out = [] if "--out" in arguments else ["--out", "e.npy"]
    assert expected in ltpll("embed", *arguments, "--backbone", "fake", *out, status=2)
    assert not (trees / "e.npy").exists()


def test_without_a_home_folder_or_a_cache_that_can_be_written_the_way_out_is_named(
    trees, monkeypatch
):
    command = ("embed", "pictures", *EMBED, "--on-error", "skip")
    monkeypatch.setenv("LTPLL_CACHE", str(trees / "labels.csv" / "cache"))
    message = ltpll(*command, status=2)
    assert "labels.csv/cache/embeddings/" in message
    assert message.endswith(
        "free some space or set LTPLL_CACHE to another folder for the cache, then try again."
    )
    for name in ("LTPLL_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])  # nor is one known to the system
    message = ltpll(*command, status=2)
    assert (
        message
        == "There is no home folder for the cache folder to be in: set LTPLL_CACHE to a folder."
    )
