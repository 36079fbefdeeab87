"""A run on a table whose files were damaged is refused in a sentence; an intact one is read."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuzz.seeds import own_files
from ltpll.cleaning.prediction import source_for_new_table
from ltpll.cleaning.results import cleaned_columns
from ltpll.cleaning.stored_tables import read_cleaned
from ltpll.report.cleaning_page import render_cleaning_page
from ltpll.runs.run import marker_text
from ltpll.runs.run_files import RunFile
from support.refusals import refusal


@pytest.fixture
def run(tmp_path):
    for name, content in own_files().items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "config.json").write_text('{"experiment": "own"}')
    return sealed(tmp_path)


def sealed(run):
    """With the checksums of whatever its files hold now."""
    (run / RunFile.MARKER).write_bytes(
        marker_text(run, [path.name for path in run.iterdir() if path.name != RunFile.MARKER])
    )
    return run


def change_record(run, *path, value):
    record = json.loads((run / "result.json").read_text())
    part = record
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    (run / "result.json").write_text(json.dumps(record))
    sealed(run)


def change_table(run, name, column, values):
    path = run / f"{name}.parquet"
    table = pq.read_table(io.BytesIO(path.read_bytes()))
    pq.write_table(table.set_column(table.column_names.index(column), column, values), path)
    sealed(run)


def test_whole_files_are_read_and_shown(run):
    found = read_cleaned(run)
    assert found.ids.tolist() == ["a", "b", "c", "d"]
    assert found.sets() == ["ant|bee", "bee", "cat|ant", "bee"]
    assert (
        render_cleaning_page(read_cleaned(run)).count("<article") == 0
    )  # cards are the script's to make


def test_the_record_of_an_older_run_has_no_prior_and_no_goal_and_is_read_and_shown(run):
    record = json.loads((run / "result.json").read_text())
    del record["prior"], record["choice"], record["judgement"], record["last"]["test"]["by_goal"]
    (run / "result.json").write_text(json.dumps(record))
    text = render_cleaning_page(read_cleaned(sealed(run)))
    assert "How the sets arose" not in text
    assert "50.0%, balanced 50.0%" in text


def test_a_run_of_a_version_that_did_not_judge_sets_must_be_trained_again(run):
    path = run / "examples.parquet"
    table = pq.read_table(io.BytesIO(path.read_bytes()))
    pq.write_table(table.drop_columns(["suspicion", "judged", "inside"]), path)
    message = refusal(lambda: read_cleaned(sealed(run)))
    assert message.endswith("train it again with --fresh.")


def test_groups_are_stored_and_read_if_the_table_has_them(run):
    assert read_cleaned(run).groups is None
    path = run / "examples.parquet"
    table = pq.read_table(io.BytesIO(path.read_bytes()))
    pq.write_table(table.append_column("group", pa.array(["p", "q", "p", "q"])), path)
    found = read_cleaned(sealed(run))
    assert found.groups.tolist() == ["p", "q", "p", "q"]
    assert cleaned_columns(found)["group"].tolist() == ["p", "q", "p", "q"]
    change_table(run, "examples", "group", pa.array([1, 2, 3, 4]))
    assert "its column group does not hold" in refusal(lambda: read_cleaned(run))


def test_a_renamed_run_is_read_and_shown_as_before(run, tmp_path_factory):
    before = render_cleaning_page(read_cleaned(run))
    moved = run.rename(tmp_path_factory.mktemp("moved") / "trees of 2024")
    assert read_cleaned(moved).ids.tolist() == ["a", "b", "c", "d"]
    assert render_cleaning_page(read_cleaned(moved)) == before


def test_a_benchmark_run_is_not_read_as_a_table(run):
    (run / "config.json").write_text('{"experiment": "images"}')
    assert f"The run {run} cannot be read (it is a benchmark run, not a run on a table)" in refusal(
        lambda: read_cleaned(run)
    )
    (run / "config.json").write_text('{"experiment": "own"}')
    change_record(run, "config", "experiment", value="images")
    assert "its file result.json has a config that is not that of a run on a table" in refusal(
        lambda: read_cleaned(run)
    )


@pytest.mark.parametrize(
    ("path", "value", "fragment"),
    [
        (("classes",), ["ant", 1, "cat"], "(classes)"),
        (("class_prior",), [0.5], "figures for another number of classes"),
        (("rows",), {"all": "4"}, "(rows.all)"),
        (("last", "test"), {"accuracy": 0.5}, "(last.test.covering_rate)"),
        (("source",), [], "(source)"),
        (("source", "side"), "32", "(source.side)"),
        (("config", "method"), None, "(config.method)"),
        (("prior",), "average", "(prior)"),
        (
            ("prior", "lower"),
            [0.1, 0.2],
            "no estimate and bounds of the prior for each of its 3 classes",
        ),
        (("prior", "because"), None, "(prior.because)"),
        (("choice",), 3, "(choice)"),
        (("judgement", "missing"), "few", "(judgement.missing)"),
        (("judgement", "recovered"), [1], "figures for another number of classes"),
        (("judgement", "not_judged"), [[3, 1, 0]], "not judged, but unknown"),
        (("judgement", "ambiguous"), {"rows": 2}, "(judgement.ambiguous.expected)"),
        (("judgement", "calibration"), {"all": {"rows": 3}}, "(judgement.calibration.accuracy)"),
        (("last", "test", "by_goal"), ["balanced"], "(last.test.by_goal)"),
        (
            ("last", "test", "by_goal", "accuracy"),
            {"covering_rate": 0.5},
            "only some of the held-out figures",
        ),
    ],
)
def test_what_is_wrong_with_its_record_is_said(run, path, value, fragment):
    change_record(run, *path, value=value)
    message = refusal(lambda: read_cleaned(run))
    assert fragment in message
    assert str(run) in message


@pytest.mark.parametrize(
    ("table", "column", "values", "fragment"),
    [
        (
            "examples",
            "label",
            pa.array([0, 1, 2, 3]),
            "its column label does not hold",
        ),
        ("examples", "label", pa.array([0, 1, None, 2]), "its column label"),
        ("examples", "label", pa.array([0, 1, 2, 1], pa.uint64()), "its column label"),
        (
            "examples",
            "candidates",
            pa.array([[0], [1], [], [2]], pa.list_(pa.int32())),
            "its candidate sets do not match its rows",
        ),
        (
            "examples",
            "candidates",
            pa.array([[0], [9], [1], [2]], pa.list_(pa.int32())),
            "its column candidates",
        ),
        (
            "examples",
            "confidence",
            pa.array([0.1, float("nan"), 0.2, 0.3], pa.float32()),
            "its column confidence",
        ),
        (
            "examples",
            "judged",
            pa.array([0, 1, 1, 0]),
            "its column judged",
        ),
        (
            "examples",
            "suspicion",
            pa.array([0.0, float("nan"), 1.0, 1.0]),
            "its column suspicion",
        ),
        ("examples", "id", pa.array([1, 2, 3, 4]), "its column id"),
        ("examples", "path", pa.array([["a"]] * 4), "its column path"),
        ("examples", "true", pa.array([7, None, None, None]), "its column true"),
        (
            "votes",
            "row",
            pa.array([0, 1, 2, 4]),
            "its column row",
        ),
        ("votes", "annotator", pa.array([1, 2, 3, 4]), "its column annotator"),
        ("pictures", "jpeg", pa.array(["x", "y"]), "its column jpeg"),
    ],
)
def test_what_is_wrong_with_its_tables_is_said(run, table, column, values, fragment):
    change_table(run, table, column, values)
    assert fragment in refusal(lambda: read_cleaned(run))


@pytest.mark.parametrize("name", ["examples", "votes", "pictures"])
def test_a_table_that_is_cut_off_is_refused(run, name):
    path = run / f"{name}.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    assert "is damaged" in refusal(lambda: read_cleaned(run))


def test_a_table_that_would_fill_the_memory_is_not_read(run):
    million = pa.array([0]).take(pa.array([0] * 1_000_000))
    pq.write_table(
        pa.table({"row": pa.chunked_array([million] * 70)}),
        run / "pictures.parquet",
        compression="zstd",
    )
    assert (run / "pictures.parquet").stat().st_size < 1 << 20
    assert "would expand to" in refusal(lambda: read_cleaned(sealed(run)))


@pytest.mark.parametrize(
    "reading",
    [
        {"candidates": 5},
        {"class_columns": 3, "annotators": "union"},
        {"annotators": 7},
        {"mass": "all"},
    ],
)
def test_a_record_that_does_not_say_how_its_table_was_read_is_refused(run, reading):
    change_record(run, "source", "reading", value=reading)
    record = read_cleaned(run).record
    assert "how its table or its pictures were read" in refusal(
        lambda: source_for_new_table(run, record, run / "t.csv", None, None, "stop")
    )
