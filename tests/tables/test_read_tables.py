"""The user's tables: compared with pandas, and one sentence for each that cannot be read."""

import csv
import json
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ltpll.candidates import Candidates
from ltpll.convert.open import read_candidates, read_label_table
from ltpll.errors import InputWarning
from ltpll.tables import streaming as batches
from ltpll.tables.read_tables import LabelTable, read_table
from ltpll.tables.reading import Reading
from support.refusals import refusal

ROWS = [["cat", "dog"], ["dog"], ["fox", "cat"], ["cat"], ["cat", "dog", "fox"]]


def frame():
    return pd.DataFrame(
        {
            "id": [f"x{i}" for i in range(5)],
            "path": [f"dir/{i}.png" for i in range(5)],
            "candidates": ["|".join(row) for row in ROWS],
            "label": ["cat", "dog", None, "dog", "fox"],
            "split": ["train", "train", "test", "train", "test"],
            "note": ["a", "b, c", 'd "e"', "f\ng", "1"],
            "height": [1.5, -2.0, 3e-3, 0.0, 4.0],
            "width": [1, 2, 3, 4, 5],
        }
    )


def write(folder, table, suffix):
    path = folder / f"t{suffix}"
    if suffix == ".parquet":
        table.to_parquet(path, index=False)
    else:
        table.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    return path


