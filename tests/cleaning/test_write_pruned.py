"""Tables whose candidate sets are pruned: what changes in them, and what does not."""

import json

import numpy as np
import pandas as pd
import pytest

from ltpll import prune_candidates
from ltpll.cleaning.dataset import Examples, TableSource, read_examples
from ltpll.cleaning.pruned_tables import prune_examples
from ltpll.cleaning.write_pruned import check_pruned_output, class_table, write_pruned
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading
from support.commands import ltpll_here
from support.refusals import refusal
from support.user_tables import feature_rows, rows_of, write_csv

HEADER = ["id", "candidates", "u", "v"]


def prune(source, out):
    found = prune_examples(read_examples(source))
    write_pruned(out, source, found)
    return found


def expected(rows):
    """What `prune_candidates` leaves of the sets, and what it removes, as sets of names."""
    pruned = prune_candidates(
        [[float(u), float(v)] for _, _, u, v in rows], [cell for _, cell, _, _ in rows]
    )
    names = pruned.given.classes
    left = [{names[label] for label in pruned.candidates.row(i)} for i in range(len(rows))]
    gone = [{names[label] for label in pruned.removed_from(i)} for i in range(len(rows))]
    assert any(gone)
    return left, gone


def test_only_cells_that_lose_a_label_change_and_other_columns_stay_as_they_are(tmp_path):
    rows = feature_rows()
    notes = ["=1+1", "a,b", 'say "hi"', " blank ", ""]
    wide = [
        [i, f" {cell.replace('|', ' | ')}", u, v, notes[k % 5]]
        for k, (i, cell, u, v) in enumerate(rows)
    ]
    source = TableSource(write_csv(tmp_path / "t.csv", [*HEADER, "note"], wide))
    prune(source, tmp_path / "out.csv")
    left, gone = expected(rows)
    written = rows_of(tmp_path / "out.csv")
    assert list(written[0]) == [*HEADER, "note", "pruned"]
    for before, after, kept, removed in zip(wide, written, left, gone, strict=True):
        assert [after[name] for name in ("id", "u", "v")] == [before[0], *before[2:4]]
        assert after["note"] == before[4].replace("=1+1", "'=1+1")  # which a spreadsheet would run
        assert set(filter(None, after["pruned"].split("|"))) == removed
        assert {name.strip() for name in after["candidates"].split("|")} == kept
        assert removed or after["candidates"] == before[1]


def test_a_written_table_is_read_as_the_pruned_sets_even_if_classes_are_numbers(tmp_path):
    rows = [
        [i, cell.translate({97: "1", 98: "2", 99: "10"}), u, v] for i, cell, u, v in feature_rows()
    ]
    found = prune(TableSource(write_csv(tmp_path / "t.csv", HEADER, rows)), tmp_path / "out.csv")
    again = read_table(tmp_path / "out.csv")
    assert again.feature_names == ("u", "v")
    assert again.candidates.classes == found.examples.candidates.classes
    assert again.candidates.labels.tolist() == found.examples.candidates.labels.tolist()


@pytest.mark.parametrize(
    "reading", [Reading(), Reading(class_columns=("-b", "=a", "c"))], ids=["sets", "class columns"]
)
def test_no_spreadsheet_runs_a_pruned_table_and_it_is_read_as_the_same_classes_and_numbers(
    tmp_path, reading
):
    names = {"b": "-b", "a": "=a", "c": "c"}
    rows = [
        ["|".join(names[one] for one in cell.split("|")), u, f" {v}"]
        for _, cell, u, v in feature_rows()
    ]
    header = ["candidates", "+u", "v"]
    if reading.class_columns:
        header = [*reading.class_columns, "+u", "v"]
        rows = [
            [*(int(name in row[0].split("|")) for name in names.values()), *row[1:]] for row in rows
        ]
    found = prune(
        TableSource(write_csv(tmp_path / "t.csv", header, rows), reading), tmp_path / "out.csv"
    )
    written = rows_of(tmp_path / "out.csv")
    texts = [row[name] for row in written for name in ("candidates", "pruned")] + list(written[0])
    assert not any(text.startswith(("=", "-", "+")) for text in texts)
    assert any(row["pruned"].startswith(("'=a", "'-b")) for row in written)
    assert min(float(row[name]) for row in written for name in ("'+u", "v")) < 0
    again = read_examples(TableSource(tmp_path / "out.csv"))
    assert again.table.feature_names == ("+u", "v")
    np.testing.assert_array_equal(again.x, found.examples.x)
    assert again.candidates.classes == found.examples.candidates.classes
    assert again.candidates.labels.tolist() == found.examples.candidates.labels.tolist()


