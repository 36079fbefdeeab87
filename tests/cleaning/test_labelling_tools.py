"""The commands with files of labelling tools: from an export to pre-annotations."""

import json

import pytest

from support.commands import ltpll_here as ltpll
from support.labelled_json import annotation, task, written
from support.user_tables import rows_of, write_trees

QUICK = [
    "--epochs",
    "8",
    "--folds",
    "2",
    "--set",
    "data.side=8",
    "--set",
    "training.batch_size=16",
    "--device",
    "cpu",
]


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Pictures, their rows, and a finished run on an export in which three tasks have no label."""
    folder = tmp_path_factory.mktemp("trees")
    write_trees(folder)
    rows = rows_of(folder / "labels.csv")
    given = [
        [annotation(by, name) for by, name in enumerate(row["candidates"].split("|"))]
        for row in rows
    ]
    tasks = [
        task(100 + i, f"/data/local-files/?d={row['path']}", *given[i])
        for i, row in enumerate(rows)
    ]
    for one in tasks[:3]:
        one["annotations"] = []
    tasks[5]["annotations"].append(annotation(9, rows[5]["label"], ground_truth=True))
    export = written(folder, tasks, "export.json")
    printed = ltpll(
        "train", export, "--images", folder / "pictures", "--out", folder / "run", *QUICK
    )
    assert "45 examples (8 × 8 × 3 pictures), 3 classes" in printed
    assert "Read as a file of Label Studio." in printed
    assert "3 of 48 tasks are skipped because they have no label." in printed
    assert "Fields: path 'image', control 'animal:photo'." in printed
    return folder, rows


def test_an_export_becomes_pre_annotations_with_its_names_and_addresses(trees, tmp_path):
    folder, rows = trees
    printed = ltpll("clean", folder / "run", "--out", tmp_path / "tasks.json")
    assert "Wrote 45 tasks for Label Studio" in printed
    ltpll("clean", folder / "run", "--out", tmp_path / "cleaned.csv")
    cleaned = rows_of(tmp_path / "cleaned.csv")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert [one["data"] for one in tasks] == [
        {"image": f"/data/local-files/?d={row['path']}"} for row in rows[3:]
    ]
    for one, row in zip(tasks, cleaned, strict=True):
        (prediction,) = one["predictions"]
        assert prediction["score"] == float(row["confidence"])
        value = {"choices": [row["label"]]}
        assert prediction["result"] == [
            {"from_name": "animal", "to_name": "photo", "type": "choices", "value": value}
        ]
    assert [row["id"] for row in cleaned] == [str(100 + i) for i in range(3, 48)]
    assert [row["true_label"] for row in cleaned if row["true_label"]] == [rows[5]["label"]]
    assert {row["annotator"] for row in rows_of(tmp_path / "tasks.annotators.csv")} <= {
        "0",
        "1",
        "2",
    }
    ltpll("clean", folder / "run", "--out", tmp_path / "tasks.json", "--control", "tree:scan")
    result = json.loads((tmp_path / "tasks.json").read_text())[0]["predictions"][0]["result"][0]
    assert (result["from_name"], result["to_name"]) == ("tree", "scan")


def test_predictions_need_no_labels_and_read_json_and_plain_tables(trees, tmp_path):
    folder, rows = trees
    plain = tmp_path / "new.csv"
    plain.write_text("path\n" + "".join(f"{row['path']}\n" for row in rows))
    whole = [str(folder / "pictures" / row["path"]) for row in rows]
    detections = written(
        tmp_path, {"predictions": [{"filepath": path} for path in whole]}, "new.json"
    )
    absolute = tmp_path / "absolute.csv"
    absolute.write_text("\n".join(["path", *whole]))
    found = {}
    for name, new in {
        "export": folder / "export.json",
        "plain": plain,
        "detections": detections,
        "absolute": absolute,
    }.items():
        ltpll(
            "predict",
            folder / "run",
            new,
            "--images",
            folder / "pictures",
            "--out",
            tmp_path / "p.csv",
        )
        found[name] = [(row["label"], row["confidence"]) for row in rows_of(tmp_path / "p.csv")]
    assert len(found["export"]) == 48
    assert found["export"] == found["plain"] == found["detections"] == found["absolute"]


def test_scores_and_categories_are_trained_on(trees, tmp_path):
    folder, rows = trees
    images = [
        "--images",
        folder / "pictures",
        "--out",
        tmp_path / "run",
        "--epochs",
        "1",
        "--folds",
        "0",
        "--set",
        "data.side=8",
        "--device",
        "cpu",
    ]
    classes, scores = ["ash", "birch", "cedar"], [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]
    found = [
        {"filepath": row["path"], "classifications": {"classes": classes, "scores": scores[i % 2]}}
        for i, row in enumerate(rows)
    ]
    path = written(tmp_path, {"predictions": found}, "scores.json")
    assert "2.0 candidates per set" in ltpll("train", path, *images, "--top-k", "2")
    ltpll("clean", tmp_path / "run", "--out", tmp_path / "tasks.json")
    assert json.loads((tmp_path / "tasks.json").read_text())[0]["data"] == {"image": "000.png"}
    described = ltpll("describe", path, "--set", "table.mass=0.95")
    assert "Read as a file of SpeciesNet." in described
    assert "3.00 labels on average" in described
    ltpll(
        "predict",
        tmp_path / "run",
        path,
        "--images",
        folder / "pictures",
        "--out",
        tmp_path / "p.csv",
    )


def test_mistakes_are_refused_before_anything_is_written(trees, tmp_path):
    folder, _ = trees
    export, images = (
        folder / "export.json",
        ["--images", folder / "pictures", "--out", tmp_path / "run"],
    )
    truncated = written(tmp_path, export.read_text()[:-50], "truncated.json")
    outside = written(
        tmp_path,
        [task(1, "../a.png", annotation(1, "ash")), task(2, "b.png", annotation(1, "elm"))],
        "outside.json",
    )
    other = written(tmp_path, {"shapes": []}, "other.json")
    for arguments, fragment in (
        ((truncated, *images), "truncated"),
        ((outside, *images), "leads out of"),
        ((other, *images), "none of the JSON files that are understood"),
        ((export, *images, "--set", "table.control=tree"), "name one with --control"),
        ((export, *images, "--class-columns", "is_*"), "class_columns does not apply to "),
        ((export, "--out", tmp_path / "run"), "give --images DIR or --features FILE"),
        (
            (folder / "labels.csv", *images, "--set", "table.control=tree"),
            "control needs a project of Label Studio",
        ),
    ):
        assert fragment in ltpll("train", *arguments, status=2)
    assert not (tmp_path / "run").exists()
    assert "leave it out, or write to a .json file" in ltpll(
        "clean", folder / "run", "--out", tmp_path / "c.csv", "--control", "a:b", status=2
    )
    assert "is the table of the run" in ltpll("clean", folder / "run", "--out", export, status=2)
    assert "cannot be read from the column 'x': omit --candidates" in ltpll(
        "describe", export, "--candidates", "x", status=2
    )
