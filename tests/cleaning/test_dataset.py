"""Dataset: tables joined with features or pictures, row by row, or refused."""

import numpy as np
import pandas as pd
import pytest

from ltpll.backbones import Preprocessing
from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.errors import InputWarning
from ltpll.tables.reading import Reading
from ltpll.tables.reviewed import read_answers
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
    beside = write_csv(
        tmp_path / "f.csv",
        ["id", "v", "w"],
        [["c", "5", "6"], ["zz", "0", "0"], ["a", "1", "2"], ["b", "3", "4"]],
    )
    examples = read_examples(TableSource(table, Reading(), features=beside))
    assert examples.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert examples.table.feature_names == ("v", "w")
    write_csv(beside, ["id", "v"], [["a", "1"], ["b", "3"]])
    assert "of 1 of 3 examples (c)" in refusal(
        lambda: read_examples(TableSource(table, Reading(), features=beside))
    )


def test_the_column_of_groups_is_no_feature_in_a_second_table_either(tmp_path):
    table = write_csv(
        tmp_path / "t.csv",
        ["id", "candidates", "scene"],
        [["a", "x|y", "1"], ["b", "y", "2"], ["c", "x", "1"]],
    )
    beside = write_csv(
        tmp_path / "f.csv",
        ["id", "v", "scene"],
        [["a", "5", "1"], ["b", "6", "2"], ["c", "7", "1"]],
    )
    examples = read_examples(TableSource(table, Reading(group="scene"), features=beside))
    assert examples.table.feature_names == ("v",)
    assert examples.candidates.groups.tolist() == [0, 1, 0]


SHUFFLED = ["c", "a", "zz", "b"]
X = np.asarray([[5.0, 6], [1, 2], [0, 0], [3, 4]])


def read(table, features, **reading):
    return read_examples(TableSource(table, Reading(**reading), features=features))


def beside(path, names, rows=None):
    """The table that `ltpll embed` writes beside an .npy file."""
    columns = [list(range(len(X))) if rows is None else rows, *names.values()]
    return write_csv(
        path.with_suffix(".rows.csv"),
        ["row", *names, "problem"],
        [[*row, ""] for row in zip(*columns, strict=True)],
    )


@pytest.mark.parametrize(
    "names",
    [
        {"path": SHUFFLED},
        {"id": SHUFFLED, "path": list("pqrs")},
        {"id": list("pqrs"), "path": SHUFFLED},
    ],
)
def test_the_table_beside_an_npy_file_joins_its_features(table, tmp_path, names):
    np.save(tmp_path / "x.npy", X)
    beside(tmp_path / "x.npy", names)
    examples = read(table, tmp_path / "x.npy")
    assert examples.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert not examples.table.notes


def test_a_table_with_ids_and_paths_is_joined_by_either(tmp_path):
    table = write_csv(
        tmp_path / "t.csv",
        ["id", "path", "candidates"],
        [["1", "a", "x|y"], ["2", "b", "y"], ["3", "c", "x"]],
    )
    np.save(tmp_path / "x.npy", X)
    beside(tmp_path / "x.npy", {"path": SHUFFLED})
    assert read(table, tmp_path / "x.npy").x.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_blanks_around_ids_do_not_count_in_any_file_and_ids_are_written_as_they_were(tmp_path):
    rows = [[" a", "x|y"], ["b ", "y"], ["c", "x"]]
    table, features = write_csv(tmp_path / "t.csv", ["id", "candidates"], rows), tmp_path / "f.csv"
    write_csv(features, ["id", "v"], [["c ", "3"], ["a", "1"], ["b", "2"]])
    examples = read(table, features)
    assert examples.table.ids.tolist() == [" a", "b ", "c"]
    assert examples.x.tolist() == [[1], [2], [3]]
    answers = write_csv(tmp_path / "a.csv", ["id", "answer"], [["a", "y"], ["b", "x"]])
    assert read_answers([answers], examples.table) == {" a": (1,), "b ": (0,)}
    write_csv(features, ["id", "v"], [["c ", "3"], ["a", "1"], ["b", "2"], ["c", "4"]])
    twice = "Row 4 below the header of {} has {!r} in the column 'id', and so has row 1"
    assert twice.format(features, "c") in refusal(lambda: read(table, features))
    write_csv(table, ["id", "candidates"], [*rows, ["a", "x"]])
    assert twice.format(table, "a") in refusal(lambda: read(table, features))


