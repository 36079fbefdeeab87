"""Exports of Label Studio: the same votes, sets and weights as a table of annotations."""

import csv
import json

import numpy as np
import pytest

from ltpll.convert.label_studio import local_path
from ltpll.convert.open import read_candidates, read_label_table
from ltpll.tables.reading import Reading
from support.labelled_json import annotation, sets, task, written
from support.refusals import refusal

VOTES = [  # task, annotator, choices
    (7, 1, ["cat"]),
    (7, 2, ["dog"]),
    (7, 3, ["cat"]),
    (8, 1, ["cat", "fox"]),
    (9, 3, ["fox"]),
    (9, 2, ["fox"]),
]
URL = "/data/local-files/?d=photos/{}.jpg"


def export(folder, *more):
    tasks = [
        task(
            number,
            URL.format(number),
            *(annotation(by, *choices) for of, by, choices in VOTES if of == number),
        )
        for number in (7, 8, 9)
    ]
    return written(folder, [*tasks, *more])


def table_of_annotations(folder):
    path = folder / "votes.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows(
            [
                ("task", "worker", "label"),
                *((of, by, choice) for of, by, choices in VOTES for choice in choices),
            ]
        )
    return path


@pytest.mark.parametrize("rule", ["union", "top-1"])
@pytest.mark.parametrize("weights", ["reliability", "counts", "none"])
def test_choices_are_the_votes_of_a_table_of_annotations(tmp_path, rule, weights):
    reading = Reading(annotators=rule, vote_weights=weights)
    found, expected = (
        read_label_table(export(tmp_path), reading),
        read_label_table(table_of_annotations(tmp_path), reading),
    )
    assert sets(found) == sets(expected)
    assert found.ids.tolist() == expected.ids.tolist() == ["7", "8", "9"]
    for name in ("rows", "annotators", "labels", "names"):
        assert np.array_equal(getattr(found.votes, name), getattr(expected.votes, name))
    if weights == "none":
        assert found.candidates.weights is None
    else:
        assert np.array_equal(found.candidates.weights, expected.candidates.weights)


def test_union_is_the_default_and_one_annotator_with_several_labels_gives_a_set(tmp_path):
    found = read_label_table(export(tmp_path))
    assert sets(found) == [["cat", "dog"], ["cat", "fox"], ["fox"]]
    assert found.candidates.weights.tolist()[2:4] == [0.5, 0.5]
    assert dict(found.columns) == {"path": "image", "control": "animal:photo"}


def test_cancelled_empty_and_missing_annotations_are_skipped_and_counted(tmp_path):
    more = [
        task(
            10, "x.jpg", annotation(1, "cat", was_cancelled=True), {"completed_by": 2, "result": []}
        ),
        task(11, "y.jpg"),
        task(12, "z.jpg", annotation(1, "dog"), annotation(2, "cat", was_cancelled=True)),
    ]
    path = export(tmp_path, *more)
    found = read_label_table(path)
    assert found.ids.tolist() == ["7", "8", "9", "12"]
    assert sets(found)[-1] == ["dog"]
    assert found.notes[1:] == (
        "Ignored 3 annotations: cancelled, or without a choice.",
        "2 of 6 tasks are skipped because they have no label.",
    )
    assert read_label_table(path, needs_candidates=False).ids.tolist() == [
        "7",
        "8",
        "9",
        "10",
        "11",
        "12",
    ]


def test_ground_truth_is_the_true_label_and_no_vote(tmp_path):
    more = task(10, "x.jpg", annotation(1, "cat"), annotation(4, "dog", ground_truth=True))
    found, without = (
        read_label_table(export(tmp_path, more)),
        read_label_table(export(tmp_path, task(10, "x.jpg", annotation(1, "cat")))),
    )
    assert found.labels.tolist() == [-1, -1, -1, 1]
    assert without.labels is None
    assert sets(found) == sets(without)
    assert found.votes.names == without.votes.names == ("1", "2", "3")


def test_lines_hold_the_same_votes(tmp_path):
    expected = read_label_table(export(tmp_path))
    lines = "\n".join(map(json.dumps, json.loads(export(tmp_path).read_text())))
    found = read_label_table(written(tmp_path, lines, "lines.jsonl"))
    assert sets(found) == sets(expected)
    assert found.paths.tolist() == expected.paths.tolist()
    assert np.array_equal(found.candidates.weights, expected.candidates.weights)


def test_minimal_exports_are_refused(tmp_path):
    answers = [{"image": "a.jpg", "id": 1, "annotator": 2, "animal": "cat"}]
    path = written(tmp_path, answers, "min.json")
    assert "JSON, not JSON-MIN" in refusal(lambda: read_label_table(path))