def text(folder, content, name="t.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def sets(table):
    """The candidate names of each row."""
    return [
        [table.candidates.classes[c] for c in table.candidates.row(i)] for i in range(len(table))
    ]


SUFFIXES = (".csv", ".tsv", ".parquet")

# ---- what a table says ---------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_column_of_groups_belongs_to_the_sets_and_is_no_feature(tmp_path, suffix):
    given = frame().assign(scene=[7, 3, 7, 7, 3])
    path = write(tmp_path, given, suffix)
    assert read_table(path).groups is None
    assert "scene" in read_table(path).feature_names
    found = read_table(path, Reading(group="scene"))
    assert found.groups.tolist() == ["7", "3", "7", "7", "3"]
    assert found.feature_names == ("height", "width")
    assert found.candidates.groups.tolist() == [0, 1, 0, 0, 1]
    some = found.select(np.asarray([4, 0, 1]))
    assert some.groups.tolist() == ["3", "7", "3"]
    numbers = some.candidates.groups.tolist()
    assert numbers[0] == numbers[2] != numbers[1]


def test_a_row_without_a_group_and_an_unknown_column_of_groups_are_refused(tmp_path):
    path = write(tmp_path, frame().assign(scene=["a", "b", None, "a", " "]), ".csv")
    message = refusal(lambda: read_table(path, Reading(group="scene")))
    assert "row 3" in message.lower()
    assert "is empty in the column 'scene': give every row a group" in message
    assert "no column called 'scenes' (did you mean 'scene'?)" in refusal(
        lambda: read_table(path, Reading(group="scenes"))
    )


def test_the_annotations_of_a_task_have_one_group(tmp_path):
    rows = "task,worker,label,scene\n1,u,cat,p\n2,u,dog,q\n1,v,dog,p\n3,u,cat,p\n"
    found = read_table(text(tmp_path, rows), Reading(annotators="union", group="scene"))
    assert found.groups.tolist() == ["p", "q", "p"]
    assert found.candidates.groups.tolist() == [0, 1, 0]
    path = text(tmp_path, rows.replace("1,v,dog,p", "1,v,dog,q"))
    assert "gives the task '1' another 'scene'" in refusal(
        lambda: read_table(path, Reading(annotators="union", group="scene"))
    )
    path = text(tmp_path, rows.replace("2,u,dog,q", "2,u,dog,"))
    assert "give every row a group" in refusal(
        lambda: read_table(path, Reading(annotators="union", group="scene"))
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_part_is_read_as_pandas_reads_it(tmp_path, suffix):
    expected = frame()
    found = read_table(write(tmp_path, expected, suffix))
    assert isinstance(found, LabelTable)
    assert len(found) == 5
    assert found.ids.dtype == found.paths.dtype == found.splits.dtype == object
    assert found.ids.tolist() == expected["id"].tolist()
    assert found.paths.tolist() == expected["path"].tolist()
    assert found.splits.tolist() == expected["split"].tolist()
    assert found.candidates.classes == ("cat", "dog", "fox")
    assert sets(found) == [sorted(row) for row in ROWS]
    assert found.labels.tolist() == [0, 1, -1, 1, 2]
    assert found.labels.dtype == np.int64
    assert found.feature_names == ("height", "width")
    assert found.features.dtype == np.float32
    np.testing.assert_array_equal(
        found.features, expected[["height", "width"]].to_numpy(np.float32)
    )
    assert found.votes is None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_columns_may_have_other_names_and_features_be_chosen_in_any_order(tmp_path, suffix):
    table = frame().rename(
        columns={"id": "a", "path": "b", "candidates": "c", "label": "d", "split": "e"}
    )
    reading = Reading(
        candidates="c", id="a", path="b", label="d", split="e", features=("width", "height")
    )
    found = read_table(write(tmp_path, table, suffix), reading)
    assert (found.ids[0], found.paths[0], found.splits[0], found.labels[0]) == (
        "x0",
        "dir/0.png",
        "train",
        0,
    )
    assert found.feature_names == ("width", "height")
    np.testing.assert_array_equal(found.features, table[["width", "height"]].to_numpy(np.float32))
    assert (
        read_table(write(tmp_path, table, suffix), Reading(candidates="c", features=())).features
        is None
    )


def test_ids_are_the_paths_or_else_the_row_numbers(tmp_path):
    assert read_table(write(tmp_path, frame().drop(columns="id"), ".csv")).ids.tolist() == [
        f"dir/{i}.png" for i in range(5)
    ]
    found = read_table(write(tmp_path, frame()[["candidates"]], ".csv"))
    assert found.ids.tolist() == ["1", "2", "3", "4", "5"]
    assert found.labels is found.splits is found.paths is found.features is None
    assert found.feature_names == ()


def test_texts_are_kept_as_they_are_written(tmp_path):
    table = pd.DataFrame(
        {
            "id": ["007", " 7", "7.0", "1e3"],
            "path": ["ä b.png", "x,y", 'q"q', "n\nn"],
            "candidates": ["a|b"] * 4,
        }
    )
    found = read_table(write(tmp_path, table, ".csv"))
    assert found.ids.tolist() == table["id"].tolist()
    assert found.paths.tolist() == table["path"].tolist()


def test_whole_numbers_in_parquet_are_names_without_a_point(tmp_path):
    table = pd.DataFrame(
        {"id": [3, 1, 2], "candidates": [[0, 10], [2], [10, 2]], "label": [10.0, np.nan, 2.0]}
    )
    found = read_table(write(tmp_path, table, ".parquet"))
    assert found.ids.tolist() == ["3", "1", "2"]
    assert found.candidates.classes == ("0", "2", "10")
    assert found.labels.tolist() == [2, -1, 1]


CELLS = {
    "names": lambda row: "|".join(row),
    "blanks": lambda row: "  " + " | ".join(row) + " ",
    "twice and empty": lambda row: "||".join([*row, row[0], ""]),
    "JSON": json.dumps,
    "Python": lambda row: " " + repr(row),
    "some lists": lambda row: json.dumps(row) if len(row) > 1 else row[0],
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("form", CELLS)
def test_sets_are_read_in_every_form(tmp_path, suffix, form):
    table = pd.DataFrame({"candidates": [CELLS[form](row) for row in ROWS]})
    assert sets(read_table(write(tmp_path, table, suffix))) == [sorted(row) for row in ROWS]


@pytest.mark.parametrize("kind", ["list", "large list", "fixed list", "dictionary", "large string"])
def test_types_of_parquet_are_read(tmp_path, kind):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [[*row, "cat", "cat"][:3] for row in ROWS]
    column = {
        "list": lambda: pa.array(ROWS),
        "large list": lambda: pa.array(ROWS, pa.large_list(pa.large_string())),
        "fixed list": lambda: pa.array(rows, pa.list_(pa.string(), 3)),
        "dictionary": lambda: pa.array(["|".join(row) for row in ROWS]).dictionary_encode(),
        "large string": lambda: pa.array(["|".join(row) for row in ROWS], pa.large_string()),
    }[kind]()
    ids = pa.array([str(i) for i in range(5)]).dictionary_encode()
    numbers = {
        "x": pa.array([1, 2, 3, 4, 5], pa.int8()),
        "y": pa.array(np.full(5, 0.5, dtype=np.float16)),
        "b": pa.array([True] * 5),
    }
    pq.write_table(
        pa.table({"candidates": column, "id": ids, "label": ids, **numbers}), tmp_path / "t.parquet"
    )
    found = read_table(tmp_path / "t.parquet", Reading(classes=("cat", "dog", "fox", *"01234")))
    assert sets(found) == [sorted(set(row)) for row in (rows if kind == "fixed list" else ROWS)]
    assert found.labels.tolist() == [3, 4, 5, 6, 7]
    assert found.feature_names == ("x", "y")
    assert (
        read_table(
            tmp_path / "t.parquet",
            Reading(label="id", features=("b",), classes=found.candidates.classes),
        ).features.min()
        == 1
    )


@pytest.mark.parametrize("wrap", [False, True])
def test_halves_in_parquet_are_names_and_bytes_that_are_no_text_are_refused(tmp_path, wrap):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    halves = pa.array(np.asarray([1, 2, 1], dtype=np.float16))
    column = pa.ListArray.from_arrays([0, 2, 3], halves) if wrap else halves
    pq.write_table(pa.table({"candidates": column}), path)
    assert sets(read_table(path)) == ([["1", "2"], ["1"]] if wrap else [["1"], ["2"], ["1"]])
    names = [[b"cat"], [b"\xff"]] if wrap else [b"cat", b"\xff"]
    pq.write_table(pa.table({"candidates": pa.array(names)}), path)
    assert "UTF-8" in refusal(lambda: read_table(path))


def test_commas_separate_where_that_is_asked_for(tmp_path):
    path = text(tmp_path, 'candidates\n"cat, dog"\ncat\n')
    assert sets(read_table(path, Reading(separator=","))) == [["cat", "dog"], ["cat"]]
    path = text(tmp_path, "candidates\ncat :: dog\ncat\n")
    assert sets(read_table(path, Reading(separator="::"))) == [["cat", "dog"], ["cat"]]


def test_names_that_hold_another_separator_are_warned_of_where_nothing_is_split(tmp_path):
    (tmp_path / "t.csv").write_text('candidates\n"Rome, Italy"\n"Oslo, Norway"\nParis\n')
    with pytest.warns(
        InputWarning, match=r"2 class names contain ',', such as 'Rome, Italy'.*pass separator=','"
    ):
        found = read_table(tmp_path / "t.csv")
    assert found.candidates.classes == ("Oslo, Norway", "Paris", "Rome, Italy")
    assert sets(read_table(tmp_path / "t.csv", Reading(separator=",")))[0] == ["Italy", "Rome"]


def test_names_that_hold_other_separators_are_names_while_their_pieces_are_none(tmp_path):
    path = text(
        tmp_path, 'candidates\n"salt, fine|sand, fine"\n"salt, fine|N/A"\n"sand, fine|Salz; grob"\n'
    )
    assert read_table(path).candidates.classes == ("N/A", "Salz; grob", "salt, fine", "sand, fine")
    path = text(tmp_path, 'candidates\n"red, big|red, small"\n"blue, big|blue, small"\n')
    assert len(read_table(path).candidates.classes) == 4
    path = text(tmp_path, 'candidates\n"[""a, b"", ""a""]"\n"[""b""]"\n')
    assert read_table(path).candidates.classes == ("a", "a, b", "b")


def test_given_classes_keep_their_order_and_may_be_more_than_occur(tmp_path):
    path = write(tmp_path, frame(), ".csv")
    found = read_table(path, Reading(classes=("fox", "dog", "cow", "cat")))
    assert found.candidates.classes == ("fox", "dog", "cow", "cat")
    assert found.candidates.row(0) == [1, 3]
    assert found.labels.tolist() == [3, 1, -1, 1, 0]


# ---- features ------------------------------------------------------------------------------------


def test_columns_of_text_are_not_features_and_are_named(tmp_path):
    n = 300
    table = pd.DataFrame(
        {
            "candidates": ["a|b"] * n,
            "x": [f" {i / 7} " for i in range(n)],
            "empty": [""] * n,
            "yes": ["true"] * n,
            "code": ["7", "A7", "B2"] * (n // 3),
            "big": [str(10**9 + i) for i in range(n)],
        }
    )
    table.insert(0, "", range(n))  # as pandas writes an index
    path = write(tmp_path, table, ".csv")
    for block in (batches.BLOCK, 1 << 11):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batches, "BLOCK", block)
            with pytest.warns(
                InputWarning,
                match="has no finite number in 1 column, which is left out .*: 'empty'",
            ):
                found = read_table(path)
        assert found.feature_names == ("x", "big")
        assert found.left_out == ("yes", "code")
        np.testing.assert_array_equal(found.features[:, 0], np.arange(n) / 7)
        np.testing.assert_array_equal(
            found.features[:, 1], 10**9 + np.arange(n)
        )  # float32 would blur it


@pytest.mark.parametrize("row", [0, 57, 299])
@pytest.mark.parametrize("block", [batches.BLOCK, 1 << 11])
def test_a_word_in_a_column_of_numbers_is_named_and_not_passed_over(
    tmp_path, monkeypatch, row, block
):
    monkeypatch.setattr(
        batches, "BLOCK", block
    )  # so that the word comes after the rows that are looked at first, too
    cells = [str(i / 7) for i in range(300)]
    cells[row] = "abc"
    path = write(
        tmp_path,
        pd.DataFrame({"candidates": ["a|b"] * 300, "width": cells, "height": range(300)}),
        ".csv",
    )
    message = refusal(lambda: read_table(path))
    assert f"Row {row + 1} below the header" in message
    assert "holds 'abc', which is not a finite number, in the" in message
    assert message.endswith("drop the row, or omit the column with ignore=('width',).")
    assert read_table(path, Reading(features=("height",))).feature_names == ("height",)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_table_to_predict_needs_no_sets(tmp_path, suffix):
    table = frame()
    path = write(tmp_path, table.drop(columns=["candidates", "label"]), suffix)
    found = read_table(
        path, Reading(classes=("cat", "dog", "fox"), features=("width",)), needs_candidates=False
    )
    assert found.candidates is None
    assert found.labels is None
    assert found.features.tolist() == [[1], [2], [3], [4], [5]]
    path = write(tmp_path, table.drop(columns="candidates"), suffix)
    assert read_table(
        path, Reading(classes=("fox", "dog", "cat")), needs_candidates=False
    ).labels.tolist() == [2, 1, -1, 1, 0]
    assert read_table(path, needs_candidates=False).labels is None
    path = write(tmp_path, table, suffix)
    assert sets(
        read_table(path, Reading(classes=("cat", "dog", "fox")), needs_candidates=False)
    ) == [sorted(row) for row in ROWS]
    table["candidates"] = ""
    assert read_table(write(tmp_path, table, suffix), needs_candidates=False).candidates is None
    path = text(tmp_path, "note\na\nb\n")
    assert read_table(path, needs_candidates=False).ids.tolist() == ["1", "2"]


# ---- other ways to write sets --------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("values", [(0, 1), (0.0, 1.0), (False, True), ("false", "TRUE")])
def test_one_column_of_zeros_and_ones_for_each_class(tmp_path, suffix, values):
    table = pd.DataFrame(
        {f"is_{name}": [values[name in row] for row in ROWS] for name in ("fox", "cat", "dog")}
    )
    table["x"] = range(5)
    path = write(tmp_path, table, suffix)
    found = read_table(path, Reading(class_columns=("is_*",)))
    assert found.candidates.classes == ("fox", "cat", "dog")
    assert [set(row) for row in sets(found)] == [set(row) for row in ROWS]
    assert found.feature_names == ("x",)
    found = read_table(path, Reading(class_columns=("is_cat", "is_dog", "is_fox")))
    assert found.candidates.classes == ("is_cat", "is_dog", "is_fox")
    found = read_table(path, Reading(class_columns=("is_*",), classes=("cow", "cat", "dog", "fox")))
    assert [set(row) for row in sets(found)] == [set(row) for row in ROWS]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    weights=st.lists(
        st.lists(st.integers(0, 5), min_size=4, max_size=4).filter(any), min_size=1, max_size=6
    ),
    top_k=st.integers(1, 4),
    mass=st.sampled_from([0.2, 0.5, 0.9, 1.0]),
)
def test_probabilities_become_the_sets_that_a_loop_makes(tmp_path, weights, top_k, mass):
    rows = [[weight / sum(row) for weight in row] for row in weights]
    path = write(tmp_path, pd.DataFrame(rows, columns=["p_a", "p_b", "p_c", "p_d"]), ".csv")

    def naive(row, enough):
        chosen, total = [], 0.0
        for c in sorted(range(4), key=lambda c: -row[c]):
            if row[c] == 0 or enough(len(chosen), total):
                break
            chosen.append("abcd"[c])
            total += row[c]
        return sorted(chosen)

    found = read_table(path, Reading(probability_columns=("p_*",), top_k=top_k))
    assert sets(found) == [naive(row, lambda n, _: n >= top_k) for row in rows]
    found = read_table(path, Reading(probability_columns=("p_*",), mass=mass))
    assert sets(found) == [naive(row, lambda _, total: total >= mass - 1e-6) for row in rows]


VOTES = "task,worker,label\n" + "".join(
    f"{task},{worker},{label}\n"
    for task, worker, label in [
        *(
            ("t2", "ann", "dog"),
            ("t1", "ann", "cat"),
            ("t1", "bob", "cat"),
            ("t2", "bob", "cat"),
            ("t1", "cid", "dog"),
        ),
        *(
            ("t2", "cid", "dog"),
            ("t1", "dan", "fox"),
            ("t1", "cid", "dog"),
            ("t3", "bob", "fox"),
            ("t3", "dan", "fox"),
        ),
    ]
)


WIDE = "id,candidates,f1,f2,g[1],family,label\n1,a|b,1,2,3,x,a\n2,b,4,5,6,y,b\n"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ("f1", "f2", "g[1]")),
        ({"ignore": ("f2",)}, ("f1", "g[1]")),
        ({"ignore": ("f*",)}, ("g[1]",)),
        ({"ignore": ("g[*",)}, ("f1", "f2")),
        ({"features": ("f*",)}, ("f1", "f2")),  # family holds text
        ({"features": ("g[1]", "f*"), "ignore": ("*2",)}, ("g[1]", "f1")),
        ({"features": ("*",)}, ("f1", "f2", "g[1]")),  # what has another role is no feature
    ],
)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_features_are_chosen_and_ignored_by_name_and_by_pattern(tmp_path, options, names, suffix):
    frame = pd.read_csv(text(tmp_path, WIDE))
    found = read_table(write(tmp_path, frame, suffix), Reading(**options))
    assert found.feature_names == names
    assert found.features.tolist() == frame[list(names)].to_numpy().tolist()


