"""Sets written in any form are read back the same, and whatever else a file holds is read or
refused with one sentence.
"""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.targets import check_candidates, check_sentence, check_table
from ltpll.candidates import Candidates
from ltpll.candidates.labels import read_labels
from ltpll.convert.open import read_label_table
from ltpll.errors import InputError
from ltpll.tables.opening import read_array
from ltpll.tables.reading import Reading
from support.refusals import refusal

LIMIT = settings(
    deadline=5000, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# No separator, bracket or quote at an end, and nothing that is a blank to one reader and a letter
# to another.
letters = st.characters(categories=("L", "N", "P", "S"), exclude_characters="|[]\"'")
# A cell such as {} is an object of scores.
names = st.text(letters, min_size=1, max_size=6).filter(
    lambda name: not (name.startswith("{") and name.endswith("}"))
)
sets_of_names = st.lists(names, min_size=2, max_size=5, unique=True).flatmap(
    lambda classes: st.lists(
        st.lists(st.sampled_from(classes), min_size=1, max_size=4, unique=True),
        min_size=2,
        max_size=6,
    )
)


# ---- one problem in every form -------------------------------------------------------------------


def text_table(columns, delimiter=","):
    file = io.StringIO(newline="")
    rows = csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return file.getvalue().encode()


def parquet(columns):
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


@LIMIT
@given(sets=sets_of_names)
def test_sets_are_the_same_from_whatever_form_they_were_written_in(tmp_path, sets):
    classes = sorted({name for row in sets for name in row})
    if len(classes) < 2:
        return
    matrix = np.asarray([[name in row for name in classes] for row in sets], dtype=np.uint8)
    truth = [{classes[c] for c in np.flatnonzero(row)} for row in matrix]
    joined = ["|".join(row) for row in sets]
    in_columns = {
        f"is_{name}": column.tolist() for name, column in zip(classes, matrix.T, strict=True)
    }
    known, by_column = Reading(classes=tuple(classes)), Reading(class_columns=("is_*",))
    files = {
        "text.csv": (text_table({"candidates": joined}), known),
        "text.tsv": (text_table({"candidates": joined}, "\t"), known),
        "json.csv": (text_table({"candidates": [json.dumps(row) for row in sets]}), known),
        "python.csv": (text_table({"candidates": [str(row) for row in sets]}), known),
        "columns.csv": (text_table(in_columns), by_column),
        "text.parquet": (parquet({"candidates": joined}), known),
        "lists.parquet": (parquet({"candidates": sets}), known),
        "columns.parquet": (parquet(in_columns), by_column),
    }
    for name, (content, reading) in files.items():
        (tmp_path / name).write_bytes(content)
        found = read_label_table(tmp_path / name, reading).candidates
        assert [{found.classes[c] for c in found.row(i)} for i in range(len(found))] == truth, name
    for found in (
        Candidates.of(pd.Series(joined), classes=classes),
        Candidates.of(joined, classes=classes),
        Candidates.of(np.asarray(joined), classes=classes),
        Candidates.of([json.dumps(row) for row in sets], classes=classes),
        Candidates.of(sets, classes=classes),
        Candidates.of(matrix),
        read_labels(sets, classes).candidates,
    ):
        assert [{classes[c] for c in found.row(i)} for i in range(len(found))] == truth


@LIMIT
@given(
    text=st.text(st.characters(codec="utf-8"), max_size=60),
    first=st.sampled_from(["candidates", "candidates,x", "id,candidates", ""]),
)
def test_any_text_is_a_table_or_is_refused(tmp_path, text, first):
    path = tmp_path / "t.csv"
    path.write_bytes(f"{first}\n{text}".encode())
    try:
        check_table(read_label_table(path))
    except InputError as error:
        check_sentence(error)


# Neither a bracket, which would start a list, nor a mark (`!`, `*`, `:`), nor any separator: they
# have tests of their own.
parts_of_cells = st.text(
    st.characters(exclude_characters="[]{}!*|;,/\t:", exclude_categories=("Cs",)), max_size=4
)


@LIMIT
@given(
    rows=st.lists(st.lists(parts_of_cells, min_size=1, max_size=4), max_size=6),
    separator=st.sampled_from(["|", ";", ", ", "::"]),
    as_series=st.booleans(),
)
def test_strings_hold_the_names_that_splitting_them_gives_or_are_refused(
    rows, separator, as_series
):
    cells = [separator.join(row) for row in rows]
    split = [{part.strip() for part in cell.split(separator)} - {""} for cell in cells]
    source = pd.Series(cells, dtype=object) if as_series else cells
    if rows and all(split) and len(set().union(*split)) > 1:
        found = Candidates.of(source, separator=separator)
        assert [{found.classes[c] for c in found.row(i)} for i in range(len(found))] == split
    else:
        refusal(lambda: Candidates.of(source, separator=separator))


plain_values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)


@LIMIT
@given(labels=st.lists(plain_values | st.lists(plain_values, max_size=3), max_size=5))
def test_lists_of_anything_are_labels_or_are_refused(labels):
    for read in (lambda: read_labels(labels).candidates, lambda: Candidates.of(labels)):
        try:
            check_candidates(read())
        except InputError as error:
            check_sentence(error)


# ---- config files --------------------------------------------------------------------------------


# ---- arrays and checkpoints ----------------------------------------------------------------------


def npy(header, body=b""):
    text = header.encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


@pytest.mark.parametrize(
    "content",
    [
        npy("{'descr': '<i8', 'fortran_order': False, 'shape': (9999999999, 9999999999), }"),
        npy("{'descr': '<i8', 'fortran_order': False, 'shape': (10000, 10000), }", b"\0" * 8),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1, 2), }", b"cos\nsystem\n"),
        npy("{'descr': '<i8', 'fortran_order': False, 'shape': (1, 2), "),
        npy("{'descr': '<i8', 'shape': 2}"),
        npy("[" * 5000),
        b"\x93NUMPY\x09\x00",
    ],
    ids=["huge", "larger than its file", "objects", "open", "no order", "deep", "version"],
)
@pytest.mark.parametrize("packed", [False, True])
def test_arrays_that_claim_too_much_or_are_none_are_refused(tmp_path, content, packed):
    path = tmp_path / ("a.npz" if packed else "a.npy")
    if packed:
        import zipfile

        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("candidates.npy", content)
    else:
        path.write_bytes(content)
    assert "does not hold plain arrays, or is truncated" in refusal(
        lambda: read_array(path, "".join)
    )


def test_a_member_that_is_no_array_is_refused(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("notes", "text")
    assert "does not hold plain arrays" in refusal(lambda: read_array(tmp_path / "a.npz", "".join))


def test_a_class_number_that_asks_for_billions_of_classes_is_refused():
    assert "classes, more than 1,000,000" in refusal(lambda: Candidates.of([[0], [2**40]]))
    assert "text and others are numbers" in refusal(lambda: read_labels(["a", 1, None]))


@pytest.mark.parametrize("kind", ["V8", "S1", "U1", "M8[s]", "c16"])
def test_a_matrix_of_something_else_than_numbers_is_refused(kind):
    matrix = np.zeros((2, 2), dtype=kind)
    assert "A candidate matrix holds numbers" in refusal(lambda: Candidates.from_matrix(matrix))