def test_votes_on_tasks_that_differ_in_blanks_only_are_votes_on_one(tmp_path):
    votes = [["a", "u", "x"], [" a", "v", "y"], ["b ", "u", "y"], ["b ", "v", "y"]]
    table = write_csv(tmp_path / "t.csv", ["task", "worker", "label"], votes)
    features = write_csv(tmp_path / "f.csv", ["id", "v"], [["b", "2"], ["a", "1"]])
    examples = read(table, features, annotators="union")
    assert examples.table.ids.tolist() == ["a", "b"]
    assert examples.x.tolist() == [[1], [2]]


def test_rows_beside_a_file_may_be_sorted_and_name_skipped_pictures_but_must_fit_it(
    table, tmp_path
):
    np.save(tmp_path / "x.npy", X)
    beside(tmp_path / "x.npy", {"path": ["a", "bad", "b", "c", "zz"]}, [1, "", 3, 0, 2])
    assert read(table, tmp_path / "x.npy").x.tolist() == [[1, 2], [3, 4], [5, 6]]
    for rows in ([0, 1, 2, ""], [0, 1, 2, 4], [0, 1, 2, "x"]):
        beside(tmp_path / "x.npy", {"path": SHUFFLED}, rows)
        assert "x.rows.csv does not name the 4 rows of x.npy" in refusal(
            lambda: read(table, tmp_path / "x.npy")
        )


def test_where_only_the_order_is_known_it_is_said_and_rows_are_counted(table, tmp_path):
    np.save(tmp_path / "x.npy", X[:3])
    assert read(table, tmp_path / "x.npy").table.notes == (
        f"{tmp_path / 'x.npy'} has no ids, so its rows are taken in the order of {table}.",
    )
    nameless = write_csv(tmp_path / "n.csv", ["candidates"], [[row[1]] for row in ROWS])
    beside(tmp_path / "x.npy", {"path": SHUFFLED[:3]}, [0, 1, 2])
    assert (
        f"{nameless} has no ids, so the rows of"
        in read(nameless, tmp_path / "x.npy").table.notes[0]
    )
    features = write_csv(tmp_path / "f.csv", ["v"], [["1"], ["2"], ["3"], ["4"]])
    assert "f.csv has 4 rows, but the table has 3 examples" in refusal(
        lambda: read(nameless, features)
    )
    assert "f.csv has no column 'id' to join the features by" in refusal(
        lambda: read(table, features)
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy"])
def test_features_that_float32_would_blur_are_read_as_float64(tmp_path, suffix):
    x = np.random.default_rng(0).normal(size=(30, 2)) + np.asarray([1e9, 0])
    names, sets = [f"r{i}" for i in range(30)], ["x|y", "x", "y"] * 10
    frame = pd.DataFrame({"id": names, "candidates": sets, "u": x[:, 0], "v": x[:, 1]})
    path, features = tmp_path / f"t{'.csv' if suffix == '.npy' else suffix}", None
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    if suffix == ".npy":
        features = tmp_path / "x.npy"
        np.save(features, x)
    examples = read_examples(TableSource(path, Reading(), features=features))
    assert examples.x.dtype == np.float64
    np.testing.assert_array_equal(examples.x, x)


def test_a_column_without_a_finite_number_is_named(tmp_path):
    rows = [[*row, "inf", "", "1e300"] for row in ROWS]
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "far", "gap", "big"], rows)
    with pytest.warns(
        InputWarning,
        match=r"t\.csv has no finite number in 2 columns, which are left out of the features: 'far', 'gap'\.",
    ):
        examples = read_examples(TableSource(table, Reading()))
    assert examples.table.feature_names == ("u", "big")
    assert examples.x.tolist() == [[1, 1e300], [2, 1e300], [3, 1e300]]


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
    assert words in refusal(
        lambda: read_examples(TableSource(table, Reading(), features=tmp_path / "x.npy"))
    )


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
        assert words in refusal(
            lambda name=name: read_examples(TableSource(table, Reading(), features=tmp_path / name))
        )