def test_an_ignored_column_has_no_role_because_of_its_name(tmp_path):
    path = text(tmp_path, WIDE)
    assert read_table(path).labels.tolist() == [0, 1]
    assert read_table(path, Reading(ignore=("label",))).labels is None
    assert "id" not in read_table(path, Reading(ignore=("id",))).columns


def test_names_and_patterns_without_columns_are_refused(tmp_path):
    path = text(tmp_path, WIDE)
    for options in ({"ignore": ("h*",)}, {"features": ("h*",)}):
        assert "has no columns like 'h*': it has id, candidates" in refusal(
            lambda options=options: read_table(path, Reading(**options))
        )
    assert "no column called 'f3'" in refusal(lambda: read_table(path, Reading(ignore=("f3",))))
    assert "holds numbers" in refusal(lambda: read_table(path, Reading(features=("fam*",))))


def test_a_task_on_whose_labels_nobody_agrees_keeps_all_of_them_with_a_warning(tmp_path):
    path = text(tmp_path, VOTES + "t4,ann,fox\nt4,bob,cat\n")
    with pytest.warns(
        InputWarning,
        match="1 of 4 tasks has no label with at least 2 votes .The task 't4' of .*: all",
    ):
        found = read_table(path, Reading(annotators="votes-2", vote_weights="counts"))
    assert [set(row) for row in sets(found)] == [{"dog"}, {"cat"}, {"fox"}, {"cat", "fox"}]
    assert found.candidates.weights.tolist() == [1, 1, 1, 0.5, 0.5]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("union", [{"dog", "cat"}, {"cat", "dog", "fox"}, {"fox"}]),
        ("votes>=1", [{"dog", "cat"}, {"cat", "dog", "fox"}, {"fox"}]),
        ("votes>=2", [{"dog"}, {"cat"}, {"fox"}]),
        ("votes-2", [{"dog"}, {"cat"}, {"fox"}]),
        ("Votes >= 2", [{"dog"}, {"cat"}, {"fox"}]),
        ("top-1", [{"dog"}, {"cat"}, {"fox"}]),
        (
            "top-2",
            [{"dog", "cat"}, {"cat", "dog", "fox"}, {"fox"}],
        ),  # dog and fox tie for the second place of t1
    ],
)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_annotations_become_sets(tmp_path, rule, expected, suffix):
    table = pd.read_csv(text(tmp_path, VOTES))
    table["split"] = table["task"].map({"t1": "train", "t2": "test", "t3": "train"})
    found = read_table(write(tmp_path, table, suffix), Reading(annotators=rule))
    assert found.ids.tolist() == ["t2", "t1", "t3"]
    assert found.splits.tolist() == ["test", "train", "train"]
    assert found.candidates.classes == ("cat", "dog", "fox")
    assert [set(row) for row in sets(found)] == expected
    votes = found.votes
    assert votes.names == ("ann", "bob", "cid", "dan")
    triples = [
        (found.ids[row], votes.names[worker], found.candidates.classes[label])
        for row, worker, label in zip(votes.rows, votes.annotators, votes.labels, strict=True)
    ]
    assert sorted(triples) == sorted(
        set(map(tuple, table[["task", "worker", "label"]].to_numpy().tolist()))
    )
    assert votes.rows.tolist() == sorted(votes.rows.tolist())
    assert votes.rows.dtype == votes.annotators.dtype == votes.labels.dtype == np.int64
    assert found.features is found.labels is found.paths is None


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    given=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40
    ),
    k=st.integers(1, 3),
)
def test_random_annotations_become_the_sets_that_counting_makes(tmp_path, given, k):
    given = [*given, (0, 0, 0), (0, 0, 1)]
    table = pd.DataFrame(given, columns=["task", "worker", "label"])
    found = read_table(write(tmp_path, table, ".csv"), Reading(annotators=f"top-{k}"))
    for i, task in enumerate(found.ids):
        times = pd.Series([label for t, _, label in set(given) if t == int(task)]).value_counts()
        least = times.sort_values(ascending=False).iloc[:k].min()
        assert sets(found)[i] == [str(c) for c in sorted(times.index[times >= least])]


