"""Tables and columns with Arrow's interface give the same results as those of pandas."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ltpll import Candidates, PartialLabelClassifier
from ltpll.candidates.arrow import is_arrow, is_frame
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading
from support.refusals import refusal

CELLS = ["cat|dog", "dog", "fox|cat", "cat"]
LISTS = [cell.split("|") for cell in CELLS]
MATRIX = {"cat": [1, 0, 1, 1], "dog": [1, 1, 0, 0], "fox": [0, 0, 1, 0]}


class Exported:
    """An object of an unknown library, of which only Arrow's interface is known."""

    def __init__(self, content):
        self.content = content
        if isinstance(content, pa.Table):
            self.columns = content.column_names

    def __arrow_c_stream__(self, requested_schema=None):
        return self.content.__arrow_c_stream__(requested_schema)


def column(library, values):
    if library == "polars":
        return pytest.importorskip("polars").Series(values)
    array = pa.chunked_array([values[:1], values[1:]])
    return array if library == "pyarrow" else Exported(array)


def table(library, columns):
    if library == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    return {
        "pandas": pd.DataFrame,
        "pyarrow": pa.table,
        "other": lambda content: Exported(pa.table(content)),
    }[library](columns)


LIBRARIES = ["pyarrow", "other", "polars"]


def content(candidates):
    return candidates.classes, candidates.offsets.tolist(), candidates.labels.tolist()


@pytest.mark.parametrize("library", LIBRARIES)
def test_candidates_of_columns_and_tables_are_those_of_pandas(library):
    expected = content(Candidates.of(pd.Series(CELLS)))
    assert content(Candidates.of(column(library, CELLS))) == expected
    assert content(Candidates.of(column(library, LISTS))) == expected
    assert (
        content(Candidates.of(table(library, MATRIX)))
        == expected
        == content(Candidates.of(pd.DataFrame(MATRIX)))
    )


def test_every_text_type_of_arrow_is_read():
    expected = content(Candidates.of(CELLS))
    texts = pa.array(CELLS)
    for array in (
        texts,
        texts.cast(pa.large_string()),
        texts.cast(pa.string_view()),
        texts.dictionary_encode(),
    ):
        assert content(Candidates.of(array)) == expected
        assert (
            content(read_table(pa.table({"candidates": array, "x": range(4)})).candidates)
            == expected
        )
    for kind in (
        pa.list_(pa.string()),
        pa.large_list(pa.large_string()),
        pa.list_(pa.string_view()),
    ):
        assert (
            content(
                read_table(
                    pa.table({"candidates": pa.array(LISTS, kind), "x": range(4)})
                ).candidates
            )
            == expected
        )


@pytest.mark.parametrize("library", ["pandas", *LIBRARIES])
def test_tables_in_memory_are_read_like_files(library, tmp_path):
    columns = {
        "id": list("abcd"),
        "candidates": CELLS,
        "label": ["cat", None, "fox", "cat"],
        "split": ["train", "train", "test", "train"],
        "x": [1.5, 2, 3, -4],
        "scene": [1, 1, 2, 2],
    }
    pd.DataFrame(columns).to_parquet(tmp_path / "t.parquet")
    reading = Reading(group="scene")
    found, expected = (
        read_table(table(library, columns), reading),
        read_table(tmp_path / "t.parquet", reading),
    )
    assert content(found.candidates) == content(expected.candidates)
    for name in ("ids", "labels", "splits", "features", "groups"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert found.feature_names == expected.feature_names == ("x",)


def test_votes_in_memory_are_read_like_a_table_of_annotations():
    votes = pa.table({"task": [1, 1, 2], "worker": ["u", "v", "u"], "label": ["cat", "dog", "dog"]})
    found = read_table(votes, Reading(annotators="union"))
    assert found.ids.tolist() == ["1", "2"]
    assert found.votes.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_classifier_learns_the_same_as_from_pandas(library):
    rng = np.random.default_rng(0)
    x = {name: rng.normal(size=24).astype(np.float32) for name in ("height", "width")}
    y = ["ab" if height > 0 else "b|c" for height in x["height"]]

    def fitted(features, labels):
        return PartialLabelClassifier(epochs=2, random_state=0).fit(features, labels)

    expected = fitted(pd.DataFrame(x), pd.Series(y))
    found = fitted(table(library, x), column(library, y))
    assert (
        found.feature_names_in_.tolist()
        == expected.feature_names_in_.tolist()
        == ["height", "width"]
    )
    assert found.classes_.tolist() == expected.classes_.tolist()
    assert np.array_equal(
        found.predict_proba(table(library, x)), expected.predict_proba(pd.DataFrame(x))
    )
    assert found.predict(table(library, x)).tolist() == expected.predict(pd.DataFrame(x)).tolist()
    assert (
        fitted(table(library, x), table(library, {"y": y})).classes_.tolist()
        == expected.classes_.tolist()
    )
    other = table(library, {"height": x["height"], "depth": x["width"]})
    with pytest.raises(ValueError, match="feature names should match"):
        found.predict(other)


def test_what_cannot_be_read_is_refused_in_one_sentence():
    assert "pyarrow.Table has no column called 'candidates': it has x; name the column" in refusal(
        lambda: read_table(pa.table({"x": [1]}))
    )
    empty = pa.table({"candidates": ["cat", ""], "x": [1, 2]})
    assert "Row 1 (counted from 0) of pyarrow.Table has no candidate label" in refusal(
        lambda: read_table(empty)
    )
    assert "pyarrow.Table has no rows" in refusal(lambda: read_table(empty.slice(0, 0)))
    mixed = pd.DataFrame({"candidates": ["cat", 3], "x": [1, 2]})
    assert "give every column values of one type" in refusal(lambda: read_table(mixed))
    assert "A table cannot be read from builtins.dict" in refusal(
        lambda: read_table({"candidates": CELLS})
    )
    assert "Row 1 has no candidate label" in refusal(lambda: Candidates.of(pa.array(["cat", None])))
    assert "convert it to numbers first" in refusal(
        lambda: Candidates.of(pa.table({"cat": ["1", "0"], "dog": ["0", "1"]}))
    )


def test_objects_of_other_kinds_are_left_alone():
    assert not any(map(is_arrow, ([1], np.ones(2), pd.DataFrame({"a": [1]}), "text", pa.Table)))
    assert is_frame(pd.DataFrame({"a": [1]}))
    assert not is_frame(pa.array([1]))


def test_categories_of_polars_are_texts():
    polars = pytest.importorskip("polars")
    sets = polars.Series(CELLS, dtype=polars.Categorical)
    frame = polars.DataFrame({"candidates": sets, "x": range(4)})
    assert content(read_table(frame).candidates) == content(Candidates.of(CELLS))
