"""Files that fit a pattern are one table, as if they were written one below the other."""

import numpy as np
import pandas as pd
import pytest

from ltpll.tables.opening import matching_files
from ltpll.tables.read_tables import read_table
from support.refusals import refusal

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"id": [f"r{i}" for i in range(12)], "candidates": ["a|b", "b", "c"] * 4})
FRAME["x"], FRAME["n"], FRAME["word"] = RNG.normal(size=12).round(3), range(12), ["u", "v"] * 6


def test_joined_files_are_the_table_that_was_split(tmp_path):
    FRAME[:5].to_csv(tmp_path / "part-1.csv", index=False)
    FRAME[5:6].to_csv(tmp_path / "part-10.csv", index=False, sep=";", decimal=",")
    FRAME[6:].to_parquet(tmp_path / "part-2.parquet", index=False)
    (tmp_path / "part-3").mkdir()
    FRAME.to_csv(tmp_path / "all.csv", index=False)
    seen = []
    how = {"every_kind": True, "on_progress": lambda *done: seen.append(done)}
    found, whole = (read_table(tmp_path / name, **how) for name in ("part-*", "all.csv"))
    assert found.ids.tolist() == whole.ids.tolist()
    pd.testing.assert_frame_equal(found.frame, whole.frame)
    assert found.candidates.labels.tolist() == whole.candidates.labels.tolist()
    first, second = found.notes
    assert first.startswith("Read 3 files like")
    assert second == "Read with ';' between columns and ',' as decimal mark."
    assert [done / total for done, total in seen[:3]] == [1 / 3, 2 / 3, 1]


def test_rows_without_ids_are_numbered_throughout(tmp_path):
    for i in range(3):
        FRAME[["candidates", "x"]].to_csv(tmp_path / f"{i}.tsv", index=False, sep="\t")
    assert read_table(tmp_path / "?.tsv").ids.tolist() == [str(i + 1) for i in range(36)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda part: part.drop(columns="x"), "b.csv has other columns than {}a.csv, see 'x': "),
        (lambda part: part.assign(y=1), "b.csv has other columns than {}a.csv, see 'y': "),
        (lambda part: part[["x", *part.drop(columns="x")]], "the same columns in the same order"),
        (lambda part: part.replace("r7", "r1"), "and so has row 2 below the header of {}a.csv"),
        (lambda part: part.assign(x="word"), "Row 1 below the header of {}b.csv holds 'word'"),
    ],
)
def test_a_refusal_names_the_file(tmp_path, change, expected):
    FRAME[:6].to_csv(tmp_path / "a.csv", index=False)
    change(FRAME[6:]).to_csv(tmp_path / "b.csv", index=False)
    message = refusal(lambda: read_table(tmp_path / "[ab].csv"))
    assert expected.format(f"{tmp_path}/") in message


def test_a_pattern_without_files_is_refused_and_a_file_with_such_a_name_is_read(tmp_path):
    assert "There is no file like" in refusal(lambda: read_table(tmp_path / "part-*.csv"))
    FRAME.to_csv(tmp_path / "a[1].csv", index=False)
    assert len(read_table(tmp_path / "a[1].csv")) == 12
    assert matching_files(tmp_path / "a[1].csv") is None
    assert matching_files(tmp_path / "a*") == [tmp_path / "a[1].csv"]
