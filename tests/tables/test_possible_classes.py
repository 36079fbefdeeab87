"""Excluded and possible classes of rows and sites limit the sets of a table as Python's sets do."""

import numpy as np
import pandas as pd
import pytest

from ltpll.convert.open import read_candidates
from ltpll.tables import set_columns
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading
from support.refusals import refusal


def written(folder, content, name="t.csv"):
    path = folder / name
    path.write_text(content)
    return path


def sets(table):
    return [
        {table.candidates.classes[c] for c in table.candidates.row(i)} for i in range(len(table))
    ]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_excluded_classes_are_removed_and_leave_the_complement_of_an_empty_cell(tmp_path, suffix):
    frame = pd.DataFrame(
        {
            "candidates": ["cat|fox", None, "dog|fox", "cat"],
            "excluded": ["fox", "dog|cat", None, None],
            "x": range(4),
        }
    )
    path = tmp_path / f"t{suffix}"
    frame.to_parquet(path) if suffix == ".parquet" else frame.to_csv(path, index=False)
    found = read_table(path)
    assert sets(found) == [{"cat"}, {"fox"}, {"dog", "fox"}, {"cat"}]
    assert found.columns["excluded"] == "excluded"
    renamed = tmp_path / f"r{suffix}"
    frame = frame.rename(columns={"excluded": "not"})
    frame.to_parquet(renamed) if suffix == ".parquet" else frame.to_csv(renamed, index=False)
    assert sets(read_table(renamed, Reading(excluded="not"))) == sets(found)
    assert read_candidates(renamed, reading=Reading(excluded="not")).candidates.row(1) == [2]


def test_a_numeric_column_is_not_taken_for_exclusions_by_its_name(tmp_path):
    found = read_table(written(tmp_path, "candidates,excluded\ncat|fox,0\nfox,1\n"))
    assert found.feature_names == ("excluded",)
    named = read_table(
        written(tmp_path, "candidates,excluded\n1|2|3,2\n3,1\n"),
        Reading(excluded="excluded", features=()),
    )
    assert sets(named) == [{"1", "3"}, {"3"}]


def test_possible_classes_of_a_row_limit_its_set(tmp_path):
    path = written(
        tmp_path,
        "candidates,here,x\ncat|fox,fox|dog,1\n*,cat|dog,2\n!dog,cat|dog,3\n,!fox,4\ncat,,5\n*,,6\n",
    )
    found = read_table(path, Reading(possible="here", empty="all"))
    assert sets(found) == [
        {"fox"},
        {"cat", "dog"},
        {"cat"},
        {"cat", "dog"},
        {"cat"},
        {"cat", "dog", "fox"},
    ]


SITES = "site,class\nnorth,cat\nnorth,fox\nsouth,dog|cow\nelsewhere,yak\n"


def test_possible_classes_of_sites_limit_sets(tmp_path):
    sites = written(tmp_path, SITES, "sites.csv")
    path = written(
        tmp_path,
        "candidates,place,x\ncat|dog,north,1\n*,south,2\n!cow,south,3\ndog|cat,west,4\n*,,5\n",
    )
    found = read_table(path, Reading(site="place", possible_at=str(sites)))
    assert sets(found) == [
        {"cat"},
        {"dog", "cow"},
        {"dog"},
        {"cat", "dog"},
        {"cat", "cow", "dog", "fox"},
    ]
    assert found.feature_names == ("x",)


def test_scores_are_renormalised_over_what_remains(tmp_path):
    path = written(tmp_path, "candidates,here,x\ncat:0.6|fox:0.3|dog:0.1,fox|dog,1\ncat:1,,2\n")
    alone = read_table(
        written(tmp_path, "candidates,x\nfox:0.3|dog:0.1,1\ncat:1,2\n", "alone.csv")
    ).candidates
    found = read_table(path, Reading(possible="here")).candidates
    np.testing.assert_allclose(found.weights, alone.weights, rtol=1e-6)
    assert read_table(path, Reading(possible="here", scores="none")).candidates.weights is None


