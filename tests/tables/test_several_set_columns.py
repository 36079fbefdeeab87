"""Several columns of candidates: annotators with a column each, or sets that are joined."""

import json

import numpy as np
import pandas as pd
import pytest

from ltpll.cleaning.settings import TrainJob
from ltpll.settings import file_text, read_file, with_settings
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading
from support.commands import ltpll_here as ltpll
from support.refusals import refusal

RNG = np.random.default_rng(0)
NAMES = ["red wine", "port", "sherry", "16"]
TASTERS = ("taster 1", "taster 2", "taster 3", "never there")


def votes(n=60):
    """A column for each taster; some cells are empty, but no row is."""
    truth = RNG.integers(0, len(NAMES), n)
    columns = {}
    for taster, skill in zip(TASTERS[:3], (0.9, 0.6, 0.4), strict=True):
        given = np.where(RNG.random(n) < skill, truth, RNG.integers(0, len(NAMES), n))
        cells = np.asarray(NAMES, dtype=object)[given]
        cells[RNG.random(n) < 0.3] = " " if taster == "taster 1" else ""
        columns[taster] = cells
    rows = pd.DataFrame({"id": [f"r{i}" for i in range(n)], **columns, TASTERS[3]: ""})
    rows["x"] = RNG.normal(size=n).round(3)
    filled = rows[list(TASTERS)].apply(lambda column: column.str.strip() != "").any(axis=1)
    return rows[filled].reset_index(drop=True)


def long_form(rows):
    cells = [
        (row["id"], taster, row[taster], row["x"])
        for _, row in rows.iterrows()
        for taster in TASTERS
        if row[taster].strip()
    ]
    return pd.DataFrame(cells, columns=["task", "worker", "annotation", "x"])


def sets(table):
    classes = table.candidates.classes
    return [[classes[c] for c in table.candidates.row(i)] for i in range(len(table))]


@pytest.mark.parametrize("weights", ["reliability", "counts", "none"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_of_annotators_are_the_same_as_a_row_for_each_annotation(tmp_path, weights, suffix):
    rows = votes()
    wide, long = tmp_path / f"wide{suffix}", tmp_path / "long.csv"
    rows.to_csv(wide, index=False) if suffix == ".csv" else rows.to_parquet(wide)
    long_form(rows).to_csv(long, index=False)
    found = read_table(wide, Reading(candidates=TASTERS, vote_weights=weights))
    expected = read_table(long, Reading(annotators="union", vote_weights=weights))
    assert found.ids.tolist() == expected.ids.tolist()
    assert sets(found) == sets(expected)
    if weights == "none":
        assert found.candidates.weights is expected.candidates.weights is None
    else:
        np.testing.assert_allclose(found.candidates.weights, expected.candidates.weights, 1e-6)
    given = [
        {
            (row, one.names[who], found.candidates.classes[label])
            for row, who, label in zip(one.rows, one.annotators, one.labels, strict=True)
        }
        for one in (found.votes, expected.votes)
    ]
    assert given[0] == given[1]
    assert len(found.votes.rows) == len(expected.votes.rows)
    assert {*found.votes.names} == {*expected.votes.names} == {*TASTERS[:3]}
    assert found.feature_names == expected.feature_names == ("x",)
    np.testing.assert_array_equal(found.features, expected.features)


def test_sets_in_several_columns_are_joined_without_votes(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b,c,x\ncat|dog,dog,,1\n,"[""fox""]",cat,2\n!cat,*,dog,3\n')
    found = read_table(path, Reading(candidates=("c", "a", "b", "a")))
    assert sets(found) == [["cat", "dog"], ["cat", "fox"], ["dog", "fox"]]
    assert found.votes is found.candidates.weights is None
    assert found.feature_names == ("x",)
    assert found.notes == ("The columns 'c', 'a', 'b' hold candidate sets that are joined.",)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("!cat", "*"), [["cat"], ["dog", "fox"]]),
        (("*", "dog"), [["cat"], ["cat", "dog", "fox"]]),
        (('"{""cat"": 0.5, ""dog"": 0.2}"', '"{""fox"": 0.3}"'), [["cat"], ["cat", "dog", "fox"]]),
    ],
)
def test_cells_that_are_no_label_are_no_votes(tmp_path, cells, expected):
    path = tmp_path / "t.csv"
    first = '"{""cat"": 1}","{""fox"": 0}"' if "{" in cells[0] else "cat,"
    last = "" if "{" in cells[0] else "fox,dog\n"
    path.write_text(f"a,b\n{first}\n{','.join(cells)}\n{last}")
    found = read_table(path, Reading(candidates=("a", "b")))
    assert sets(found)[:2] == expected
    assert found.votes is None
    if "{" in cells[0]:
        powers = np.asarray([0.5, 0.2, 0.3]) ** 0.25
        np.testing.assert_allclose(found.candidates.weights[1:], powers / powers.sum(), rtol=1e-5)


