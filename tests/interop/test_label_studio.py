"""Label Studio's own rules: pre-annotations are valid, and its annotations are read as votes."""

import json

import pytest

from support.commands import ltpll_here as ltpll
from support.labelled_json import written
from support.user_tables import rows_of, write_trees

NEEDS = "run by `make interop`, which installs label-studio-sdk"
interface = pytest.importorskip("label_studio_sdk.label_interface", reason=NEEDS)

CONFIG = """
<View>
  <Image name="photo" value="$image"/>
  <Choices name="animal" toName="photo" choice="multiple">{}</Choices>
</View>
"""


def test_a_project_is_trained_on_and_its_pre_annotations_pass_label_studios_checks(tmp_path):
    write_trees(tmp_path)
    rows = rows_of(tmp_path / "labels.csv")
    names = sorted({name for row in rows for name in row["candidates"].split("|")})
    choices = "".join(f'<Choice value="{name}"/>' for name in names)
    project = interface.LabelInterface(CONFIG.format(choices))
    tasks = []
    for number, row in enumerate(rows):
        regions = project.create_regions({"animal": row["candidates"].split("|")})
        made = interface.objects.AnnotationValue(completed_by=1, result=regions)
        given = json.loads(made.model_dump_json(exclude_none=True))
        assert project.validate_annotation(given)
        url = f"/data/local-files/?d={row['path']}"
        tasks.append({"id": number, "data": {"image": url}, "annotations": [given]})
    export = written(tmp_path, tasks, "export.json")
    quick = ["--epochs", 2, "--folds", 0, "--set", "data.side=8", "--device", "cpu"]
    run, cleaned = tmp_path / "run", tmp_path / "tasks.json"
    ltpll("train", export, "--images", tmp_path / "pictures", "--out", run, *quick)
    ltpll("clean", run, "--out", cleaned)
    found = json.loads(cleaned.read_text(encoding="utf-8"))
    assert len(found) == len(rows)
    for one, row in zip(found, rows, strict=True):
        assert project.validate_task({"data": one["data"]})
        (prediction,) = one["predictions"]
        assert project.validate_prediction(prediction, return_errors=True) == []
        (label,) = prediction["result"][0]["value"]["choices"]
        assert label in row["candidates"].split("|")
