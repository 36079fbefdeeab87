"""The marks between columns and in numbers are recognised, and doubtful ones are not guessed."""

import numpy as np
import pandas as pd
import pytest

from ltpll.tables.dialect import Dialect, find_dialect
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading
from support.refusals import refusal

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "id": [f"r{i}" for i in range(30)],
        "candidates": ["cat|dog", "fox", "dog|fox"] * 10,
        "x": RNG.normal(size=30).round(4),
        "n": RNG.integers(0, 9, 30),
    }
)


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_tables_with_any_marks_hold_what_pandas_wrote(tmp_path, mark, decimal, suffix):
    if mark == decimal:
        return
    path = tmp_path / f"t{suffix}"
    FRAME.to_csv(path, sep=mark, decimal=decimal, index=False)
    found = read_table(path)
    assert found.ids.tolist() == FRAME["id"].tolist()
    assert found.feature_names == ("x", "n")
    np.testing.assert_array_equal(found.features, FRAME[["x", "n"]].to_numpy(np.float32))
    usual = mark == {".csv": ",", ".tsv": "\t"}[suffix]
    assert bool(found.notes) == (not usual or decimal == ",")
    assert ("',' as decimal mark." in "".join(found.notes)) == (decimal == ",")


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "sets with another separator": ("id,candidates\na,cat;dog\nb,fox;cat\n", (",", ".")),
        "a name with a mark": ("id,name; first\na,Bob\nb,Eve\n", (",", ".")),
        "marks in quotes": ('id,candidates\na,"x;y;z"\nb,"x;y;z"\n', (",", ".")),
        "sets with commas": ("id;candidates\na;cat,dog\nb;fox,cat\n", (";", ".")),
        "a comma in the header": ("id;size, cm;x\na;1;2\nb;1;2\n", (";", ".")),
        "rows of other lengths": ("a;b,c\n1,2\n3,4\n", (",", ".")),
        "only a header": ("id;candidates;x\n", (";", ".")),
        "one column": ("candidates\ncat;dog\ncat,fox\n", (",", ".")),
        "thousands or decimals": ("id\tx\na\t1,234\nb\t7,000\n", ("\t", "?")),
        "both marks in one file": ("id;x;y\na;1,5;0.5\nb;2,5;1.5\n", (";", "?")),
        "three decimals beside others": ("id;x;y\na;1,234;0,5\nb;7,000;1,5\n", (";", ",")),
        "a comma in a few words": ("id;x\na;cat\nb;1,5\nc;dog\n", (";", ".")),
        "dates": ("id;day\na;1.2.2024\nb;3.4.2024\n", (";", ".")),
        "an odd quote": ('id;x\na;"1\nb;2\n', (";", ".")),
        "nothing": ("\n", (",", ".")),
    }.values(),
)
def test_the_header_and_most_rows_decide(tmp_path, text, expected):
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert find_dialect(path, ",") == Dialect(*expected)


def test_numbers_whose_marks_are_unclear_are_refused_rather_than_guessed(tmp_path):
    path = tmp_path / "t.tsv"
    for cells in ("1,234 7,000", "1,5 0.5", "1.234,5 2.000,5"):
        rows = [f"r{i}\t{'ab'[i]}\t{cell}\n" for i, cell in enumerate(cells.split())]
        path.write_text("id\tcandidates\tx\n" + "".join(rows))
        assert "whose marks are unclear, in the" in refusal(lambda: read_table(path))
    path.write_text("id\tcandidates\tx\ny\ta\t0,5\nz\tb\t1.234\n")
    assert "'1.234', whose marks are unclear" in refusal(lambda: read_table(path))


def test_commas_in_other_tables_and_columns_stay_as_they_are(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('id,candidates,x\n"1,5","1,5",2\n"1,6","5,7",3\n')
    found = read_table(path, Reading(separator=","))
    assert found.ids.tolist() == ["1,5", "1,6"]
    assert found.candidates.classes == ("1", "5", "7")
    path.write_text("id;candidates;x\n1,5;1,5;2,5\n1,6;5,7;3\n")
    found = read_table(path, Reading(separator=","))
    assert found.ids.tolist() == ["1,5", "1,6"]
    assert found.candidates.classes == ("1", "5", "7")
    assert found.features.tolist() == [[2.5], [3]]
    path.write_text('candidates,x\na,"1,5"\nb,"2,5"\n')
    assert read_table(path).features is None
    assert read_table(path).left_out == ("x",)


def test_a_comma_behind_the_first_rows_is_read_or_refused_by_name(tmp_path):
    path, rows = tmp_path / "t.csv", [f"{'ab'[i % 2]};{i};{i},5\n" for i in range(2000)]
    path.write_text("candidates;x;y\n" + "".join(rows) + "a;0,25;1,5\n")
    assert read_table(path).features[-1].tolist() == [0.25, 1.5]
    path.write_text("candidates;x;y\n" + "".join(rows) + "a;1.234;1,5\n")
    assert "Row 2001 below the header" in refusal(lambda: read_table(path))
    rows = [row.replace(",5", "") for row in rows]
    path.write_text("candidates;x;y\n" + "".join(rows) + "a;0,25;1\n")
    assert "holds '0,25', which is not a finite number" in refusal(lambda: read_table(path))


def test_error_cells_of_a_spreadsheet_are_missing_numbers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("candidates,x\na,1\nb,#N/A\n")
    found = read_table(path, every_kind=True).frame
    assert found["x"].isna().tolist() == [False, True]
