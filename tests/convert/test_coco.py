"""Annotations of COCO: the categories of each picture, whatever the order of the parts."""

import itertools

import pytest

from ltpll.convert.open import read_label_table
from ltpll.tables.reading import Reading
from support.labelled_json import sets, written
from support.refusals import refusal

PARTS = {
    "images": [
        {"id": key, "file_name": name}
        for key, name in ((5, "b.jpg"), (2, "a.jpg"), ("2", "c.jpg"), (9, "d.jpg"))
    ],
    "annotations": [
        {"id": 1, "image_id": 2, "category_id": 30, "bbox": [0, 0, 5, 5]},
        {"id": 2, "image_id": 5, "category_id": 10},
        {"id": 3, "image_id": 2, "category_id": 10},
        {"id": 4, "image_id": 2, "category_id": 30},
        {"id": 5, "image_id": "2", "category_id": 30},
    ],
    "categories": [
        {"id": 10, "name": "dog"},
        {"id": 30, "name": "cat"},
        {"id": 40, "name": "never"},
    ],
    "info": {"year": 2026},
}


@pytest.mark.parametrize(
    "order", [*itertools.permutations(["images", "annotations", "categories"])]
)
def test_candidates_are_the_categories_of_a_picture(tmp_path, order):
    path = written(tmp_path, {"info": PARTS["info"], **{name: PARTS[name] for name in order}})
    found = read_label_table(path)
    assert found.paths.tolist() == ["b.jpg", "a.jpg", "c.jpg"]
    assert sets(found) == [["dog"], ["cat", "dog"], ["cat"]]
    assert found.candidates.weights is None
    assert found.notes[-1] == "1 of 4 pictures is skipped because it has no annotation."
    assert read_label_table(path, needs_candidates=False).paths.tolist() == [
        "b.jpg",
        "a.jpg",
        "c.jpg",
        "d.jpg",
    ]


def test_crops_have_the_categories_of_their_picture_and_the_picture_as_group(tmp_path):
    boxes = [[0, 0, 5, 5], [1.5, 2, 3, 4.25], [-2, 1, 5, 5], [3, 3, 1, 1], [7, 7, 2, 2]]
    annotations = [
        {**one, "bbox": box} for one, box in zip(PARTS["annotations"], boxes, strict=True)
    ]
    path = written(tmp_path, {**PARTS, "annotations": annotations})
    found = read_label_table(path, Reading(objects="crops"))
    parts = [
        "a.jpg#xywh=0,0,5,5",
        "b.jpg#xywh=1.5,2,3,4.25",
        "a.jpg#xywh=0,1,3,5",
        "a.jpg#xywh=3,3,1,1",
        "c.jpg#xywh=7,7,2,2",
    ]
    assert found.paths.tolist() == parts
    assert sets(found) == [["cat", "dog"], ["dog"], ["cat", "dog"], ["cat", "dog"], ["cat"]]
    assert [found.candidates.classes[label] for label in found.labels] == [
        "cat",
        "dog",
        "dog",
        "cat",
        "cat",
    ]
    assert found.groups.tolist() == ["a.jpg", "b.jpg", "a.jpg", "a.jpg", "c.jpg"]
    assert found.candidates.groups[[0, 2, 3]].unique().numel() == 1
    assert found.notes[-1] == "1 of 4 pictures is skipped because it has no annotation."
    for wrong in (None, [1, 2, 3], [1, 2, 0, 4], [1, 2, "3", 4], [1, 2, float("nan"), 4]):
        path = written(tmp_path, {**PARTS, "annotations": [{**annotations[0], "bbox": wrong}]})
        assert "which is not left, top, width and height" in refusal(
            lambda path=path: read_label_table(path, Reading(objects="crops"))
        )
    assert "it must be images or crops" in refusal(
        lambda: read_label_table(path, Reading(objects="boxes"))
    )


REFUSED = {
    "a category without a name": (
        {"categories": [{"id": 10, "name": "dog"}]},
        "category_id 30, but the file has no category",
    ),
    "no categories": ({"categories": []}, "the file has no category with this id"),
    "a picture that is missing": (
        {"images": PARTS["images"][1:]},
        "image_id 5, but the file has no image",
    ),
    "two pictures with one id": (
        {"images": [*PARTS["images"], {"id": 5, "file_name": "x.jpg"}]},
        "the same 'id' as another picture",
    ),
    "a file name twice": (
        {
            "images": [*PARTS["images"], {"id": 7, "file_name": "a.jpg"}],
            "annotations": [*PARTS["annotations"], {"image_id": 7, "category_id": 10}],
        },
        "names must be distinct",
    ),
    "captions": (
        {"annotations": [{"image_id": 2, "caption": "a dog"}]},
        "lacks 'category_id' (a number or text)",
    ),
    "no annotations": ({"annotations": []}, "has no annotations"),
    "an empty name": ({"categories": [{"id": 10, "name": " "}]}, "lacks 'name' (text)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_sentence(tmp_path, case):
    other, fragment = REFUSED[case]
    assert fragment in refusal(lambda: read_label_table(written(tmp_path, {**PARTS, **other})))
