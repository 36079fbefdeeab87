"""The options for groups, empty cells and scores, from `train` to `predict`, as a user would give
them.
"""

import json

import pytest

from support.commands import ltpll as ltpll_in_child
from support.commands import ltpll_here as ltpll
from support.user_tables import feature_rows, rows_of, write_csv

QUICK = ["--epochs", "1", "--folds", "0", "--device", "cpu", "--rebalancer", "none"]
TREE = "class,parent\na,first\nb,first\nc,\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on a table with groups, exclusions and empty cells."""
    folder = tmp_path_factory.mktemp("sets")
    cells = ["first", "!c", "", "*", "a|b|!b", "c"]
    rows = [[row[0], cells[i % 6], *row[2:]] for i, row in enumerate(feature_rows(36))]
    write_csv(folder / "t.csv", ["id", "candidates", "u", "v"], rows)
    (folder / "tree.csv").write_text(TREE)
    options = ["--set", f"table.taxonomy={folder / 'tree.csv'}", "--set", "table.empty=all"]
    printed = ltpll("train", folder / "t.csv", *options, *QUICK, "--out", folder / "run")
    assert "3 classes" in printed
    return folder, options


def test_describe_reads_the_sets_that_train_was_given(run):
    folder, options = run
    table = json.loads(ltpll("describe", folder / "t.csv", *options, "--json"))
    assert table["size_counts"] == {"1": 12, "2": 12, "3": 12}


def test_predict_needs_neither_the_columns_nor_the_files(run, tmp_path):
    folder, _ = run
    out = tmp_path / "p.csv"
    write_csv(tmp_path / "new.csv", ["u", "v"], [["0.1", "0.1"]])
    ltpll("predict", folder / "run", tmp_path / "new.csv", "--out", out)
    assert "in_set" not in rows_of(out)[0]
    write_csv(
        tmp_path / "sets.csv",
        ["u", "v", "candidates"],
        [["0.1", "0.1", "first|!a"], ["0.1", "0.1", ""]],
    )
    ltpll("predict", folder / "run", tmp_path / "sets.csv", "--out", out)
    assert rows_of(out)[0]["label_in_set"] == "b"
    (folder / "tree.csv").rename(folder / "moved.csv")
    ltpll("predict", folder / "run", tmp_path / "new.csv", "--out", out)
    message = ltpll("predict", folder / "run", tmp_path / "sets.csv", "--out", out, status=2)
    (folder / "moved.csv").rename(folder / "tree.csv")
    assert "tree.csv of the run is gone" in message


def test_runs_without_the_new_fields_predict_as_before(run, tmp_path):
    from ltpll.cleaning.prediction import source_for_new_table
    from ltpll.runs.run import Run
    from ltpll.runs.schema import Kind

    folder, _ = run
    record = Run.open(folder / "run", Kind.TABLE).result()
    for name in ("scores", "empty", "taxonomy"):
        del record["source"]["reading"][name]
    write_csv(tmp_path / "new.csv", ["u", "v"], [["0.1", "0.1"]])
    reading = source_for_new_table(
        folder / "run", record, tmp_path / "new.csv", None, None, "stop"
    ).reading
    assert (reading.taxonomy, reading.empty) == (None, "stop")


def test_train_says_that_scores_were_read_and_can_ignore_them(tmp_path):
    rows = [
        [row[0], json.dumps({row[1].split("|")[0]: 0.9, "b": 0.1}), *row[2:]]
        for row in feature_rows(24)
    ]
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], rows)
    said = "Scores were read"
    assert said in ltpll("train", table, *QUICK, "--out", tmp_path / "run")
    assert said not in ltpll(
        "train", table, *QUICK, "--set", "table.scores=none", "--out", tmp_path / "none"
    )
    assert said in ltpll("describe", table)


def test_wrong_options_are_refused_before_anything_is_written(run, tmp_path):
    folder, _ = run
    wrong = {
        ("--set", "table.empty=some"): "empty is 'some'",
        ("--set", f"table.taxonomy={tmp_path / 'nothing.csv'}"): "There is no file",
        ("--annotators", "union", "--set", "table.empty=all"): "empty is for candidate sets",
        (): "--set table.empty=all",
    }
    for options, words in wrong.items():
        assert words in ltpll(
            "train", folder / "t.csv", *options, *QUICK, "--out", tmp_path / "run", status=2
        )
    assert not (tmp_path / "run").exists()


def test_train_and_describe_warn_in_one_line_of_a_class_that_looks_misspelled(tmp_path):
    names = ["brown creeper"] * 150 + ["wood thrush|brown creeper"] * 50 + ["brown creper"]
    table = write_csv(
        tmp_path / "t.csv", ["candidates", "u"], [[name, i % 7] for i, name in enumerate(names)]
    )
    for command in (
        ["describe", table],
        ["train", table, "--epochs", "1", "--folds", "0", "--out", tmp_path / "run"],
    ):
        done = ltpll_in_child(*command)
        assert done.returncode == 0
        warned = [line for line in done.stderr.splitlines() if "warning" in line]
        assert warned == [
            (
                "warning: The class 'brown creper' is in 1 row and resembles 'brown creeper' (200 "
                "rows): correct it if it is misspelled."
            )
        ]
