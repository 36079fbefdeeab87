"""Pre-annotations: the structure that Label Studio documents, and what its export makes of it."""

import json

import pytest

from ltpll.convert.label_studio import control_names, write_pre_annotations
from ltpll.convert.open import read_label_table
from support.labelled_json import sets, written
from support.refusals import refusal

URLS = ["/data/upload/1/a-fox.jpg", "s3://bucket/elk.jpg", "photos/größe.jpg"]
LABELS, SCORES = ["fox", "elk", "fox"], [0.9, 0.5, 1.0]


def check_documented_structure(tasks):
    """What https://labelstud.io/guide/predictions requires of a file that is imported."""
    for task in tasks:
        assert set(task) == {"data", "predictions"}
        assert all(isinstance(value, str) for value in task["data"].values())
        for prediction in task["predictions"]:
            assert set(prediction) == {"model_version", "score", "result"}
            assert isinstance(prediction["model_version"], str)
            assert 0 <= prediction["score"] <= 1
            for result in prediction["result"]:
                assert set(result) == {"from_name", "to_name", "type", "value"}
                assert result["type"] == "choices"
                assert [type(choice) for choice in result["value"]["choices"]] == [str]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_tasks_have_the_documented_structure(tmp_path, n):
    path = tmp_path / "tasks.json"
    write_pre_annotations(
        path,
        [{"image": url} for url in URLS[:n]],
        LABELS[:n],
        SCORES[:n],
        control=("animal", "photo"),
    )
    tasks = json.loads(path.read_text(encoding="utf-8"))
    check_documented_structure(tasks)
    assert [task["data"]["image"] for task in tasks] == URLS[:n]
    assert [task["predictions"][0]["score"] for task in tasks] == SCORES[:n]
    results = [task["predictions"][0]["result"][0] for task in tasks]
    assert [result["value"]["choices"] for result in results] == [[label] for label in LABELS[:n]]
    assert all(
        (result["from_name"], result["to_name"]) == ("animal", "photo") for result in results
    )


def test_what_an_annotator_accepts_is_read_back(tmp_path):
    """Label Studio turns an accepted prediction into an annotation with the same result."""
    path = tmp_path / "tasks.json"
    write_pre_annotations(path, [{"image": url} for url in URLS], LABELS, SCORES)
    tasks = json.loads(path.read_text(encoding="utf-8"))
    unlabelled = read_label_table(path, needs_candidates=False)
    assert unlabelled.paths.tolist() == ["1/a-fox.jpg", "elk.jpg", "photos/größe.jpg"]
    assert unlabelled.candidates is None
    accepted = [
        {
            **task,
            "id": i,
            "annotations": [{"completed_by": 1, "result": task["predictions"][0]["result"]}],
        }
        for i, task in enumerate(tasks)
    ]
    found = read_label_table(written(tmp_path, accepted, "export.json"))
    assert sets(found) == [[label] for label in LABELS]
    assert found.columns["control"] == "choice:image"


def test_names_of_the_interface_come_from_the_option_the_import_or_the_usual_ones():
    assert control_names(None) == ("choice", "image")
    assert control_names(None, "animal:photo") == ("animal", "photo")
    assert control_names("species", "animal:photo") == ("species", "photo")
    assert control_names("a:b", "animal:photo") == ("a", "b")
    for wrong in ("", "a:", ":b", "a:b:c"):
        assert "such as choice:image" in refusal(lambda wrong=wrong: control_names(wrong))
