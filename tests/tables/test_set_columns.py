"""Cells with one list per annotator: the votes of a table of annotations."""

import csv
import json

import numpy as np
import pytest

from ltpll.convert.candidate_files import read_candidates
from ltpll.tables import streaming
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading
from support.labelled_json import sets

BALLOTS = [
    [["cat"], ["cat", "dog"]],
    [[], ["fox"], [" dog "]],
    [["cat", "dog"]],
    [["fox"], ["fox"], ["cat"]],
]


def table_of_annotations(folder):
    path = folder / "votes.csv"
    votes = [
        (i, by + 1, name.strip())
        for i, row in enumerate(BALLOTS)
        for by, names in enumerate(row)
        for name in names
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [("task", "worker", "label"), *sorted(votes, key=lambda vote: vote[1])]
        )  # annotators in order
    return path


def table_of_lists(folder, suffix):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"lists{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table({"x": range(4), "candidates": BALLOTS}), path)
    else:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(
                [("x", "candidates"), *((i, json.dumps(row)) for i, row in enumerate(BALLOTS))]
            )
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("how", [{}, {"annotators": "top-1", "vote_weights": "counts"}])
def test_lists_of_annotators_are_the_votes_of_a_table_of_annotations(tmp_path, suffix, how):
    expected = read_table(table_of_annotations(tmp_path), Reading(**{"annotators": "union", **how}))
    found = read_table(table_of_lists(tmp_path, suffix), Reading(**how))
    order = [expected.ids.tolist().index(str(i)) for i in range(4)]
    assert sets(found) == [sets(expected)[i] for i in order]
    assert found.votes.names == expected.votes.names == ("1", "2", "3")
    np.testing.assert_allclose(
        found.candidates.weights, expected.select(np.asarray(order)).candidates.weights, rtol=1e-6
    )
    assert found.features.ravel().tolist() == [0, 1, 2, 3]
    alone = read_candidates(table_of_lists(tmp_path, suffix), reading=Reading(**how)).candidates
    assert np.array_equal(alone.labels, found.candidates.labels)


def test_flat_cells_among_them_are_those_of_one_annotator_also_in_another_batch(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(streaming, "BLOCK", 64)
    path = tmp_path / "t.csv"
    path.write_text(
        'candidates,x\ncat|dog,1\n"[""fox"", ""cat""]",2\n"[[""dog""], [""fox""]]",3\n'
        + "cat,4\n" * 20
    )
    found = read_table(path)
    assert sets(found)[:4] == [["cat", "dog"], ["cat", "fox"], ["dog", "fox"], ["cat"]]
    first = found.votes.rows < 4
    assert found.votes.rows[first].tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert found.votes.annotators[first].tolist() == [0, 0, 0, 0, 0, 1, 0]
    assert len(found.votes.rows) == 26


def test_flat_lists_have_no_votes(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('candidates,x\n"[""fox"", ""cat""]",2\ndog,3\n')
    found = read_table(path)
    assert found.votes is None
    assert found.candidates.weights is None
