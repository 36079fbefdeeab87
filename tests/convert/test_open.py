"""Folders of pictures are tables whose sets are the names of their folders."""

import pytest
from PIL import Image

from ltpll.convert.open import read_candidates, read_label_table
from ltpll.tables.reading import Reading
from support.commands import ltpll_here as ltpll
from support.refusals import refusal


def pictures(folder, *paths):
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(folder / path)
    return folder


def sets(found):
    return [[found.classes[c] for c in found.row(i)] for i in range(len(found))]


@pytest.mark.parametrize("separator", ["|", "_or_"])
def test_the_names_of_folders_are_the_sets_of_their_pictures(tmp_path, separator):
    names = [f"cat{separator}fox/b.png", "cat/2024/a.png", "fox/c.png"]
    folder, reading = pictures(tmp_path, *names), Reading(separator=separator)
    found = read_label_table(folder, reading)
    assert found.paths.tolist() == found.ids.tolist() == sorted(names)
    assert sorted(sets(found.candidates)) == [["cat"], ["cat", "fox"], ["fox"]]
    assert sets(read_candidates(folder, reading=reading).candidates) == sets(found.candidates)
    assert "3 examples, 2 classes" in ltpll("describe", folder, "--separator", separator)


def test_pictures_in_no_folder_have_no_set_and_prediction_needs_none(tmp_path):
    folder = pictures(tmp_path, "cat/a.png", "fox/b.png", "new.png")
    message = refusal(lambda: read_label_table(folder))
    assert message.startswith(f"The picture 'new.png' in {folder} has no candidate label")
    found = read_label_table(folder, Reading(empty="all")).candidates
    assert sets(found) == [["cat"], ["fox"], ["cat", "fox"]]
    found = read_label_table(folder, Reading(classes=("x", "y")), needs_candidates=False)
    assert found.candidates is None
    assert found.paths.tolist() == ["cat/a.png", "fox/b.png", "new.png"]


def test_pictures_of_which_none_is_in_a_folder_need_folders_or_a_table(tmp_path):
    folder = pictures(tmp_path, "cat_or_fox_1.png", "fox_2.png")
    message = refusal(lambda: read_label_table(folder))
    assert message.startswith(f"No picture in {folder} is in a folder that names its candidates")


def test_folders_that_are_all_splits_are_no_classes(tmp_path):
    folder = pictures(tmp_path, "train/cat/a.png", "test/fox/b.png", "train/fox/c.png")
    found = read_label_table(folder)
    assert found.splits.tolist() == ["test", "train", "train"]
    assert sets(found.candidates) == [["fox"], ["cat"], ["fox"]]


def test_a_folder_without_pictures_is_refused(tmp_path):
    (tmp_path / "cat").mkdir()
    assert "There are no pictures in" in refusal(lambda: read_label_table(tmp_path))
    assert "There are no pictures in" in ltpll("describe", tmp_path, status=2)
