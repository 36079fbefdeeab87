"""Tables of results: read back as written, whole or not at all, and no spreadsheet runs them."""

import csv
import os
import string

import numpy as np
import pandas as pd
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ltpll.tables import writers as outputs
from ltpll.tables.opening import whole_table
from ltpll.tables.writers import write_table
from support.refusals import refusal

SUFFIXES = (".csv", ".tsv", ".parquet")
COLUMNS = {
    "id": ["a", "b, c", 'say "x"', "two\nlines", "ä|ö\ttab"],
    "label": np.asarray(["cat", "dog", "cat", "fox", "dog"], dtype=object),
    "confidence": np.asarray([0.1, 1 / 3, 1.0, 1e-9, 0.5]),
    "size": np.asarray([1, 2, 3, 4, 10**12]),
    "flag": np.asarray([True, False, True, True, False]),
}


def read_with_pandas(path):
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    return pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",")


def read_with_arrow(path):
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    options = pyarrow.csv.ParseOptions(
        delimiter="\t" if path.suffix == ".tsv" else ",", newlines_in_values=True
    )
    return pyarrow.csv.read_csv(path, parse_options=options)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_pandas_and_pyarrow_read_back_what_was_written(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    write_table(path, COLUMNS)
    expected = {name: list(values) for name, values in COLUMNS.items()}
    assert read_with_pandas(path).to_dict("list") == expected
    assert read_with_arrow(path).to_pydict() == expected
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_single_precision_missing_values_and_no_rows(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    values = np.asarray([0.1, np.nan, 3.0], dtype=np.float32)
    write_table(path, {"x": values, "y": ["a", None, "c"], "z": [1, None, 3]})
    found = read_with_pandas(path)
    np.testing.assert_array_equal(found["x"].astype(np.float32), values)
    assert found["y"].isna().tolist() == found["z"].isna().tolist() == [False, True, False]
    write_table(path, {"x": [], "y": []})
    assert read_with_pandas(path).shape == (0, 2)


def test_lists_go_into_parquet_only(tmp_path):
    sets = {"sets": [["a", "b"], ["c"]]}
    write_table(tmp_path / "out.parquet", sets)
    assert read_with_arrow(tmp_path / "out.parquet").to_pydict() == sets
    assert "holds lists" in refusal(lambda: write_table(tmp_path / "out.csv", sets))


FORMULAS = [
    "=1+1",
    '=HYPERLINK("x")',
    "+cat",
    "-cat",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "-1+cmd|' /C calc'!A0",
    "+",
    "-",
    "--1",
]
FORMULAS += [
    "\n=1",
    " =1",
    "\u00a0=1",
    "\ufeff=1",
    "\u3000@x",
    "\uff1d1",
    "\uff0b1",
    "\uff0dx",
    "\uff20x",
    "'=1",
    "''\n=1",
    "1\n=1",
]
HARMLESS = [
    "cat",
    "-1",
    "+1",
    "-1.5",
    "-.5",
    "+1e-05",
    "-2.",
    "a=b",
    " -1.5",
    "-inf",
    "",
    "'x",
    "1-2",
    "ex@mple",
]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_what_a_spreadsheet_would_run_gets_an_apostrophe_and_numbers_do_not(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    write_table(
        path,
        {
            "=name": FORMULAS[:-1] + HARMLESS + FORMULAS[-1:],
            "n": [-1] * (len(FORMULAS) + len(HARMLESS)),
        },
    )
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t" if suffix == ".tsv" else ","))
    assert rows[0] == ["'=name", "n"]
    assert [row[0] for row in rows[1:]] == [
        "'" + cell for cell in FORMULAS[:-1]
    ] + HARMLESS + FORMULAS[-1:]
    assert {row[1] for row in rows[1:]} == {"-1"}


def test_parquet_keeps_cells_as_they_are(tmp_path):
    write_table(tmp_path / "out.parquet", {"=name": FORMULAS})
    assert read_with_arrow(tmp_path / "out.parquet").to_pydict() == {"=name": FORMULAS}


def test_long_tables_are_written_in_parts_with_one_header(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "CHUNK", 3)
    write_table(tmp_path / "out.csv", {"a": [f"=x{i}" for i in range(10)], "b": np.arange(10)})
    found = pd.read_csv(tmp_path / "out.csv")
    assert found.to_dict("list") == {"a": [f"'=x{i}" for i in range(10)], "b": list(range(10))}


cells = st.text(
    st.sampled_from(string.ascii_letters + string.digits + " ,;|\"'\n=+-@äß中\t"), max_size=8
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(
        st.tuples(cells, st.floats(allow_nan=False), st.integers(-(2**53), 2**53)),
        min_size=1,
        max_size=6,
    )
)
def test_random_tables_survive_the_way_through_text(tmp_path, rows):
    texts, floats, integers = (list(column) for column in zip(*rows, strict=True))
    for suffix in SUFFIXES:
        path = tmp_path / f"out{suffix}"
        write_table(path, {"t": texts, "f": floats, "i": integers})
        if suffix == ".parquet":
            assert read_with_arrow(path).to_pydict() == {"t": texts, "f": floats, "i": integers}
            continue
        with path.open(newline="", encoding="utf-8") as file:
            found = list(csv.DictReader(file, delimiter="\t" if suffix == ".tsv" else ","))
        assert [float(row["f"]) for row in found] == floats
        assert [int(row["i"]) for row in found] == integers
        for row, text in zip(found, texts, strict=True):
            assert row["t"] in (text, "'" + text)
        assert [str(cell) for cell in whole_table(path).column("t").to_pylist()] == texts


REFUSED = {
    "unknown suffix": ("out.xlsx", {"a": [1]}, "must end in .csv, .tsv, .parquet"),
    "no suffix": ("out", {"a": [1]}, "must end in"),
    "a missing folder": ("none/out.csv", {"a": [1]}, "There is no folder"),
    "a folder": ("folder.csv", {"a": [1]}, "is a folder"),
    "no columns": ("out.csv", {}, "need equal lengths"),
    "uneven columns": (
        "out.csv",
        {"a": [1], "b": [1, 2]},
        "need equal lengths",
    ),
    "mixed types": ("out.csv", {"a": [1, "x"]}, "The column 'a' cannot be written"),
    "a matrix": ("out.csv", {"a": np.zeros((2, 2))}, "The column 'a' cannot be written"),
    "no text": ("out.csv", {"a": ["\ud800"]}, "The column 'a' cannot be written"),
    "a huge number": ("out.csv", {"a": [2**80]}, "The column 'a' cannot be written"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written_is_refused_and_leaves_nothing_behind(tmp_path, case):
    name, columns, fragment = REFUSED[case]
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "out.csv").write_text("old")
    assert fragment in refusal(lambda: write_table(tmp_path / name, columns))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder.csv", "out.csv"]
    assert (tmp_path / "out.csv").read_text() == "old"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_midway_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, suffix, error):
    path = tmp_path / f"out{suffix}"
    path.write_text("old")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    if isinstance(error, OSError):
        assert "No space left" in refusal(lambda: write_table(path, COLUMNS))
    else:
        with pytest.raises(KeyboardInterrupt):
            write_table(path, COLUMNS)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
