"""Answers: read as people fill them in, put in the place of sets, and refused if unclear."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ltpll.candidates import Candidates
from ltpll.priors import estimate_prior
from ltpll.tables.read_tables import LabelTable
from ltpll.tables.reviewed import read_answers, with_answers
from support.refusals import refusal
from support.user_tables import write_csv

CLASSES = ("ant", "bee", "cat", "-dog")


def table(sets=("ant|bee", "bee|cat", "ant|cat", "cat|-dog"), ids=("a", "b", "c", "=d")):
    return LabelTable(
        np.asarray(ids, dtype=object),
        Candidates.of(list(sets), classes=CLASSES),
        None,
        None,
        None,
        None,
        (),
        None,
    )


def answers(tmp_path, rows, header=("id", "answer"), **options):
    return read_answers([write_csv(tmp_path / "answers.csv", header, rows)], table(), **options)


def test_answers_are_classes_sets_or_nothing(tmp_path):
    rows = [["a", "cat"], ["b", " ant | bee "], ["c", ""], ["=d", "?"]]
    assert answers(tmp_path, rows) == {"a": (2,), "b": (0, 1)}
    assert answers(tmp_path, [["a", '["bee", "ant"]'], ["b", "SKIP"], ["c", "none"]]) == {
        "a": (0, 1)
    }
    assert answers(tmp_path, [["a", "ant;bee"]], separator=";") == {"a": (0, 1)}
    assert answers(tmp_path, [["a", "ant|bee"]], separator=";") == {"a": (0, 1)}
    assert answers(tmp_path, [["a", "bee"], ["a", "bee"], ["a", ""]]) == {"a": (1,)}


def test_a_word_for_no_answer_is_an_answer_if_a_class_has_that_name(tmp_path):
    known = LabelTable(
        np.asarray(["a", "b"], dtype=object),
        Candidates.of(["none|some", "some"]),
        None,
        None,
        None,
        None,
        (),
        None,
    )
    path = write_csv(tmp_path / "answers.csv", ["id", "answer"], [["a", "none"], ["b", "?"]])
    assert read_answers([path], known) == {"a": (0,)}


def test_a_bar_in_the_name_of_a_class_separates_nothing(tmp_path):
    sets = Candidates.of([["a|b", "c"], ["c"]])
    known = LabelTable(np.asarray(["x", "y"], dtype=object), sets, None, None, None, None, (), None)
    path = write_csv(tmp_path / "answers.csv", ["id", "answer"], [["x", "a|b;c"], ["y", "a|b"]])
    assert read_answers([path], known, separator=";") == {"x": (0, 1), "y": (0,)}


def test_texts_that_a_spreadsheet_would_run_come_back_with_their_apostrophe(tmp_path):
    assert answers(tmp_path, [["'=d", "'-dog"]]) == {"=d": (3,)}


def test_the_column_answer_is_preferred_to_label_and_ids_may_have_the_name_of_the_tables_column(
    tmp_path,
):
    assert answers(tmp_path, [["a", "ant", "bee"]], ["id", "label", "answer"]) == {"a": (1,)}
    assert answers(tmp_path, [["a", "ant"]], ["id", "label"]) == {"a": (0,)}
    assert answers(tmp_path, [["a", "ant"]], ["image", "label"], id_column="image") == {"a": (0,)}


def test_several_files_are_joined_and_parquet_is_read(tmp_path):
    pq.write_table(pa.table({"id": ["b"], "answer": ["cat"]}), tmp_path / "second.parquet")
    first = write_csv(tmp_path / "first.csv", ["id", "answer"], [["a", "ant"]])
    assert read_answers([first, tmp_path / "second.parquet"], table()) == {"a": (0,), "b": (2,)}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["a", "ant"], ["z", "bee"]], "1 of 2 ids of"),
        ([["y", "ant"], ["z", "bee"]], "2 of 2 ids"),
        ([["a", "bat"]], "did you mean 'cat'"),
        ([["a", "ant|"], ["a", "bee"]], "was answered before"),
        ([["a", ""], ["b", "?"]], "no answers"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, rows, words):
    assert words in refusal(lambda: answers(tmp_path, rows))


def asked(tmp_path, known, cells=("bee|ant", "cat|bee")):
    rows = [[name, cell, "ant"] for name, cell in zip(known.ids.tolist(), cells, strict=False)]
    return read_answers(
        [write_csv(tmp_path / "answers.csv", ["id", "candidates", "answer"], rows)], known
    )


def test_answers_by_row_number_are_refused_if_the_rows_had_other_sets(tmp_path):
    numbered = table(ids=list("1234"))
    for cells in (("bee|ant", "cat|bee"), ("bee", "bee;cat"), ("!cat", "bee|cat", "ant|cat")):
        assert len(asked(tmp_path, numbered, cells)) == len(cells)
    backwards = table(("cat|-dog", "ant|cat", "bee|cat", "ant|bee"), ids=list("1234"))
    message = refusal(lambda: asked(tmp_path, backwards))
    assert "asked about 'bee|ant' in row 1, which has the candidates '-dog|cat'" in message


def test_a_file_without_a_column_of_answers_or_ids_is_refused(tmp_path):
    assert "'answer'" in refusal(lambda: answers(tmp_path, [["a", "ant"]], ["id", "comment"]))
    assert "'id'" in refusal(lambda: answers(tmp_path, [["a", "ant"]], ["name", "answer"]))


def test_answers_replace_sets_and_are_marked_but_do_not_move_the_prior():
    before = table()
    found = with_answers(before, {"=d": (0, 1), "b": (3,)})
    assert [found.candidates.row(i) for i in range(4)] == [[0, 1], [3], [0, 2], [0, 1]]
    assert found.reviewed.tolist() == [False, True, False, True]
    assert found.select(np.array([1, 2])).reviewed.tolist() == [True, False]
    assert (
        estimate_prior(found.candidates).estimate.tolist()
        == estimate_prior(before.candidates).estimate.tolist()
    )
