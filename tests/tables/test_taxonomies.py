"""Taxonomy files: the same tree from every kind of table, and one sentence for each broken tree."""

import pandas as pd
import pytest

from ltpll.tables.class_files import read_taxonomy
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading
from support.refusals import refusal

ROWS = [
    ("Canidae", ""),
    ("Vulpes", "Canidae"),
    ("red fox", "Vulpes"),
    ("fennec", "Vulpes"),
    ("Canis", "Canidae"),
    ("wolf", "Canis"),
    ("lynx", ""),
]
TREE = "class,parent\n" + "".join(f"{name},{parent}\n" for name, parent in ROWS)


def written(folder, content, name):
    path = folder / name
    path.write_bytes(content.encode())
    return path


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet"])
def test_tables_of_every_kind_give_the_same_tree(tmp_path, kind):
    frame = pd.DataFrame(ROWS, columns=["class", "parent"])
    path = tmp_path / f"t{kind}"
    if kind == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if kind == ".tsv" else ",")
    found = read_taxonomy(path)
    assert found.leaves == ("red fox", "fennec", "wolf", "lynx")
    expected = {"Canidae": 3, "Vulpes": 2, "Canis": 1, "lynx": 1}
    assert {name: len(found.classes_below(name)) for name in expected} == expected
    groups = {name for name in found.names if found.is_group(name)}
    assert groups == {"Vulpes", "Canis", "Canidae"}


def test_a_deep_taxonomy_is_read_without_recursion(tmp_path):
    path = written(
        tmp_path, "class,parent\n" + "".join(f"n{i},n{i + 1}\n" for i in range(5000)), "t.csv"
    )
    assert read_taxonomy(path).classes_below("n5000") == ("n0",)


BROKEN = {
    "circle": (
        "t.csv",
        "class,parent\na,b\nb,c\nc,a\n",
        "The taxonomy goes round in a circle: ",
    ),
    "two parents": (
        "t.csv",
        "class,parent\na,b\na,c\n",
        "Row 2 below the header of {} gives 'a' the parent 'c', but it had 'b' before",
    ),
    "no parents": ("t.csv", "class,genus\na,b\n", "{} has no column called 'parent'"),
    "no name": ("t.csv", "class,parent\na,b\n,b\n", "Row 2 below the header of {} has no name"),
    "other file": ("t.txt", "x\n y\n", "{} is not a table"),
    "empty": ("t.txt", "", "{} is empty"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_taxonomy_is_refused_in_one_sentence(tmp_path, what):
    name, content, start = BROKEN[what]
    path = written(tmp_path, content, name)
    assert refusal(lambda: read_taxonomy(path)).startswith(start.format(path))


def table(folder, rows, header="candidates,label,x"):
    return written(folder, f"{header}\n" + "".join(f"{row}\n" for row in rows), "examples.csv")


def test_groups_in_a_table_stand_for_their_classes(tmp_path):
    tree = written(tmp_path, TREE, "t.csv")
    rows = ["Vulpes|!fennec,red fox,1", "Canis|lynx,,2", '"[""Vulpes""]",,3']
    found = read_table(table(tmp_path, rows), Reading(taxonomy=str(tree)))
    assert found.candidates.classes == (
        "fennec",
        "lynx",
        "red fox",
        "wolf",
    )  # the leaves that remain somewhere
    assert [found.candidates.row(i) for i in range(3)] == [[2], [1, 3], [0, 2]]
    assert found.labels.tolist() == [2, -1, -1]


WRONG = {
    "group as true label": (
        "wolf|lynx,Vulpes,1",
        "has the true label 'Vulpes', which is a group of the taxonomy",
    ),
    "unknown": (
        "wolv,,1",
        "has the candidate 'wolv', which is not in the taxonomy (did you mean 'wolf'?)",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_names_that_do_not_fit_the_taxonomy_are_refused_in_one_sentence(tmp_path, what):
    row, sentence = WRONG[what]
    tree = written(tmp_path, TREE, "t.csv")
    path = table(tmp_path, ["lynx,,1", row])
    assert refusal(lambda: read_table(path, Reading(taxonomy=str(tree)))).startswith(
        f"Row 2 below the header of {path} {sentence}"
    )
