"""Dataset: tables joined with features or pictures, row by row, or refused."""

import numpy as np
import pytest

from ltpll.backbones import Preprocessing
from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.data.readers.tables import Reading
from support.refusals import refusal
from support.user_tables import write_csv, write_trees

ROWS = [["a", "x|y", "1"], ["b", "y", "2"], ["c", "x", "3"]]


@pytest.fixture
def table(tmp_path):
    return write_csv(tmp_path / "t.csv", ["id", "candidates", "u"], ROWS)


def test_columns_of_numbers_are_the_features(table):
    examples = read_examples(TableSource(table, Reading()))
    assert examples.x.tolist() == [[1], [2], [3]]
    assert examples.table.feature_names == ("u",)


def test_an_array_of_features_comes_in_the_tables_order(table, tmp_path):
    x = np.arange(6.0).reshape(3, 2)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", features=x, other=np.zeros(1))
    for name in ("x.npy", "x.npz"):
        examples = read_examples(TableSource(table, Reading(), features=tmp_path / name))
        assert examples.x.dtype == np.float32
        assert examples.x.tolist() == x.tolist()


def test_a_table_of_features_is_joined_by_id(table, tmp_path):
    beside = write_csv(tmp_path / "f.csv", ["id", "v", "w"], [["c", "5", "6"], ["zz", "0", "0"], ["a", "1", "2"], ["b", "3", "4"]])
    examples = read_examples(TableSource(table, Reading(), features=beside))
    assert examples.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert examples.table.feature_names == ("v", "w")
    write_csv(beside, ["id", "v"], [["a", "1"], ["b", "3"]])
    assert "of 1 of 3 examples (c)" in refusal(lambda: read_examples(TableSource(table, Reading(), features=beside)))


def test_the_column_of_groups_is_no_feature_in_a_second_table_either(tmp_path):
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "scene"], [["a", "x|y", "1"], ["b", "y", "2"], ["c", "x", "1"]])
    beside = write_csv(tmp_path / "f.csv", ["id", "v", "scene"], [["a", "5", "1"], ["b", "6", "2"], ["c", "7", "1"]])
    examples = read_examples(TableSource(table, Reading(group="scene"), features=beside))
    assert examples.table.feature_names == ("v",)
    assert examples.candidates.groups.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (np.zeros((2, 4)), "has 2 rows, but the table has 3"),
        (np.zeros(3), "shape (3,)"),
        (np.full((3, 1), np.nan), "NaN"),
        (np.asarray([[None], [1], [2]], dtype=object), "without objects"),
        (np.asarray([["p"], ["q"], ["r"]]), "not numbers"),
    ],
)
def test_features_that_do_not_fit_are_refused(table, tmp_path, content, words):
    np.save(tmp_path / "x.npy", content, allow_pickle=True)
    assert words in refusal(lambda: read_examples(TableSource(table, Reading(), features=tmp_path / "x.npy")))


def test_damaged_and_foreign_files_of_features_are_refused(table, tmp_path):
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY nonsense")
    (tmp_path / "x.pt").write_bytes(b"")
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    for name, words in (
        ("x.npy", "does not hold plain arrays, or is truncated"),
        ("x.pt", "not from x.pt"),
        ("two.npz", "call the one"),
        ("no.npy", "no file"),
    ):
        assert words in refusal(lambda name=name: read_examples(TableSource(table, Reading(), features=tmp_path / name)))


def test_pictures_that_are_skipped_take_their_rows_along(tmp_path):
    write_trees(tmp_path, n=12)
    (tmp_path / "pictures" / "003.png").unlink()
    source = TableSource(tmp_path / "labels.csv", Reading(), images=tmp_path / "pictures", preprocessing=Preprocessing(8), on_error="skip")
    examples = read_examples(source)
    assert [name for name, _ in examples.problems] == ["003.png"]
    assert examples.table.ids.tolist() == [f"{i:03d}.png" for i in range(12) if i != 3]
    assert len(examples.x) == len(examples.candidates) == len(examples.table.labels) == 11


def test_splits_say_which_rows_are_trained_on(tmp_path):
    rows = [["a", "x|y", "1", "Train"], ["b", "y", "2", "test"], ["c", "x", "3", "val"], ["d", "x", "3", "training"]]
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "split"], rows)
    assert read_examples(TableSource(table, Reading())).training().tolist() == [True, False, False, True]


def test_the_fingerprint_follows_everything_that_training_sees(tmp_path):
    def fingerprint(rows, header=("id", "candidates", "u"), **reading):
        return read_examples(TableSource(write_csv(tmp_path / "t.csv", header, rows), Reading(**reading))).fingerprint()

    first = fingerprint(ROWS)
    assert fingerprint([["A", *ROWS[0][1:]], *ROWS[1:]]) == first  # names of rows are not trained on
    others = {
        fingerprint([["a", "x|y", "1.5"], *ROWS[1:]]),
        fingerprint([["a", "x", "1"], *ROWS[1:]]),
        fingerprint([["a", "x|z", "1"], *ROWS[1:]]),
        fingerprint(
            [[*row, split] for row, split in zip(ROWS, ("train", "train", "test"), strict=True)], ("id", "candidates", "u", "split")
        ),
        fingerprint([[*row, "x"] for row in ROWS], ("id", "candidates", "u", "label")),
        *(
            fingerprint([[*row, group] for row, group in zip(ROWS, groups, strict=True)], ("id", "candidates", "u", "g"), group="g")
            for groups in ("ppq", "pqq")
        ),
    }
    assert len(others) == 7
    assert first not in others


def test_the_fingerprint_of_texts_follows_everything_else_that_a_run_stores(tmp_path):
    def fingerprint(column, value):
        rows = [[*row, "p", "g", "train"] for row in ROWS]
        rows[1][column] = value
        table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "path", "g", "split"], rows)
        return read_examples(TableSource(table, Reading(group="g"))).fingerprint_of_texts()

    first = fingerprint(0, "b")
    assert fingerprint(2, "5") == first
    others = [fingerprint(0, "B"), fingerprint(3, "q"), fingerprint(4, "h"), fingerprint(5, "training")]
    assert len({first, *others}) == 5


def test_the_fingerprint_follows_the_weights_that_votes_give_the_candidates(tmp_path):
    votes = [["1", "u", "x"], ["1", "v", "x"], ["1", "w", "y"], ["2", "u", "y"], ["2", "w", "y"], ["3", "v", "x"]]
    table = write_csv(tmp_path / "t.csv", ["task", "worker", "label"], votes)
    np.save(tmp_path / "x.npy", np.eye(3, dtype=np.float32))
    prints = [
        read_examples(TableSource(table, Reading(annotators="union", vote_weights=how), features=tmp_path / "x.npy")).fingerprint()
        for how in ("reliability", "counts", "none")
    ]
    assert len(set(prints)) == 3
