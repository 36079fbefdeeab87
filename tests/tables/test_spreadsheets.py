"""Sheets of Excel files are read as the same table in a .csv file; hostile files are refused."""

import builtins
import io
import zipfile
from datetime import datetime

import numpy as np
import pytest

from fuzz.seeds import workbook
from ltpll.tables import guarded
from ltpll.tables.opening import open_table
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading
from support.refusals import refusal

ROWS = [
    ["id", "candidates", " x ", "when", "ok", "text"],
    ["a", "cat|fox", 1.5, datetime(2024, 1, 2), True, "=A1"],
    [7, "fox", ValueError("#DIV/0!"), datetime(2024, 1, 2, 13, 5), False, " 007 "],
    [None] * 6,
    [2.5, "Äpfel", 1e20, None, None, None],
]


@pytest.fixture(autouse=True)
def reader():
    pytest.importorskip("python_calamine")


def written(folder, content, name="t.xlsx"):
    path = folder / name
    path.write_bytes(content)
    return path


def columns(table):
    batch = next(table.row_batches(range(len(table.names))))
    return {name: batch.columns[i].to_pylist() for i, name in enumerate(table.names)}


@pytest.mark.parametrize("name", ["t.xlsx", "T.XLSM"])
def test_cells_are_texts_as_in_a_csv_file(tmp_path, name):
    rows = [[None, *row, None] for row in ROWS]
    assert columns(open_table(written(tmp_path, workbook(a=rows), name))) == {
        "id": ["a", "7", "2.5"],
        "candidates": ["cat|fox", "fox", "Äpfel"],
        "x": ["1.5", "", "1e+20"],
        "when": ["2024-01-02", "2024-01-02 13:05:00", ""],
        "ok": ["true", "false", ""],
        "text": ["=A1", " 007 ", ""],
    }


def test_features_are_the_numbers_with_gaps_and_messages_count_rows_below_the_header(tmp_path):
    found = read_table(written(tmp_path, workbook(a=ROWS)), every_kind=True)
    assert found.ids.tolist() == ["a", "7", "2.5"]
    assert list(found.frame) == ["x", "when", "ok", "text"]
    np.testing.assert_array_equal(found.frame["x"], np.float32([1.5, np.nan, 1e20]))
    rows = [["candidates", "x"], ["a", 1], ["b", 2], ["b", "two"]]
    path = written(tmp_path, workbook(a=rows))
    assert "Row 3 below the header of" in refusal(lambda: read_table(path))


def test_the_only_sheet_with_data_is_read_and_several_are_listed(tmp_path):
    path = written(tmp_path, workbook(notes=[[]], data=ROWS[:3], more=[[None]]))
    assert len(read_table(path, every_kind=True)) == 2
    path = written(tmp_path, workbook(one=ROWS[:3], two=ROWS, three=[]))
    message = refusal(lambda: read_table(path))
    assert "several sheets with data: keep one of one, two, or choose it in training" in message
    assert "with sheet='one'" in message
    assert len(read_table(path, Reading(sheet="two"), every_kind=True)) == 3
    for name in ("three", "four"):
        message = refusal(lambda name=name: read_table(path, Reading(sheet=name)))
        assert f"has no sheet '{name}' with data: keep one of one, two" in message
    path.with_suffix(".csv").write_text("candidates,x\na,1\nb,2\n")
    message = refusal(lambda: read_table(path.with_suffix(".csv"), Reading(sheet="two")))
    assert message.startswith("sheet names a sheet of an Excel file")


def test_empty_sheets_and_repeated_names_are_refused(tmp_path):
    for rows in ([], [[None]]):
        path = written(tmp_path, workbook(a=rows))
        assert "is empty" in refusal(lambda path=path: read_table(path))
    path = written(tmp_path, workbook(a=[["candidates", "x"]]))
    assert "no rows below a header" in refusal(lambda: read_table(path))
    path = written(tmp_path, workbook(a=[["candidates", "x", "x"], ["a", 1, 2]]))
    assert "several columns called 'x'" in refusal(lambda: read_table(path))


def test_damaged_and_protected_files_are_refused(tmp_path):
    whole = workbook(a=ROWS)
    for content in (whole[:-30], whole[: len(whole) // 2], b"PK\3\4", b"\xd0\xcf\x11\xe0" * 200):
        path = written(tmp_path, content)
        message = refusal(lambda path=path: read_table(path))
        assert "is damaged, or protected by a password" in message
    assert "is empty" in refusal(lambda: read_table(written(tmp_path, b"")))


def with_sheet(sheet):
    """A workbook whose sheet is this XML."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(workbook(a=ROWS))) as whole,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as changed,
    ):
        for name in whole.namelist():
            changed.writestr(name, sheet if "sheet0" in name else whole.read(name))
    return packed.getvalue()


def test_files_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(guarded, "ALWAYS", 32 << 20)
    path = written(tmp_path, with_sheet(b"<a>" + bytes(260 << 20)))
    assert "more than 100 times as much" in refusal(lambda: read_table(path))
    start = (
        b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    )
    cells = b'<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v>'
    path = written(tmp_path, with_sheet(start + cells + b"</c></row></sheetData></worksheet>"))
    assert "is not read because it" in refusal(lambda: read_table(path))
    assert len(read_table(written(tmp_path, workbook(a=ROWS)), every_kind=True)) == 3


def test_without_the_reader_one_sentence_names_the_extra(tmp_path, monkeypatch):
    plain = builtins.__import__

    def without(name, *arguments, **options):
        if name == "python_calamine":
            raise ModuleNotFoundError("No module", name=name)
        return plain(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    message = refusal(lambda: read_table(written(tmp_path, workbook(a=ROWS))))
    assert (
        "An Excel file needs python_calamine, which is not installed: pip install 'ltpll[excel]', or save .csv."
        in message
    )