def test_votes_weight_the_candidates_that_the_rule_keeps(tmp_path):
    def weights(rule, how):
        found = read_table(
            text(tmp_path, VOTES), Reading(annotators=rule, vote_weights=how)
        ).candidates
        flat = iter(() if found.weights is None else found.weights.tolist())
        return [
            {found.classes[label]: pytest.approx(next(flat)) for label in found.row(i)}
            for i in range(len(found))
        ]

    assert weights("union", "counts") == [
        {"dog": 2 / 3, "cat": 1 / 3},
        {"cat": 1 / 2, "dog": 1 / 4, "fox": 1 / 4},
        {"fox": 1},
    ]
    assert weights("votes>=2", "counts") == [{"dog": 1}, {"cat": 1}, {"fox": 1}]
    reliable = weights("union", "reliability")
    assert reliable[0]["dog"].expected > 0.5 > reliable[0]["cat"].expected
    path = text(tmp_path, VOTES)
    assert (
        read_table(path, Reading(annotators="union", vote_weights="none")).candidates.weights
        is None
    )
    assert read_table(path, Reading(annotators="union")).candidates.weights is not None


def test_tasks_may_be_paths(tmp_path):
    path = text(tmp_path, "path,worker,label\na.png,u,cat\na.png,v,dog\nb.png,u,dog\n")
    found = read_table(path, Reading(annotators="union"))
    assert found.ids.tolist() == found.paths.tolist() == ["a.png", "b.png"]
    path = text(tmp_path, "task,path,worker,label\n1,a.png,u,cat\n1,a.png,v,dog\n2,b.png,u,dog\n")
    found = read_table(path, Reading(annotators="union"))
    assert (found.ids.tolist(), found.paths.tolist()) == (["1", "2"], ["a.png", "b.png"])