def test_pictures_that_are_skipped_take_their_rows_along(tmp_path):
    write_trees(tmp_path, n=12)
    (tmp_path / "pictures" / "003.png").unlink()
    source = TableSource(
        tmp_path / "labels.csv",
        Reading(),
        images=tmp_path / "pictures",
        preprocessing=Preprocessing(8),
        on_error="skip",
    )
    examples = read_examples(source)
    assert [name for name, _ in examples.problems] == ["003.png"]
    assert examples.table.ids.tolist() == [f"{i:03d}.png" for i in range(12) if i != 3]
    assert len(examples.x) == len(examples.candidates) == len(examples.table.labels) == 11


def test_splits_say_which_rows_are_trained_on(tmp_path):
    rows = [
        ["a", "x|y", "1", "Train"],
        ["b", "y", "2", "test"],
        ["c", "x", "3", "val"],
        ["d", "x", "3", "training"],
    ]
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "split"], rows)
    assert read_examples(TableSource(table, Reading())).training().tolist() == [
        True,
        False,
        False,
        True,
    ]


def test_the_fingerprint_follows_everything_that_training_sees(tmp_path):
    def fingerprint(rows, header=("id", "candidates", "u"), **reading):
        return read_examples(
            TableSource(write_csv(tmp_path / "t.csv", header, rows), Reading(**reading))
        ).fingerprint()

    first = fingerprint(ROWS)
    assert (
        fingerprint([["A", *ROWS[0][1:]], *ROWS[1:]]) == first
    )  # names of rows are not trained on
    others = {
        fingerprint([["a", "x|y", "1.5"], *ROWS[1:]]),
        fingerprint([["a", "x", "1"], *ROWS[1:]]),
        fingerprint([["a", "x|z", "1"], *ROWS[1:]]),
        fingerprint(
            [[*row, split] for row, split in zip(ROWS, ("train", "train", "test"), strict=True)],
            ("id", "candidates", "u", "split"),
        ),
        fingerprint([[*row, "x"] for row in ROWS], ("id", "candidates", "u", "label")),
        *(
            fingerprint(
                [[*row, group] for row, group in zip(ROWS, groups, strict=True)],
                ("id", "candidates", "u", "g"),
                group="g",
            )
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
    others = [
        fingerprint(0, "B"),
        fingerprint(3, "q"),
        fingerprint(4, "h"),
        fingerprint(5, "training"),
    ]
    assert len({first, *others}) == 5


def test_the_fingerprint_follows_the_weights_that_votes_give_the_candidates(tmp_path):
    votes = [
        ["1", "u", "x"],
        ["1", "v", "x"],
        ["1", "w", "y"],
        ["2", "u", "y"],
        ["2", "w", "y"],
        ["3", "v", "x"],
    ]
    table = write_csv(tmp_path / "t.csv", ["task", "worker", "label"], votes)
    np.save(tmp_path / "x.npy", np.eye(3, dtype=np.float32))
    prints = [
        read_examples(
            TableSource(
                table, Reading(annotators="union", vote_weights=how), features=tmp_path / "x.npy"
            )
        ).fingerprint()
        for how in ("reliability", "counts", "none")
    ]
    assert len(set(prints)) == 3