def test_lists_stay_lists(tmp_path):
    rows = feature_rows()
    left, gone = expected(rows)
    frame = pd.DataFrame(
        {
            "candidates": [cell.split("|") for _, cell, _, _ in rows],
            "u": [float(r[2]) for r in rows],
        }
    )
    frame["v"] = [float(r[3]) for r in rows]
    frame.to_parquet(tmp_path / "t.parquet")
    prune(TableSource(tmp_path / "t.parquet"), tmp_path / "out.parquet")
    written = pd.read_parquet(tmp_path / "out.parquet")
    assert [set(cell) for cell in written["candidates"]] == left
    assert [set(cell) for cell in written["pruned"]] == gone
    pd.testing.assert_frame_equal(written[["u", "v"]], frame[["u", "v"]])
    frame["candidates"] = [json.dumps(list(cell)) for cell in frame["candidates"]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    prune(TableSource(tmp_path / "t.csv"), tmp_path / "out.csv")
    assert [set(json.loads(row["candidates"])) for row in rows_of(tmp_path / "out.csv")] == left


@pytest.mark.parametrize("kind", ["class columns", "probabilities", "annotations", "mat"])
def test_other_kinds_of_sets_become_a_table_that_training_can_read(tmp_path, kind):
    rows = feature_rows()
    left, _ = expected(rows)
    matrix = np.asarray([[name in cell.split("|") for name in "abc"] for _, cell, _, _ in rows])
    x = np.asarray([[float(u), float(v)] for _, _, u, v in rows])
    features = {"u": x[:, 0], "v": x[:, 1]}
    columns = dict(
        zip(["p_a", "p_b", "p_c"], (matrix / matrix.sum(1, keepdims=True)).T, strict=True)
    )
    path, out = tmp_path / "t.csv", tmp_path / "out.csv"
    if kind == "class columns":
        pd.DataFrame(
            {**dict(zip("abc", matrix.T.astype(int), strict=True)), **features, "split": "train"}
        ).to_csv(path, index=False)
        source = TableSource(path, Reading(class_columns=("a", "b", "c")))
    elif kind == "probabilities":
        pd.DataFrame({**columns, **features}).to_csv(path, index=False)
        source = TableSource(path, Reading(probability_columns=("p_*",), mass=1.0))
    elif kind == "annotations":
        votes = [(row[0], k, name) for row in rows for k, name in enumerate(row[1].split("|"))]
        write_csv(path, ["task", "worker", "label"], votes)
        np.save(tmp_path / "x.npy", x.astype(np.float32))
        reading = Reading(annotators="union", vote_weights="none")
        source = TableSource(path, reading, features=tmp_path / "x.npy")
    else:
        from scipy.io import savemat

        path = tmp_path / "t.mat"
        savemat(
            path,
            {
                "data": x,
                "partial_target": matrix.T.astype(float),
                "target": np.eye(3)[matrix.argmax(1)].T,
            },
        )
        source = TableSource(path)
    prune(source, out)
    again = read_examples(TableSource(out, features=source.features))
    names = again.candidates.classes if kind != "mat" else "abc"
    assert [{names[label] for label in again.candidates.row(i)} for i in range(len(rows))] == left
    np.testing.assert_allclose(again.x, x, rtol=1e-6)
    assert list(rows_of(out)[0])[:3] == ["id", "candidates", "pruned"]
    assert (again.table.splits is not None) == (kind == "class columns")
    assert (again.table.labels is not None) == (kind == "mat")


def test_held_out_rows_neither_vote_nor_change(tmp_path):
    rows = feature_rows()
    split = ["test" if i % 3 == 0 else "train" for i in range(len(rows))]
    source = TableSource(
        write_csv(
            tmp_path / "t.csv",
            [*HEADER, "split"],
            [[*row, s] for row, s in zip(rows, split, strict=True)],
        )
    )
    found = prune(source, tmp_path / "out.csv")
    training = [row for row, s in zip(rows, split, strict=True) if s == "train"]
    left, gone = expected(training)
    written = rows_of(tmp_path / "out.csv")
    assert [set(row["candidates"].split("|")) for row in written if row["split"] == "train"] == left
    assert all(
        row["candidates"] == before[1] and not row["pruned"]
        for row, before in zip(written, rows, strict=True)
        if row["split"] == "test"
    )
    table = class_table(found.of_training)
    assert table["candidate_in"] == [
        sum(name in row[1].split("|") for row in training) for name in "abc"
    ]
    assert table["removed"] == [sum(name in names for names in gone) for name in "abc"]
    np.testing.assert_allclose(table["share"], np.divide(table["removed"], table["candidate_in"]))


@pytest.mark.parametrize("named", [["name"], ["id"], ["path"], ["id", "path"]], ids="+".join)
def test_rows_whose_pictures_were_skipped_are_left_out(tmp_path, named):
    rows = feature_rows()
    cells = [[*(f"{name}{i}.png" for name in named), *row[1:]] for i, row in enumerate(rows)]
    source = TableSource(write_csv(tmp_path / "t.csv", [*named, *HEADER[1:]], cells))
    read = read_examples(source)
    kept = np.delete(np.arange(len(rows)), [3, 40])
    found = prune_examples(
        Examples(
            read.table.select(kept), read.x[kept], [("3.png", "is broken"), ("40.png", "is broken")]
        )
    )
    write_pruned(tmp_path / "out.csv", source, found)
    written = rows_of(tmp_path / "out.csv")
    assert [[row[name] for name in named] for row in written] == [
        cells[i][: len(named)] for i in kept
    ]
    assert [set(row["candidates"].split("|")) for row in written] == expected(
        [rows[i] for i in kept]
    )[0]


def test_a_table_that_was_pruned_before_is_refused(tmp_path):
    rows = [[*row, ""] for row in feature_rows()]
    source = TableSource(write_csv(tmp_path / "t.csv", [*HEADER, "pruned"], rows))
    assert "has a column 'pruned' already" in refusal(
        lambda: check_pruned_output(source, tmp_path / "out.csv")
    )


def test_sets_with_scores_and_files_of_other_tools_are_pruned_while_training_only(tmp_path):
    rows = [
        (f"{'cat:0.7|dog:0.3' if i % 2 else 'dog:0.9|fox:0.1'}", i % 7, i % 5) for i in range(40)
    ]
    write_csv(tmp_path / "scored.csv", ["candidates", "a", "b"], rows)
    message = ltpll_here(
        "data", "prune", tmp_path / "scored.csv", "--out", tmp_path / "out.csv", status=2
    )
    assert "ltpll train --prune" in message
    (tmp_path / "tasks.json").write_text("[]")
    message = ltpll_here(
        "data", "prune", tmp_path / "tasks.json", "--out", tmp_path / "out.csv", status=2
    )
    assert "is not a table" in message
    assert not (tmp_path / "out.csv").exists()


def test_groups_exclusions_and_possible_classes_are_read_and_named_in_the_next_command(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    cells = [("fox|wolf", "canids", "!lynx", "*", "")[i % 5] for i in range(60)]
    rows = [
        (cell, *(np.eye(3)[label] * 5 + rng.normal(size=3)).round(3))
        for cell, label in zip(cells, y, strict=True)
    ]
    write_csv(tmp_path / "t.csv", ["candidates", "a", "b", "c"], rows)
    (tmp_path / "tree.txt").write_text("canids\n  fox\n  wolf\nfelids\n  lynx\n")
    options = ("--taxonomy", tmp_path / "tree.txt", "--empty", "all")
    printed = ltpll_here(
        "data",
        "prune",
        tmp_path / "t.csv",
        *options,
        "--threshold",
        0.9,
        "--out",
        tmp_path / "out.csv",
    )
    command = " ".join(printed.replace("\n", " ").split())
    assert f"--taxonomy {tmp_path / 'tree.txt'}" in command
    assert "--empty all" in command
    before, after = (
        read_table(tmp_path / name, Reading(taxonomy=str(tmp_path / "tree.txt"), empty="all"))
        for name in ("t.csv", "out.csv")
    )
    gone = [row["pruned"] for row in rows_of(tmp_path / "out.csv")]
    assert any(gone)
    for i in range(60):
        given, left = (
            {table.candidates.classes[c] for c in table.candidates.row(i)}
            for table in (before, after)
        )
        assert left == given - set(gone[i].split("|"))
