"""Columns of annotations: found by usual names or named, never confused with true labels."""

import pandas as pd
import pytest

from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading
from support.refusals import refusal
from support.user_tables import write_csv

# task, worker, annotation, true label
VOTES = [
    ("t1", "ann", "cat", "cat"),
    ("t1", "bob", "dog", "cat"),
    ("t2", "ann", "fox", "dog"),
    ("t2", "cid", "dog", "dog"),
]


def written(folder, *header, rows=VOTES):
    return write_csv(folder / "t.csv", header, [row[: len(header)] for row in rows])


def read(path, **reading):
    return read_table(path, Reading(annotators="union", **reading))


def contents(table):
    """Sets, annotators and true labels by name."""
    names = table.candidates.classes
    sets = [{names[label] for label in table.candidates.row(i)} for i in range(len(table))]
    true = (
        None
        if table.labels is None
        else [names[label] if label >= 0 else None for label in table.labels]
    )
    return table.ids.tolist(), sets, table.votes.names, true


EXPECTED = (["t1", "t2"], [{"cat", "dog"}, {"fox", "dog"}], ("ann", "bob", "cid"))


@pytest.mark.parametrize(
    "header",
    [
        ("task", "worker", "label"),
        ("image", "annotator", "choice"),
        ("item", "rater", "annotation"),
        ("path", "user", "answer"),
        ("id", "worker", "label"),
    ],
    ids=" ".join,
)
def test_columns_are_found_by_their_usual_names(tmp_path, header):
    table = read(written(tmp_path, *header))
    assert contents(table) == (*EXPECTED, None)
    assert [table.columns[role] for role in ("task", "worker", "annotation")] == list(header)
    assert "label" not in table.columns


def test_any_column_can_be_named(tmp_path):
    table = read(
        written(tmp_path, "a", "b", "c", "d"), task="a", worker="b", annotation="c", label="d"
    )
    assert contents(table) == (*EXPECTED, ["cat", "dog"])
    assert table.columns == {"task": "a", "worker": "b", "annotation": "c", "label": "d"}
    assert contents(
        read(written(tmp_path, "a", "b", "c", "d"), id="a", worker="b", annotation="c")
    ) == (*EXPECTED, None)


@pytest.mark.parametrize("annotation", ["label", "choice"])
def test_true_labels_are_never_annotations(tmp_path, annotation):
    """With --label truth, the candidates once were the true labels."""
    table = read(written(tmp_path, "task", "worker", annotation, "truth"), label="truth")
    assert contents(table) == (*EXPECTED, ["cat", "dog"])
    assert table.columns["annotation"] == annotation


def test_a_column_called_label_holds_the_true_labels_if_another_one_holds_the_annotations(tmp_path):
    path = written(tmp_path, "task", "worker", "choice", "label")
    for named in ({"annotation": "choice"}, {"label": "label"}):
        assert contents(read(path, **named)) == (*EXPECTED, ["cat", "dog"])
    message = refusal(lambda: read(path))  # which one is which is not guessed
    assert "holds the annotations: it has task, worker, choice, label" in message
    assert "table.annotation" in message
    assert "table.label" in message


def test_task_and_worker_are_taken_by_their_own_names_first_and_a_path_is_no_second_task(tmp_path):
    rows = [
        (task, f"{task}.png", i, worker, worker[0], label)
        for i, (task, worker, label, _) in enumerate(VOTES)
    ]
    table = read(written(tmp_path, "task", "path", "item", "worker", "user", "label", rows=rows))
    assert contents(table) == (*EXPECTED, None)
    assert table.paths.tolist() == ["t1.png", "t2.png"]
    rows = [(task, f"{task}.png", worker, label) for task, worker, label, _ in VOTES]
    assert contents(read(written(tmp_path, "id", "path", "worker", "label", rows=rows))) == (
        *EXPECTED,
        None,
    )


def test_some_true_labels_may_be_unknown(tmp_path):
    rows = [(*row[:3], row[3] if row[0] == "t2" else "") for row in VOTES]
    assert contents(
        read(written(tmp_path, "task", "worker", "label", "truth", rows=rows), label="truth")
    )[3] == [None, "dog"]


REFUSED = {
    "nothing known": (
        ("photograph", "who", "said"),
        {},
        "which column of t.csv holds the tasks: it has photograph, who, said; name",
    ),
    "no worker": (
        ("task", "who", "label"),
        {},
        "holds the workers: it has task, who, label; name the columns with the settings table.task,",
    ),
    "no annotation": (("task", "worker", "said"), {}, "holds the annotations"),
    "the truth alone": (
        ("task", "worker", "label"),
        {"label": "label"},
        "(true labels, which table.label names, are never annotations).",
    ),
    "both": (
        ("task", "worker", "label"),
        {"label": "label", "annotation": "label"},
        "named with --annotation and with --label",
    ),
    "truth as a split": (
        ("task", "worker", "label", "split"),
        {"label": "split"},
        "named with --label and with --split",
    ),
    "truth as a group": (
        ("task", "worker", "label", "x"),
        {"label": "x", "group": "x"},
        "named with --label and with --group",
    ),
    "no such column": (
        ("task", "worker", "label"),
        {"annotation": "labels"},
        "no column called 'labels' (did you mean 'label'?)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_unclear_is_refused_and_the_options_are_named(tmp_path, monkeypatch, case):
    header, reading, words = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, *header).relative_to(tmp_path)
    assert words in refusal(lambda: read(path, **reading))


def test_a_task_has_one_true_label_and_it_is_a_class(tmp_path):
    path = written(
        tmp_path, "task", "worker", "label", "truth", rows=[*VOTES, ("t1", "dan", "cat", "dog")]
    )
    assert "Row 5 below the header" in (message := refusal(lambda: read(path, label="truth")))
    assert "gives the task 't1' another 'truth' than before: a task has one true label" in message
    path = written(
        tmp_path, "task", "worker", "label", "truth", rows=[(*row[:3], "cow") for row in VOTES]
    )
    assert "has the true label 'cow', which is not one of the 3 classes" in refusal(
        lambda: read(path, label="truth")
    )


@pytest.mark.parametrize("name", ["task", "worker", "annotation"])
def test_columns_of_annotations_are_refused_for_other_tables(tmp_path, name):
    path = write_csv(tmp_path / "t.csv", ["id", "candidates"], [["1", "a|b"], ["2", "b"]])
    assert f"{name} needs annotators" in refusal(lambda: read_table(path, Reading(**{name: "id"})))


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        ({"candidates": "y", "label": "y"}, "named with --label and with --candidates"),
        ({"class_columns": ("y", "z"), "label": "y"}, "named with --label and with --class-column"),
        (
            {"probability_columns": ("y", "z"), "top_k": 1, "label": "y"},
            "named with --label and with --probability-column",
        ),
        ({"group": "y", "label": "y"}, "named with --label and with --group"),
    ],
)
def test_true_labels_have_no_other_role_in_other_tables(tmp_path, reading, words):
    path = tmp_path / "t.csv"
    pd.DataFrame({"candidates": ["0|1", "1"], "y": [0, 1], "z": [1, 0]}).to_csv(path, index=False)
    assert words in refusal(lambda: read_table(path, Reading(**reading)))


def test_a_column_called_label_may_hold_the_sets(tmp_path):
    path = write_csv(tmp_path / "t.csv", ["id", "label"], [["1", "a|b"], ["2", "b"]])
    table = read_table(path, Reading(candidates="label"))
    assert table.candidates.classes == ("a", "b")
    assert table.labels is None
