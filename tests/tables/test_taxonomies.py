"""Taxonomy files: the same tree from tables and text, and one sentence for each broken tree."""

import pandas as pd
import pytest

from ltpll.tables.class_files import read_taxonomy
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading
from support.refusals import refusal

ROWS = [
    ("Canidae", "", "family"),
    ("Vulpes", "Canidae", "genus"),
    ("red fox", "Vulpes", ""),
    ("fennec", "Vulpes", ""),
    ("Canis", "Canidae", "genus"),
    ("wolf", "Canis", ""),
    ("lynx", "", ""),
]
TEXT = (
    "family: Canidae\n  genus:Vulpes\n    red fox\n    fennec\n\n  genus: Canis\n      wolf\nlynx\n"
)


def written(folder, content, name="t.txt"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet", "spaces", "tabs"])
def test_tables_and_indented_text_give_the_same_tree(tmp_path, kind):
    frame = pd.DataFrame(ROWS, columns=["class", "parent", "rank"])
    path = tmp_path / f"t{kind}"
    if kind == ".parquet":
        frame.to_parquet(path)
    elif kind.startswith("."):
        frame.to_csv(path, index=False, sep="\t" if kind == ".tsv" else ",")
    else:
        path = written(tmp_path, TEXT if kind == "spaces" else TEXT.replace("  ", "\t"), "t.txt")
    found = read_taxonomy(path)
    assert found.leaves == ("red fox", "fennec", "wolf", "lynx")
    expected = {"Canidae": 3, "genus:Vulpes": 2, "family:Canidae": 3, "Canis": 1, "lynx": 1}
    assert {name: len(found.classes_below(name)) for name in expected} == expected
    groups = {name for name in found.names if found.is_group(name)}
    assert groups == {"Vulpes", "Canis", "Canidae"}


def test_a_deep_taxonomy_is_read_without_recursion(tmp_path):
    path = written(
        tmp_path, "class,parent\n" + "".join(f"n{i},n{i + 1}\n" for i in range(5000)), "t.csv"
    )
    assert read_taxonomy(path).classes_below("n5000") == ("n0",)


def test_a_species_need_not_have_subspecies_because_others_do(tmp_path):
    path = written(
        tmp_path, "genus: Canis\n species: lupus\n  dingo\n species: latrans\n species: aureus\n"
    )
    assert read_taxonomy(path).leaves == ("dingo", "latrans", "aureus")


BROKEN = {
    "circle": (
        "t.csv",
        "class,parent\na,b\nb,c\nc,a\n",
        "The taxonomy goes round in a circle: ",
    ),
    "two parents": (
        "t.csv",
        "class,parent\na,b\na,c\n",
        "Row 2 below the header of {} gives 'a' the parent 'c', but it had the parent 'b'",
    ),
    "two ranks": (
        "t.csv",
        "class,parent,rank\na,b,x\na,b,y\n",
        "Row 2 below the header of {} gives 'a' the rank 'y'",
    ),
    "two places": ("t.txt", "x\n a\ny\n a\n", "Line 4 of {} gives 'a' the parent 'y'"),
    "no parents": ("t.csv", "class,genus\na,b\n", "{} has no column called 'parent'"),
    "no name": ("t.csv", "class,parent\na,b\n,b\n", "Row 2 below the header of {} has no name"),
    "indentation": ("t.txt", "x\n    a\n  b\n", "Line 3 of {} is indented by 2 columns"),
    "blank": ("t.txt", "\n \n", "{} cannot be read as a taxonomy (it is empty)"),
    "not text": ("t.txt", b"\xff\xfe", "{} cannot be read as a taxonomy (it is not UTF-8 text)"),
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
    tree = written(tmp_path, TEXT)
    rows = ["Vulpes|!fennec,red fox,1", "genus:Canis|lynx,,2", '"[""Vulpes""]",,3']
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
    "group with rank": (
        "wolf|lynx,genus:Vulpes,1",
        "has the true label 'genus:Vulpes', which is a group of the taxonomy",
    ),
    "other rank": (
        "family:Vulpes,,1",
        "has the candidate 'family:Vulpes', which is not in the taxonomy",
    ),
    "no rank": ("genus:wolf,,1", "has the candidate 'genus:wolf', which is not in the taxonomy"),
    "unknown": (
        "wolv,,1",
        "has the candidate 'wolv', which is not in the taxonomy (did you mean 'wolf'?)",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_names_that_do_not_fit_the_taxonomy_are_refused_in_one_sentence(tmp_path, what):
    row, sentence = WRONG[what]
    tree = written(tmp_path, TEXT + "genus: Ursus\n")
    path = table(tmp_path, ["lynx,,1", row])
    assert refusal(lambda: read_table(path, Reading(taxonomy=str(tree)))).startswith(
        f"Row 2 below the header of {path} {sentence}"
    )