def test_probabilities_become_weights_of_the_sets_they_make(tmp_path):
    path = written(tmp_path, "p_a,p_b,p_c\n0.64,0.36,0\n0.1,0.2,0.7\n0,0,0\n")
    reading = Reading(probability_columns=("p_*",), top_k=2, empty="all")
    found = read_table(path, reading).candidates
    assert [found.row(i) for i in range(3)] == [[0, 1], [1, 2], [0, 1, 2]]
    expected = np.asarray([0.64, 0.36, 0.2, 0.7]) ** 0.25
    np.testing.assert_allclose(found.weights[:2], expected[:2] / expected[:2].sum(), rtol=1e-5)
    np.testing.assert_allclose(found.weights[4:], 1 / 3, rtol=1e-5)
    ignored = read_table(
        path, Reading(probability_columns=("p_*",), top_k=2, empty="all", scores="none")
    ).candidates
    assert ignored.weights is None
    assert ignored.labels.tolist() == found.labels.tolist()


def test_scores_in_a_later_batch_must_be_scores_too(tmp_path, monkeypatch):
    monkeypatch.setattr("ltpll.tables.streaming.BLOCK", 1 << 10)
    rows = [f"cat:0.{i}|dog:0.5,{i}" for i in range(1, 400)]
    assert (
        read_table(written(tmp_path, "candidates,x\n" + "\n".join(rows) + "\n")).candidates.weights
        is not None
    )
    path = written(tmp_path, "candidates,x\n" + "\n".join([*rows, "fox,1"]) + "\n")
    assert "Row 400" in refusal(lambda: read_table(path))


REFUSALS = {
    "not possible": (
        {"site": "place", "possible_at": "sites.csv"},
        "cat,south",
        "Row 2 below the header of t.csv has no candidate that is possible at "
        "the site 'south' according to sites.csv",
    ),
    "no site": (
        {"site": "x", "possible_at": "sites.csv"},
        "cat,south",
        "No site of t.csv has a list in sites.csv: its sites are north",
    ),
    "no column": (
        {"site": "where", "possible_at": "sites.csv"},
        "cat,south",
        "t.csv has no column called 'where'",
    ),
    "no list": (
        {"site": "place", "possible_at": "bad.csv"},
        "cat,south",
        "bad.csv has no column called 'class'",
    ),
    "other format": (
        {"site": "place", "possible_at": "sites.txt"},
        "cat,south",
        "There is no file sites.txt",
    ),
    "only a site": (
        {"site": "place"},
        "cat,south",
        "site needs possible_at",
    ),
    "only lists": (
        {"possible_at": "sites.csv"},
        "cat,south",
        "possible_at needs site",
    ),
    "two kinds": (
        {"site": "place", "possible_at": "sites.csv", "possible": "x"},
        "cat,south",
        "The possible classes of a row come from",
    ),
    "two roles": (
        {"excluded": "candidates"},
        "cat,south",
        "The column 'candidates' is named with --excluded and with --candidates",
    ),
    "annotations": (
        {"annotators": "union", "empty": "all"},
        "cat,south",
        "empty is for candidate sets",
    ),
    "unknown value": (
        {"scores": "best"},
        "cat,south",
        "scores is 'best': it must be weights or none",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_limits_that_cannot_hold_are_refused_in_one_sentence(tmp_path, what, monkeypatch):
    options, row, start = REFUSALS[what]
    monkeypatch.chdir(tmp_path)
    written(tmp_path, SITES, "sites.csv")
    written(tmp_path, "site,x\nnorth,1\n", "bad.csv")
    path = written(tmp_path, f"candidates,place,x\ncat|dog,north,1\n{row},2\n").relative_to(
        tmp_path
    )
    assert refusal(lambda: read_table(path, Reading(**options))).startswith(start)


def test_sets_that_do_not_fit_into_memory_are_refused_before_they_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr("ltpll.tables.memory_limits.available_memory", lambda: 100_000)
    path = written(tmp_path, "candidates\n" + "".join(f"c{i}\n" for i in range(100)) + "*\n" * 100)
    message = refusal(lambda: read_table(path))
    assert "10,100 candidates" in message
    monkeypatch.setattr(set_columns, "BYTES_PER_LABEL", 1)
    assert len(read_table(path).candidates.labels) == 10_100