@pytest.mark.parametrize(
    ("url", "path"),
    {
        "/data/upload/3/abc-fox.jpg": "3/abc-fox.jpg",
        "http://localhost:8080/data/upload/3/abc-fox.jpg": "3/abc-fox.jpg",
        "/data/local-files/?d=photos/fox%20a.jpg": "photos/fox a.jpg",
        "/data/local-files/?d=/etc/fox.jpg": "/etc/fox.jpg",
        "s3://bucket/photos/fox.jpg": "photos/fox.jpg",
        "https://host/a/b.jpg?size=3": "a/b.jpg",
        "photos/fox#1.jpg": "photos/fox#1.jpg",
        "../fox.jpg": "../fox.jpg",
        "http://[": "http://[",
    }.items(),
)
def test_addresses_become_paths(url, path):
    assert local_path(url) == path


def test_another_member_with_the_picture_can_be_named(tmp_path):
    tasks = [
        {"id": i, "data": {"scan": f"s3://b/{i}.tif"}, "annotations": [annotation(1, c)]}
        for i, c in enumerate("ab")
    ]
    path = written(tmp_path, tasks)
    assert read_label_table(path, Reading(path="scan")).paths.tolist() == ["0.tif", "1.tif"]
    assert read_label_table(path).paths is None
    assert read_candidates(path).candidates.classes == ("a", "b")  # sets alone need no pictures


def test_one_of_several_questions_is_chosen(tmp_path):
    path = written(
        tmp_path,
        [
            task(i, f"{i}.jpg", annotation(1, c), annotation(1, c * 2, question="colour"))
            for i, c in enumerate("ab")
        ],
    )
    assert "(animal, colour): name one with --control" in refusal(lambda: read_label_table(path))
    assert read_label_table(path, Reading(control="colour")).candidates.classes == ("aa", "bb")
    assert read_label_table(path, Reading(control="animal:photo")).candidates.classes == ("a", "b")
    assert "no choices for 'x', only for others (animal, colour)" in refusal(
        lambda: read_label_table(path, Reading(control="x"))
    )


REFUSED = {
    "a task twice": ([task(1, "a.jpg"), task(1, "b.jpg")], "occurs twice"),
    "annotations that are not a list": (
        [{"id": 1, "data": {}, "annotations": {"a": 1}}],
        "lacks 'annotations' (a list)",
    ),
    "an annotation without results": (
        [task(1, "a.jpg", {"result": "cat"})],
        "lacks 'result' (a list)",
    ),
    "boxes": (
        [
            task(
                1,
                "a.jpg",
                {"result": [{"type": "rectanglelabels", "value": {"rectanglelabels": ["cat"]}}]},
            )
        ],
        "of another kind, or ground truth",
    ),
    "no annotations": ([task(1, "a.jpg")], "(annotations are missing, empty, cancelled"),
    "only ground truth": (
        [task(1, "a.jpg", annotation(1, "cat", ground_truth=True))],
        "only for evaluation",
    ),
    "two ground truths": (
        [
            task(
                1,
                "a.jpg",
                annotation(1, "cat", ground_truth=True),
                annotation(2, "dog", ground_truth=True),
            )
        ],
        "several ground truths",
    ),
    "a choice that is a number": (
        [task(1, "a.jpg", annotation(1, 3))],
        "the choice 3, which is not a name",
    ),
    "a choice that is null": (
        [task(1, "a.jpg", annotation(1, None))],
        "the choice None, which is not a name",
    ),
    "a task without its picture": (
        [task(1, "a.jpg", annotation(1, "cat")), {"id": 2, "data": {"text": "x"}}],
        "lacks 'image' (text)",
    ),
    "a broken character": (
        [task(1, "a.jpg", annotation(1, "cat")), task(2, "b.jpg", annotation(1, "\ud800"))],
        "not valid Unicode",
    ),
    "a truth that nobody chose": (
        [
            task(1, "a.jpg", annotation(1, "cat"), annotation(2, "cow", ground_truth=True)),
            task(2, "b.jpg", annotation(1, "dog")),
        ],
        "'cow', which is not one of the 2 classes",
    ),
    "another kind of entry": ([task(1, "a.jpg", annotation(1, "cat")), 3], "Entry 2 of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_sentence(tmp_path, case):
    content, fragment = REFUSED[case]
    assert fragment in refusal(lambda: read_label_table(written(tmp_path, content)))


def test_options_of_tables_are_refused(tmp_path):
    path = export(tmp_path)
    for name, value in {"candidates": "x", "top_k": 2, "label": "y", "worker": "w"}.items():
        reading = Reading(**{name: value}, annotators="union" if name == "worker" else None)
        assert f"{name} does not apply to " in refusal(
            lambda reading=reading: read_label_table(path, reading)
        )
    assert "control needs a project of Label Studio" in refusal(
        lambda: read_label_table(table_of_annotations(tmp_path), Reading(control="c"))
    )
