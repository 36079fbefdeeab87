"""Entries of cells become the sets that plain set algebra gives, or one sentence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ltpll.candidates import Candidates
from ltpll.candidates.cells import Entries
from ltpll.candidates.expressions import SetRules, class_sets
from ltpll.candidates.labels import read_labels
from ltpll.candidates.taxonomy import Taxonomy
from ltpll.errors import InputError
from support.refusals import refusal

TREE = {
    "red fox": "Vulpes",
    "fennec": "Vulpes",
    "wolf": "Canis",
    "Vulpes": "Canidae",
    "Canis": "Canidae",
    "lynx": "Felidae",
    "cow": None,
}
LEAVES = ["cow", "fennec", "lynx", "red fox", "wolf"]
GROUPS = {
    "Vulpes": {"red fox", "fennec"},
    "Canis": {"wolf"},
    "Canidae": {"red fox", "fennec", "wolf"},
    "Felidae": {"lynx"},
}


def names_of(candidates):
    return [{candidates.classes[c] for c in candidates.row(i)} for i in range(len(candidates))]


def entries_of(cells):
    names = sorted({entry for cell in cells for entry in cell})
    codes = [names.index(entry) for cell in cells for entry in cell]
    return Entries(
        np.cumsum([0, *map(len, cells)]),
        np.asarray(codes, dtype=np.int64),
        names,
        len(names),
    )


def by_set_algebra(cell, empty):
    """The set of one row, computed with Python's sets; None if the row must be refused."""

    def meant(name):
        return set(LEAVES) if name == "*" else GROUPS.get(name, {name})

    named = [meant(entry) for entry in cell if not entry.startswith("!")]
    out = [meant(entry[1:]) for entry in cell if entry.startswith("!")]
    if not cell and empty == "stop":
        return None
    found = set().union(*named) if named else set(LEAVES)
    return found - set().union(*out) or None


ENTRY = st.sampled_from([*LEAVES, *GROUPS, "*"])
CELL = st.lists(st.one_of(ENTRY, ENTRY.map("!{}".format)), max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(CELL, min_size=1, max_size=6), st.sampled_from(["stop", "all"]))
def test_sets_are_those_of_set_algebra(cells, empty):
    rules = SetRules(Taxonomy(TREE), empty)
    expected = [by_set_algebra(cell, empty) for cell in cells]
    if any(one is None for one in expected):
        with pytest.raises(InputError):
            class_sets(entries_of(cells), LEAVES, rules)
        return
    found = class_sets(entries_of(cells), LEAVES, rules)
    assert [
        {LEAVES[c] for c in found.numbers[a:b]}
        for a, b in zip(found.indptr, found.indptr[1:], strict=False)
    ] == expected
    named = class_sets(entries_of(cells), None, rules)  # the classes are those that remain
    assert set(named.names) == set().union(*expected)


def test_strings_exclude_classes_and_stand_for_every_class():
    found = Candidates.of(["cat|fox", "!dog", "!dog|! cat", "*", "cat|fox|!fox", "dog"])
    assert found.classes == ("cat", "dog", "fox")
    assert names_of(found) == [
        {"cat", "fox"},
        {"cat", "fox"},
        {"fox"},
        {"cat", "dog", "fox"},
        {"cat"},
        {"dog"},
    ]


def test_names_in_lists_and_given_classes_are_literal():
    assert names_of(Candidates.of(['["!x", "*"]', "y|!z", '["z"]'])) == [{"!x", "*"}, {"y"}, {"z"}]
    assert names_of(Candidates.of(["!x", "y"], classes=["y", "!x"])) == [{"!x"}, {"y"}]
    assert names_of(Candidates.of([{"!x", "y"}, {"y"}])) == [{"!x", "y"}, {"y"}]
    assert names_of(Candidates.of(pd.Series(["!y", ["!y", "z"]]))) == [{"!y", "z"}, {"!y", "z"}]


def test_missing_strings_stand_for_every_class_on_request():
    found = Candidates.of(pd.Series(["a|b", None, " ", "c"]), empty="all")
    assert names_of(found) == [{"a", "b"}, {"a", "b", "c"}, {"a", "b", "c"}, {"c"}]
    assert "read it with empty='all' if" in refusal(lambda: Candidates.of(["a|b", " "]))


def test_scores_weight_candidates_and_zero_drops_them():
    found = Candidates.of(
        [
            '{"fox": 0.81, "dog": 0.16}',
            '{"dog": 1, "fox": 0}',
            "*",
            '{"fox": 16, "dog": 1, "cat": 0}',
            {"dog": 1, "fox": 3},
        ]
    )
    expected = [{"fox", "dog"}, {"dog"}, {"cat", "dog", "fox"}, {"dog", "fox"}, {"dog", "fox"}]
    assert names_of(found) == expected
    raw = np.split(found.weights.numpy().astype(float), np.cumsum(found.sizes.numpy())[:-1])
    ratios = [raw[0][1] / raw[0][0], raw[3][1] / raw[3][0], raw[4][1] / raw[4][0]]
    power = np.log(ratios) / np.log([0.81 / 0.16, 16, 3])  # the same power of all scores
    np.testing.assert_allclose(power, power[0], rtol=1e-5)
    np.testing.assert_allclose(raw[2], 1 / 3, rtol=1e-6)
    assert all(abs(row.sum() - 1) < 1e-6 for row in raw)


def test_a_group_shares_its_score_among_its_classes():
    entries = Entries(
        np.asarray([0, 2]), np.asarray([0, 1]), ["Vulpes", "wolf"], 2, np.asarray([0.6, 0.4])
    )
    found = class_sets(entries, None, SetRules(Taxonomy(TREE)))
    assert found.names == ("fennec", "red fox", "wolf")
    np.testing.assert_allclose(found.scores, [0.3, 0.3, 0.4])