# ---- texts of all kinds --------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "end"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_byte_order_marks_and_blank_lines(tmp_path, end, last, mark):
    lines = ["", "id, candidates ,x", "", "a,cat|dog,1", 'b,"dog",2', "", ""]
    path = text(tmp_path, mark + end.join(lines) + (end if last else ""))
    found = read_table(path)
    assert sets(found) == [["cat", "dog"], ["dog"]]
    assert found.features.tolist() == [[1], [2]]


def test_bytes_that_are_no_text_do_not_matter_where_nobody_reads(tmp_path):
    path = text(tmp_path, "id,note,candidates\n1,\xfc,a|b\n2,x,a\n".encode("latin-1"))
    assert sets(read_table(path, Reading(features=()))) == [["a", "b"], ["a"]]


names = st.text(
    st.characters(codec="utf-8", exclude_characters="|\0", exclude_categories=("Cs", "Cc")),
    min_size=1,
    max_size=5,
)
names = names.map(str.strip).filter(
    lambda name: name and not name.startswith("[") and not any(mark in name for mark in ";,/")
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    data=st.data(),
    classes=st.lists(names, min_size=2, max_size=6, unique=True),
    suffix=st.sampled_from(SUFFIXES),
)
def test_random_tables_are_read_back(tmp_path, data, classes, suffix):
    row = st.tuples(
        st.lists(st.sampled_from(classes), min_size=1, max_size=4),
        st.sampled_from([*classes, ""]),
        st.floats(-(2.0**99), 2.0**99, width=32),
        st.text(
            st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=("Cs",)),
            max_size=6,
        ),
    )
    rows = data.draw(st.lists(row, min_size=1, max_size=8))
    table = pd.DataFrame(
        {
            "candidates": ["|".join(labels) for labels, _, _, _ in rows],
            "label": [label for _, label, _, _ in rows],
            "x": [x for _, _, x, _ in rows],
            "note": ["n" + note for _, _, _, note in rows],
            "id": [note + f"#{i}" for i, (_, _, _, note) in enumerate(rows)],
        }
    )
    found = read_table(write(tmp_path, table, suffix), Reading(classes=tuple(classes)))
    assert [set(row) for row in sets(found)] == [set(labels) for labels, _, _, _ in rows]
    assert [None if c < 0 else classes[c] for c in found.labels] == [
        label or None for _, label, _, _ in rows
    ]
    np.testing.assert_array_equal(
        found.features[:, 0], np.asarray([x for _, _, x, _ in rows], dtype=np.float32)
    )
    assert found.feature_names == ("x",)
    assert found.ids.tolist() == table["id"].tolist()


# ---- large files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_many_batches_give_what_one_gives_and_progress_is_told(tmp_path, monkeypatch, suffix):
    rng = np.random.default_rng(0)
    n = 5000
    table = pd.DataFrame(
        {
            "id": [f"id {i}" for i in range(n)],
            "candidates": [
                "|".join(f"c{c}" for c in rng.integers(0, 30, rng.integers(1, 6))) for _ in range(n)
            ],
            "label": [f"c{c}" for c in rng.integers(0, 30, n)],
            "note": ["x\ny" * (i % 3) for i in range(n)],
            **{f"f{j}": rng.normal(size=n) for j in range(5)},
        }
    )
    path = write(tmp_path, table, suffix)
    monkeypatch.setattr(batches, "BLOCK", 1 << 13)
    seen = []
    found = read_table(path, on_progress=lambda *progress: seen.append(progress))
    truth = Candidates.of(
        [row.split("|") for row in table["candidates"]], classes=found.candidates.classes
    )
    assert found.candidates.offsets.equal(truth.offsets)
    assert found.candidates.labels.equal(truth.labels)
    assert found.ids.tolist() == table["id"].tolist()
    assert [found.candidates.classes[c] for c in found.labels] == table["label"].tolist()
    np.testing.assert_array_equal(
        found.features, table[[f"f{j}" for j in range(5)]].to_numpy(np.float32)
    )
    assert len(seen) > (20 if suffix == ".csv" else 0)
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