def test_rows_without_any_label_and_missing_columns_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,x\ncat,dog,1\n,,2\n")
    how = Reading(candidates=("a", "b"))
    assert "Row 2 below the header" in refusal(lambda: read_table(path, how))
    assert "has no candidate label" in refusal(lambda: read_table(path, how))
    assert "repeat it for several, such as one for each annotator" in refusal(
        lambda: read_table(path)
    )
    assert "candidates is an empty list: name at least one column" in refusal(
        lambda: read_table(path, Reading(candidates=()))
    )
    assert "no column called 'c'" in refusal(
        lambda: read_table(path, Reading(candidates=("a", "c")))
    )
    assert read_table(path, Reading(candidates=("a", "c")), needs_candidates=False)
    assert "is named with --label and with --candidates" in refusal(
        lambda: read_table(path, Reading(candidates=("a", "b"), label="b"))
    )


def test_one_name_and_a_list_of_names_are_read_from_files_and_written_to_them(tmp_path):
    for text, expected in (('"a"', "a"), ('["a", "b c"]', ("a", "b c"))):
        (tmp_path / "ltpll.toml").write_text(f"[table]\ncandidates = {text}\n")
        content = read_file(tmp_path / "ltpll.toml")["table"]["candidates"]
        job = with_settings(TrainJob, {"table.candidates": content})
        assert job.table.candidates == expected
        written = file_text(job, "Settings")
        assert f"\ncandidates = {text}\n" in written
    assert job.words() == ["--candidates", "a", "--candidates", "b c"]


def test_the_record_of_a_run_holds_one_name_as_text_and_repeats_several(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = votes().drop(columns="never there")
    rows.to_csv("t.csv", index=False)
    named = [word for taster in TASTERS[:3] for word in ("--candidates", taster)]
    how = ("--folds", "2", "--epochs", "1")
    printed = ltpll("train", "t.csv", *named, *how, "--out", "several")
    assert "'taster 1', 'taster 2', 'taster 3' hold votes of annotators" in printed
    record = json.loads((tmp_path / "several" / "result.json").read_text())
    assert record["source"]["reading"]["candidates"] == list(TASTERS[:3])
    assert TrainJob.of_record(record).words()[:6] == named
    ltpll("clean", "several", "--out", "cleaned.csv")
    of_annotators = pd.read_csv("cleaned.annotators.csv")
    assert of_annotators["annotator"].tolist() == list(TASTERS[:3])
    assert "Wrote" in ltpll("predict", "several", "t.csv", "--out", "p.csv")
    rows["taster 1"] = rows["taster 1"].where(rows["taster 1"].str.strip() != "", "port")
    rows.drop(columns=list(TASTERS[1:3])).to_csv("t.csv", index=False)
    ltpll("train", "t.csv", "--candidates", "taster 1", *how, "--out", "one")
    record = json.loads((tmp_path / "one" / "result.json").read_text())
    assert record["source"]["reading"]["candidates"] == "taster 1"
