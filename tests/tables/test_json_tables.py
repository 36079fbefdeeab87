"""Lines of JSON are read as the same rows in a .csv or Parquet file."""

import json

import numpy as np
import pandas as pd
import pytest

from ltpll.convert.open import read_label_table
from ltpll.tables.reading import Reading
from support.refusals import refusal

ROWS = [
    {"id": "a", "candidates": ["cat", "dog"], "x": 1, "word": "u", "vector": [1, 2]},
    {"id": 7, "candidates": ["fox"], "x": 2.5, "late": "yes"},
    {"id": "ä", "candidates": ["!x", "16:9"], "x": None, "word": None},
]


def written(folder, rows, name="t.jsonl"):
    path = folder / name
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_members_are_cells_and_missing_ones_are_empty(tmp_path):
    found = read_label_table(written(tmp_path, ROWS), every_kind=True)
    assert found.ids.tolist() == ["a", "7", "ä"]
    assert found.candidates.classes == ("!x", "16:9", "cat", "dog", "fox")
    assert found.candidates.row(0) == [2, 3]
    assert found.frame["word"].tolist() == ["u", "", ""]
    assert found.frame["late"].tolist() == ["", "yes", ""]
    np.testing.assert_array_equal(found.frame["x"], [1, 2.5, np.nan])
    assert found.left_out == ("vector",)


def test_numbers_are_those_of_a_parquet_file(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"candidates": ["a|b", "b"] * 20, "x": rng.normal(size=40)})
    frame["n"], frame["big"] = range(40), rng.integers(10**9, 2 * 10**9, 40)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_json(tmp_path / "t.ndjson", orient="records", lines=True, double_precision=15)
    found, expected = (read_label_table(tmp_path / f"t.{kind}") for kind in ("ndjson", "parquet"))
    assert found.feature_names == expected.feature_names == ("x", "n", "big")
    np.testing.assert_allclose(found.features, expected.features, rtol=1e-14)


def test_sets_may_be_lists_texts_or_scores(tmp_path):
    rows = [{"candidates": one} for one in (["cat", "dog"], "dog|fox", [1, 2], "fox")]
    table = read_label_table(written(tmp_path, rows))
    names = [[table.candidates.classes[c] for c in table.candidates.row(i)] for i in range(4)]
    assert names == [["cat", "dog"], ["dog", "fox"], ["1", "2"], ["fox"]]
    rows = [{"candidates": {"fox": 0.9, "cat": 0.1}}, {"candidates": {"cat": 1}}]
    assert read_label_table(written(tmp_path, rows)).candidates.weights is not None


def test_values_of_several_types_are_refused_in_a_column_of_numbers(tmp_path):
    rows = [{"candidates": "ab"[i % 2], "x": i} for i in range(5)]
    rows[3]["x"] = "three"
    message = refusal(lambda: read_label_table(written(tmp_path, rows)))
    assert "Row 4 of" in message
    assert "holds 'three', which is not a finite number" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("\n \n", "has no rows"),
        ("{}\n", "has no rows"),
        ('{"x": 1}\n[1]\n', "Row 2 of"),
        ('{"x": 1}\n{"x": ', "in its row 2, Expecting value"),
        ('{"candidates": ["a", "\\ud800"]}', "which is not valid Unicode"),
        ('{"candidates": "a", "\\ud800": 1}', "which is not valid Unicode"),
        ("".join(f'{{"candidates": "a", "k{i}": 1}}\n' for i in range(9000)), "the same members"),
        ('{"id": "a"}', "no column called 'candidates'"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, text, expected):
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    assert expected in refusal(lambda: read_label_table(path))


def test_lines_of_a_labelling_tool_are_no_table_unless_they_have_candidates(tmp_path):
    task = {"data": {"image": "a.jpg"}, "annotations": [{"result": []}]}
    assert "labels" in refusal(lambda: read_label_table(written(tmp_path, [task])))
    rows = [{"file": f"{i}.jpg", "data": i, "candidates": "ab"[i]} for i in range(2)]
    found = read_label_table(written(tmp_path, rows), Reading(path="file"))
    assert found.paths.tolist() == ["0.jpg", "1.jpg"]
    assert found.feature_names == ("data",)