def test_a_file_is_never_held_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BLOCK", 1 << 16)
    path = text(tmp_path, "candidates,note\n" + f"a|b,{'x' * 1000}\n" * 20_000)
    tracemalloc.start()
    found = read_table(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 20_000
    assert peak < 6e6  # of 20 MB


# ---- refusals ------------------------------------------------------------------------------------

GOOD = "id,candidates,x\n1,cat|dog,1\n2,dog,2\n3,cat|fox,3\n"
BAD_TEXTS = {
    "empty": ("", {}, "is empty"),
    "blank lines": ("\n\n \n", {}, "no rows below a header"),
    "header only": ("id,candidates\n", {}, "no rows below a header"),
    "header only and blank lines": ("id,candidates\n\n\n", {}, "no rows below a header"),
    "missing column": (
        "id,Candidate\n1,a\n",
        {},
        "no column called 'candidates' (did you mean 'Candidate'?): it has id, Candidate; name",
    ),
    "missing named column": (GOOD, {"label": "truth"}, "no column called 'truth'"),
    "missing named id": (GOOD, {"id": "key"}, "no column called 'key'"),
    "missing feature": (GOOD, {"features": ("y",)}, "no column called 'y'"),
    "label as a feature": (
        "candidates,label\na|b,a\n",
        {"features": ("label",)},
        "'label' of t.csv has another role",
    ),
    "two such columns": ("candidates,candidates\na,b\n", {}, "several columns called 'candidates'"),
    "two feature columns": ("candidates,x,x\na|b,1,2\n", {}, "several columns called 'x'"),
    "empty set": (
        "candidates,x\ncat|dog,1\n,2\n | ,3\n",
        {},
        "Row 2 below the header of t.csv has no candidate label (2 such rows)",
    ),
    "empty list": (
        'candidates,x\ncat|dog,1\n"[]",2\n',
        {},
        "Row 2 below the header of t.csv has no candidate label",
    ),
    "mixed separators": (
        "candidates\ncat|dog\nfox\ncat;dog\n",
        {},
        "Row 3 below the header of t.csv has the candidate 'cat;dog', which looks",
    ),
    "mixed commas": (
        'candidates\ncat|dog\nfox\n"cat, dog|fox"\n',
        {},
        "separated by ',' rather than '|'",
    ),
    "mixed pipes": (
        "candidates\ncat;dog\ncat|dog\nfox\n",
        {"separator": ";"},
        "separated by '|' rather than ';'",
    ),
    "pipes under another separator": (
        "candidates\ncat|dog\nfox\nowl\n",
        {"separator": ";"},
        "separated by '|' rather than ';'",
    ),
    "only another separator": ("candidates\ncat;dog\ndog;fox\nfox;cat\n", {}, "separated by ';'"),
    "mixed with classes": (
        "candidates\ncat;dog\n",
        {"classes": ("cat", "dog")},
        "separated by ';'",
    ),
    "no separator": (GOOD, {"separator": ""}, "separator between candidate names is empty"),
    "duplicate ids": (
        "id,candidates\n1,a|b\n2,a\n1,b\n",
        {},
        "Row 3 below the header of t.csv has '1' in the column 'id', and so has row 1",
    ),
    "duplicate paths": (
        "path,candidates\np,a|b\np,a\n",
        {},
        "in the column 'path', and so has row 1",
    ),
    "no id": (
        "id,candidates\n1,a|b\n ,a\n",
        {},
        "Row 2 below the header of t.csv is empty in the column 'id'",
    ),
    "text in a feature": (
        "candidates,x\na|b,1\na,two\n",
        {"features": ("x",)},
        "Row 2 below the header of t.csv holds 'two', which is no",
    ),
    "decimal comma": (
        'candidates,x\na|b,1\na,"1,5"\n',
        {"features": ("x",)},
        "holds '1,5', which is not a finite number, in the feature column 'x'",
    ),
    "no feature": (
        "candidates,x\na|b,1\na,\n",
        {"features": ("x",)},
        "Row 2 below the header of t.csv is empty in the feature column 'x'",
    ),
    "a gap in numbers": (
        "candidates,x\na|b,1\na,\n",
        {},
        "Row 2 below the header of t.csv is empty in the feature column 'x'",
    ),
    "n/a in numbers": ("candidates,x\na|b,1\na,N/A\n", {}, "holds 'N/A'"),
    "NaN": ("candidates,x\na|b,1\na,nan\n", {}, "holds 'nan', which is not a finite number"),
    "infinity": ("candidates,x\na|b,1\na,-inf\n", {}, "holds '-inf', which is not a finite number"),
    "too large": ("candidates,x\na|b,1\na,1e400\n", {"features": ("x",)}, "holds '1e400'"),
    "unknown class": (
        GOOD,
        {"classes": ("cat", "dogs", "fox")},
        "Row 1 below the header of t.csv has the candidate 'dog', which is not one",
    ),
    "did you mean": (GOOD, {"classes": ("cat", "dogs", "fox")}, "did you mean 'dogs'?"),
    "a class twice": (GOOD, {"classes": ("cat", "cat")}, "'cat' occurs twice"),
    "a label that is no class": (
        "candidates,label\na|b,a\na,c\n",
        {},
        "Row 2 below the header of t.csv has the true label 'c', which is not one",
    ),
    "short row": ("id,candidates\n1,a|b\n2\n", {}, "has 2 columns, but row 2 below it has 1"),
    "short row that is no text": (
        b"id,candidates\n1,a|b\n\xff\n",
        {},
        "has 2 columns, but row 2 below it has 1",
    ),
    "long row": ("id,candidates\n1,a|b\n2,a,b\n", {}, "has 2 columns, but row 2 below it has 3"),
    "latin-1": (
        "id,candidates\n1,a|b\n2,f\xfcr\n".encode("latin-1"),
        {},
        "Row 2 below the header of t.csv is not UTF-8 text",
    ),
    "latin-1 header": (
        "f\xfcr,candidates\n1,a|b\n".encode("latin-1"),
        {},
        "header of t.csv cannot be read (not UTF-8)",
    ),
    "UTF-16": (GOOD.encode("utf-16"), {}, "in UTF-16"),
    "UTF-16 without a mark": (GOOD.encode("utf-16-le"), {}, "UTF-8"),
    "Excel": (b"PK\3\4" + bytes(range(256)), {}, "is not text"),
    "gzip": (b"\x1f\x8b\x08" + bytes(range(256)), {}, "is not text"),
    "open quote": ('id,candidates\n1,"a|b\n2,a\n', {}, "cannot be read as a table"),
    "open quote at the end": ('id,candidates\n1,a|b\n2,"a', {}, "cannot be read as a table"),
    "open quote in front": (
        'id,candidates\n1,a|b\n"2,a\n',
        {},
        "but row 2 below it has 1: close open quotes",
    ),
    "open quote in the header": ('id,"candidates\n1,a|b\n', {}, "header of t.csv cannot be read"),
    "numpy's list": (
        "candidates\n\"['x' 'y']\"\n",
        {},
        "Row 1 below the header of t.csv holds \"['x' 'y']\", which is not a list",
    ),
    "no list": (
        "candidates\na\n[unknown]\n",
        {},
        "Row 2 below the header of t.csv holds '[unknown]', which is not a list",
    ),
    "lone surrogate": (
        'candidates\na|b\n"[""\\ud800""]"\n',
        {},
        "Row 2 below the header of t.csv holds '\\ud800', which is not valid Unicode",
    ),
    "nested list": ('candidates\n"[[[""a""]]]"\n', {}, "which is not a name"),
    "lists and names": (
        'candidates\n"[[""a""], ""b""]"\n',
        {},
        "which is not a",
    ),
    "null in a list": ("candidates\n[null]\n", {}, "which is not a name"),
    "true in a list": ("candidates\n[true]\n", {}, "which is not a name"),
    "deep list": (
        "candidates\n" + "[" * 200_000 + "]" * 200_000 + "\n",
        {},
        "which is not a",
    ),
    "one class": ("candidates\na\na\n", {}, "only 1 class"),
    "no class columns": (GOOD, {"class_columns": ("is_*",)}, "no columns like 'is_*'"),
    "missing class column": (GOOD, {"class_columns": ("x", "y")}, "no column called 'y'"),
    "no 0 or 1": (
        "a,b\n1,1\n0,2\n",
        {"class_columns": ("a", "b")},
        "Row 2 below the header of t.csv holds '2' in the class column 'b'",
    ),
    "text for 0 or 1": (
        "a,b\n1,1\n0,x\n",
        {"class_columns": ("a", "b")},
        "holds 'x' in the class column 'b'",
    ),
    "gap for 0 or 1": (
        "a,b\n1,1\n0,\n",
        {"class_columns": ("a", "b")},
        "holds '' in the class column 'b'",
    ),
    "only zeros": (
        "a,b\n1,1\n0,0\n",
        {"class_columns": ("a", "b")},
        "Row 2 below the header of t.csv has no candidate label",
    ),
    "unknown class column": (
        "a,b\n1,1\n",
        {"class_columns": ("a", "b"), "classes": ("a", "c")},
        "has the candidate 'b'",
    ),
    "above 1": (
        "a,b\n1,1\n0,2\n",
        {"probability_columns": ("a", "b"), "top_k": 1},
        "Row 2 below the header of t.csv holds '2' in the prob",
    ),
    "below 0": (
        "a,b\n1,1\n0,-1\n",
        {"probability_columns": ("a", "b"), "top_k": 1},
        "holds '-1' in the probability column 'b'",
    ),
    "no probability": (
        "a,b\n1,1\n0,\n",
        {"probability_columns": ("a", "b"), "mass": 0.5},
        "holds '' in the probability column 'b'",
    ),
    "text for one": (
        "a,b\n1,1\n0,x\n",
        {"probability_columns": ("a", "b"), "mass": 0.5},
        "holds 'x'",
    ),
    "no likely class": (
        "a,b\n1,1\n0,0\n",
        {"probability_columns": ("a", "b"), "mass": 0.5},
        "Row 2 below the header of t.csv has no candidate",
    ),
    "no rule": (GOOD, {"probability_columns": ("x",)}, "give one of the two"),
    "two rules": (
        GOOD,
        {"probability_columns": ("x",), "top_k": 1, "mass": 0.5},
        "give one of the two",
    ),
    "top_k of nothing": (GOOD, {"top_k": 1}, "top_k needs probability_columns"),
    "top_k below 1": (
        GOOD,
        {"probability_columns": ("x",), "top_k": 0},
        "top_k is 0: it must be a whole number of at least 1",
    ),
    "top_k above": (
        "a,b\n1,1\n",
        {"probability_columns": ("a", "b"), "top_k": 3},
        "top_k is 3, but t.csv has probabilities of only 2 classes",
    ),
    "mass above 1": (GOOD, {"probability_columns": ("x",), "mass": 1.5}, "mass is 1.5"),
    "mass of NaN": (GOOD, {"probability_columns": ("x",), "mass": float("nan")}, "mass is nan"),
    "two ways": (
        GOOD,
        {"probability_columns": ("x",), "class_columns": ("x",), "top_k": 1},
        "give one of them",
    ),
    "no vote rule": (VOTES, {"annotators": "majority"}, "'majority' is not a rule"),
    "empty vote rule": (VOTES, {"annotators": ""}, "'' is not a rule"),
    "several vote rules": (VOTES, {"annotators": "union,votes>=2"}, "is not a rule"),
    "zero votes": (VOTES, {"annotators": "votes>=0"}, "a number of at least 1"),
    "top-0": (VOTES, {"annotators": "top-0"}, "a number of at least 1"),
    "too many votes": (
        VOTES,
        {"annotators": "votes>=3"},
        "The task 't2' of t.csv has no label with at least 3 votes, and neither",
    ),
    "no worker": (
        "task,label\n1,a\n",
        {"annotators": "union"},
        "unclear which column of t.csv holds the workers",
    ),
    "empty vote": (
        "task,worker,label\n1,u,a\n1,v,\n",
        {"annotators": "union"},
        "Row 2 below the header of t.csv is empty in the column 'label'",
    ),
    "unknown vote": (
        VOTES,
        {"annotators": "union", "classes": ("cat", "dogs", "fox")},
        "has the label 'dog', which is not one",
    ),
    "unknown weights of votes": (
        VOTES,
        {"annotators": "union", "vote_weights": "best"},
        "it must be reliability, counts or none",
    ),
    "weights without votes": (
        "candidates\na\n",
        {"vote_weights": "counts"},
        "vote_weights needs annotators",
    ),
    "two paths": (
        "task,path,worker,label\n1,a,u,x\n1,b,v,y\n",
        {"annotators": "union"},
        "gives the task '1' another 'path'",
    ),
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_bad_texts_are_refused(tmp_path, monkeypatch, case):
    content, reading, fragment = BAD_TEXTS[case]
    monkeypatch.chdir(tmp_path)
    path = text(tmp_path, content).relative_to(tmp_path)
    message = refusal(lambda: read_table(path, Reading(**reading)))
    assert fragment in message
    assert message.count("t.csv") <= 2


def test_a_bad_row_far_below_is_counted_too(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BLOCK", 1 << 12)
    start = 'id,candidates,"no\nte"\n'
    rows = [f'{i},a|b,"x\ny"\n\n' for i in range(2000)]
    for wrong, fragment in [
        ("x,a\n", "has 3 columns, but row 1501 below it has 2"),
        ("x,,\n", "Row 1501 below the header"),
        ("7,a,\n", "and so has row 8"),
    ]:
        path = text(tmp_path, start + "".join(rows[:1500]) + wrong + "".join(rows[1500:]))
        assert fragment in refusal(lambda path=path: read_table(path, Reading(features=())))
    path = text(tmp_path, start + '0,"a,b\n' + "".join(rows))
    assert "but row 1 below it has 2: close open quotes" in refusal(lambda: read_table(path))


@pytest.mark.parametrize("name", ["none.csv", "none.parquet"])
def test_missing_files_and_folders_are_refused(tmp_path, name):
    assert "There is no file" in refusal(lambda: read_label_table(tmp_path / name))
    (tmp_path / name).mkdir()
    assert "There are no pictures in" in refusal(lambda: read_label_table(tmp_path / name))


def test_other_kinds_of_files_are_refused(tmp_path):
    assert "its name must end in .csv, .tsv, .parquet, .xlsx, .xlsm, .jsonl, .ndjson" in (
        refusal(lambda: read_label_table(text(tmp_path, GOOD, "t.xls")))
    )


def test_bad_parquet_files_are_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = write(tmp_path, frame(), ".parquet")
    content = path.read_bytes()
    for damaged in (
        content[:-20],
        content[: len(content) // 2],
        b"PAR1",
        b"text",
        b"PAR1" + b"\0" * 200 + b"PAR1",
    ):
        path.write_bytes(damaged)
        assert "cannot be read as Parquet" in refusal(lambda: read_table(path))
    path.write_bytes(b"")
    assert "is empty" in refusal(lambda: read_table(path))
    columns = {
        "has no rows": {"candidates": pa.array([], pa.string())},
        "Row 2 of": {"candidates": ["a|b", None]},
        "give lists of names": {"candidates": [[[["a"]]], [[["b"]]]]},
        "holds list<element: string>, not text": {"candidates": ["a", "b"], "id": [["x"], ["y"]]},
        "is empty in the feature column 'x'": {"candidates": ["a", "b"], "x": [1.0, None]},
        "holds 'inf'": {"candidates": ["a", "b"], "x": [1.0, float("inf")]},
        "has no candidate label": {"candidates": [["a", "b"], None]},
    }
    for fragment, table in columns.items():
        pq.write_table(pa.table(table), path)
        assert fragment in refusal(lambda: read_table(path))
    pq.write_table(pa.table({"candidates": ["a", "b"], "x": ["1", "2"], "y": [[1.0], [2.0]]}), path)
    assert read_table(path).features is None
    assert read_table(path, Reading(features=("x",))).features.tolist() == [[1], [2]]
    assert "in the feature column 'y'" in refusal(
        lambda: read_table(path, Reading(features=("y",)))
    )
    pq.write_table(pa.table([["a", "b"], ["a", "b"]], names=["candidates", "candidates"]), path)
    assert "several columns" in refusal(lambda: read_table(path))


# ---- sets alone ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["a;cat|dog;x\n", "a;cat|dog;3, 4\n"])
def test_a_file_with_other_marks_between_its_columns_is_read_for_training_and_for_its_sets(
    tmp_path, rows
):
    path = text(tmp_path, f"id;candidates;note\n{rows}")
    notes = ("Read with ';' between columns.",)
    assert sets(read_table(path)) == [["cat", "dog"]]
    assert read_table(path).notes == read_candidates(path).notes == notes


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_sets_alone_are_read_from_any_column(tmp_path, suffix):
    path = write(tmp_path, frame().rename(columns={"candidates": "anything"}), suffix)
    found = read_candidates(path, "anything").candidates
    assert found.classes == ("cat", "dog", "fox")
    assert [set(found.row(i)) for i in range(5)] == [
        {("cat", "dog", "fox").index(name) for name in row} for row in ROWS
    ]
    assert "no column called 'candidates'" in refusal(lambda: read_candidates(path))
    path = write(tmp_path, frame().drop(columns="label"), suffix)
    assert read_candidates(path, "split").candidates.classes == ("test", "train")


def test_written_tables_are_read_back(tmp_path):
    from ltpll.tables.writers import write_table

    table = frame()
    for suffix in SUFFIXES:
        path = tmp_path / f"out{suffix}"
        write_table(path, {name: table[name].tolist() for name in table.columns})
        found = read_table(path)
        assert sets(found) == [sorted(row) for row in ROWS]
        assert found.labels.tolist() == [0, 1, -1, 1, 2]
        assert found.feature_names == ("height", "width")
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row["note"] for row in csv.DictReader(file)] == table["note"].tolist()


def test_columns_that_are_the_same_in_all_rows_of_a_task_are_its_features(tmp_path):
    rows = [
        *("2,u,x,5.5,red,10", "1,u,y,1,,11", "2,v,y,5.5,red,12"),
        *("1,v,y,1,,13", "3,u,x,2,blue,14"),
    ]
    path = tmp_path / "votes.csv"
    path.write_text("\n".join(["task,worker,annotation,size,colour,seconds", *rows]) + "\n")
    found = read_label_table(path, Reading(annotators="union"), every_kind=True)
    assert found.ids.tolist() == ["2", "1", "3"]
    assert found.frame["size"].tolist() == [5.5, 1, 2]
    assert [cell or None for cell in found.frame["colour"].tolist()] == ["red", None, "blue"]
    assert list(found.frame) == ["size", "colour"]
    assert found.notes == ("Columns that differ within a task are no features: 'seconds'.",)
    numbers = read_label_table(path, Reading(annotators="union"))
    assert numbers.feature_names == ("size",)
    assert numbers.features.tolist() == [[5.5], [1], [2]]


def test_levels_of_numbers_and_words_are_words_and_a_single_word_is_a_typo(tmp_path):
    rooms = ["2", "3", "4", "5 or more"] * 10
    rows = "".join(f"{'ab'[i % 2]},{cell}\n" for i, cell in enumerate(rooms))
    found = read_table(text(tmp_path, f"candidates,rooms\n{rows}"), every_kind=True)
    assert found.frame["rooms"].tolist() == rooms
    path = text(tmp_path, f"candidates,rooms\n{rows}a,many\n")
    assert "holds '5 or more', which is not a finite number" in refusal(
        lambda: read_table(path, every_kind=True)
    )