def test_dictionaries_and_sets_are_read_from_python_and_from_its_printed_form():
    rows = [{"fox": 0.75, "dog": 0.25}, {"dog": 1.0}]
    expected = Candidates.of(rows)
    for found in (
        Candidates.of(pd.Series(rows)),
        Candidates.of([str(row) for row in rows]),
    ):
        assert names_of(found) == names_of(expected)
        assert found.weights.tolist() == expected.weights.tolist()
    assert names_of(Candidates.of(["{'a', 'b'}", "b|{c}", "{}"], empty="all")) == [
        {"a", "b"},
        {"b", "{c}"},
        {"a", "b", "{c}"},
    ]


def test_collections_of_names_know_groups_too():
    assert names_of(Candidates.of([["Vulpes"], ["wolf", "lynx"], []], taxonomy=TREE, empty="all"))[
        :2
    ] == [
        GROUPS["Vulpes"],
        {"wolf", "lynx"},
    ]


@pytest.mark.parametrize(
    "cells",
    [
        ["16:9|cat", "4:3", "fox|dog"],
        ["genus:Vulpes|a:b"],
        ["a:-1|b:-2", "n:0|m:1.5"],
        ['["16:9", "4:3"]', '["16:9"]'],
    ],
)
def test_names_with_colons_stay_names(cells):
    found = Candidates.of(cells)
    assert found.weights is None
    expected = [
        set(cell.strip("[]").replace('"', "").replace(", ", "|").split("|")) for cell in cells
    ]
    assert names_of(found) == expected


def test_known_names_that_look_like_scores_stay_names():
    classes = ["fox:0.4", "fox:0.6"]
    assert names_of(Candidates.of(["fox:0.6|fox:0.4", "fox:0.4"], classes=classes)) == [
        {"fox:0.6", "fox:0.4"},
        {"fox:0.4"},
    ]


def test_labels_for_scoring_know_marks():
    assert read_labels(["a|b", "!c", "d|e"], ["a", "b"], more=True).classes.tolist() == [
        "a",
        "b",
        "c",
        "d",
        "e",
    ]
    scored = ['{"a": 0.5, "b": 0.5}', '{"c": 1, "a": 2}']
    assert read_labels(scored, ["a"], more=True).classes.tolist() == ["a", "b", "c"]
    assert read_labels(["!a", "b"]).certain  # without a set among them, they are plain labels


REFUSALS = {
    "nothing left": (["cat|!cat", "dog"], {}, "Row 0 excludes all of its candidates"),
    "all excluded": (
        ["a|b", "!*", "!*"],
        {},
        "Row 1 (2 such rows) excludes all of its candidates",
    ),
    "no name": (["!", "a"], {}, "Row 0 has the candidate '!' without a name"),
    "no classes": (["*", "*"], {}, "No cell names a class"),
    "only zeros": (['{"b": 0.5}', '{"a": 0}'], {}, "Row 1 has only candidates with the score 0"),
    "objects and names": (['{"a": 1}', "c"], {}, "Row 1 has the candidate 'c' without a score"),
    "objects and lists": (['["a"]', '{"a": 1}'], {}, "Row 0 has the candidate 'a' without a score"),
    "scores in text": (
        ["fox:0.6|dog: .3", "dog"],
        {},
        "Row 0 has the candidate 'fox:0.6' with a score: write scores as JSON",
    ),
    "large score": (['{"a": 1e999}', "b"], {}, "Row 0 gives 'a' the score inf"),
    "negative score": (['{"a": -1}', "b:1"], {}, "Row 0 gives 'a' the score -1"),
    "no number": (['{"a": true}', "b:1"], {}, "Row 0 gives 'a' the score True"),
    "unknown exclusion": (
        ["!x", "a"],
        {"classes": ["a", "b"]},
        "Row 0 has the candidate 'x', which is not one of the 2 classes",
    ),
    "unknown group": (
        ["Vulpe", "wolf"],
        {"taxonomy": TREE},
        "Row 0 has the candidate 'Vulpe', which is not in the taxonomy (did you mean",
    ),
    "rules for a matrix": (np.eye(2), {"empty": "all"}, "taxonomy and empty are for names"),
    "rules for numbers": (
        [[0, 1], [1]],
        {"taxonomy": TREE},
        "taxonomy and empty are for candidates that are all names",
    ),
    "numbers with scores": (
        [{0: 0.5}, {1: 1.0}],
        {},
        "Row 0 gives 0 the score 0.5: names are text",
    ),
    "unknown rule": (["a", "b"], {"empty": "none"}, "empty is 'none'"),
    "circle": (
        ["a", "b"],
        {"taxonomy": {"a": "b", "b": "c", "c": "b"}},
        "The taxonomy goes round in a circle",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_cells_that_give_no_set_are_refused_in_one_sentence(what):
    cells, options, start = REFUSALS[what]
    assert refusal(lambda: Candidates.of(cells, **options)).startswith(start)


def test_the_size_of_sets_is_checked_before_they_are_made():
    asked = []
    rules = SetRules(check_size=asked.append)
    class_sets(entries_of([["*"], ["!a"], ["a", "b"]]), ["a", "b", "c"], rules)
    assert asked == [3 + 3 + 2 + 1]


def test_collections_for_scoring_may_name_other_classes():
    assert read_labels([["a", "!b"], ["c"]], ["a"], more=True).classes.tolist() == ["a", "!b", "c"]
