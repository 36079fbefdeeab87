"""Files of other programs as plain tables: training reads the same from both."""

import numpy as np
import pytest
import scipy.io

from ltpll.convert.open import read_as_plain_table, read_label_table
from ltpll.tables.reading import Reading
from ltpll.tables.writers import write_table
from support.commands import ltpll_here as ltpll
from support.labelled_json import annotation, task, written
from support.refusals import refusal
from support.user_tables import rows_of


def label_studio(names, *, truth=False):
    votes = [(7, 1, [0]), (7, 2, [1]), (7, 3, [0]), (8, 1, [0, 2]), (9, 3, [2]), (9, 2, [2])]
    tasks = []
    for number in (9, 7, 8):
        given = [
            annotation(f"ann {by}", *(names[one] for one in ones))
            for of, by, ones in votes
            if of == number
        ]
        if truth and number == 8:
            given.append(annotation("judge", names[2], ground_truth=True))
        tasks.append(task(number, f"/data/local-files/?d=photos/{number}.jpg", *given))
    return tasks


def coco(names):
    annotations = [
        {"image_id": image, "category_id": category, "bbox": [i, 0, 5.5, 4]}
        for i, (image, category) in enumerate([(2, 0), (5, 1), (2, 1), (2, 2), (5, 1)])
    ]
    return {
        "images": [{"id": 5, "file_name": "b.jpg"}, {"id": 2, "file_name": "a.jpg"}],
        "annotations": annotations,
        "categories": [{"id": i, "name": name} for i, name in enumerate(names)],
    }


def speciesnet(names):
    scores = np.random.default_rng(0).dirichlet(np.ones(3), 20).tolist()
    return {
        "predictions": [
            {"filepath": f"{i}.jpg", "classifications": {"classes": names, "scores": row}}
            for i, row in enumerate(scores)
        ]
    }


def megadetector(names):
    detections = [{"conf": 0.9, "classifications": [["0", 0.8], ["2", 0.1], ["1", 0.05]]}]
    images = [{"file": "a.jpg", "detections": detections}, {"file": "c.jpg", "detections": None}]
    return {"images": images, "classification_categories": dict(enumerate(names))}


PLAIN, ODD = ["red fox", "dog", "16"], ["a|b", "16:9", "=c, d"]
SOURCES = {
    "votes": (label_studio(PLAIN), Reading()),
    "votes of odd names": (label_studio(ODD), Reading()),
    "votes and true labels": (label_studio(PLAIN, truth=True), Reading()),
    "pictures": (coco(PLAIN), Reading()),
    "pictures of odd names": (coco(ODD), Reading()),
    "crops": (coco(PLAIN), Reading(objects="crops")),
    "scores": (speciesnet(PLAIN), Reading()),
    "scores of odd names": (speciesnet(ODD), Reading()),
    "the highest scores": (speciesnet(PLAIN), Reading(top_k=2)),
    "detections": (megadetector(PLAIN), Reading()),
}


def check_same(found, expected):
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.candidates.classes == expected.candidates.classes
    for name in ("offsets", "labels", "weights", "groups"):
        one, other = (getattr(table.candidates, name) for table in (found, expected))
        assert (one is None and other is None) or np.array_equal(one, other), name
    for name in ("labels", "groups", "paths", "features"):
        one, other = (getattr(table, name) for table in (found, expected))
        assert (one is None and other is None) or np.array_equal(one, other), name
    if expected.votes is not None:
        for name in ("rows", "annotators", "labels", "names"):
            assert np.array_equal(getattr(found.votes, name), getattr(expected.votes, name)), name


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("case", SOURCES)
def test_training_reads_the_same_from_the_source_and_from_its_table(tmp_path, case, suffix):
    content, reading = SOURCES[case]
    source, table = written(tmp_path, content), tmp_path / f"t{suffix}"
    made = read_as_plain_table(source, reading)
    write_table(table, made.columns)
    check_same(read_label_table(table, made.reading), read_label_table(source, reading))


def test_a_matlab_file_becomes_a_table_with_its_features(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3)).astype(np.float32)
    sets = np.asarray([[1, 1, 0], [0, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, 1], [1, 0, 0]])
    arrays = {"data": x, "partial_target": sets.T, "target": np.eye(3)[:, [0, 1, 2, 0, 2, 0]]}
    scipy.io.savemat(tmp_path / "t.mat", arrays)
    printed = ltpll("convert", tmp_path / "t.mat", "--out", tmp_path / "t.csv")
    assert "Wrote 6 rows" in printed
    found = read_label_table(tmp_path / "t.csv")
    check_same(found, read_label_table(tmp_path / "t.mat"))
    assert found.feature_names == ("data_1", "data_2", "data_3")
    arrays["partial_target"] = np.vstack([sets.T, np.zeros(6)])  # a class that no set names
    arrays["target"] = np.eye(4)[:, [3, 1, 2, 0, 2, 0]]
    scipy.io.savemat(tmp_path / "t.mat", arrays)
    assert read_label_table(tmp_path / "t.mat").candidates.n_classes == 4


def test_the_command_prints_how_to_train_on_its_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = written(tmp_path, label_studio(PLAIN, truth=True))
    printed = ltpll("convert", source, "--out", "votes.csv")
    assert "Read as a file of Label Studio." in printed
    assert "Wrote 7 rows to votes.csv: task, worker, annotation, path, label" in printed
    how = "--images FOLDER --annotators union --set table.annotation=annotation --out run"
    assert f"Next: ltpll train votes.csv {how}" in printed
    first = rows_of(tmp_path / "votes.csv")[0]
    assert (first["task"], first["worker"], first["annotation"]) == ("9", "ann 3", "16")
    source = written(tmp_path, coco(PLAIN))
    printed = ltpll("convert", source, "--objects", "crops", "--out", "crops.csv")
    assert "ltpll train crops.csv --images FOLDER --group group" in printed
    assert rows_of(tmp_path / "crops.csv")[0] == {
        "id": "1",
        "path": "a.jpg#xywh=0,0,5.5,4",
        "candidates": '["16", "dog", "red fox"]',
        "label": "red fox",
        "group": "a.jpg",
    }


def test_what_is_no_file_of_another_program_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("id,candidates\n1,a|b\n")
    assert "tables are read by ltpll train as they are" in refusal(
        lambda: read_as_plain_table(tmp_path / "t.csv", Reading())
    )
    source = written(tmp_path, coco(PLAIN))
    for arguments, words in {
        ("t.csv", "--out", "t.csv"): "would be overwritten",
        (source, "--out", "t.json"): "must end in .csv, .tsv, .parquet",
        (source, "--top-k", "2", "--out", "x.csv"): "top_k does not apply to",
        (written(tmp_path, {"a": 1}, "x.json"), "--out", "x.csv"): "none of the JSON files",
        ("none.json", "--out", "x.csv"): "There is no file",
    }.items():
        assert words in ltpll("convert", *arguments, status=2)
    assert not (tmp_path / "x.csv").exists()
