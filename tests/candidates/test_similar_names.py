"""Classes that are other spellings of frequent ones are found, whoever reads the names."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest

from ltpll.candidates import Candidates
from ltpll.candidates.labels import read_labels
from ltpll.candidates.similar_names import similar_names
from ltpll.candidates.votes import candidates_from_votes
from ltpll.errors import InputWarning


def found(*names_and_rows):
    names, rows = zip(*names_and_rows, strict=True)
    return [(names[i], rows[i], names[j], rows[j]) for i, j in similar_names(names, rows)]


FREQUENT = ("brown creeper", 960)


@pytest.mark.parametrize(
    "name",
    ["Brown  Creeper", "brown_creeper", "BROWN CREEPER"],
)
def test_a_rare_name_that_differs_in_blanks_or_capitals_resembles_the_frequent_one(name):
    assert found(FREQUENT, (name, 1), ("wood thrush", 300)) == [(name, 1, *FREQUENT)]


@pytest.mark.parametrize(
    "others",
    [
        [("brown crow", 1)],  # not similar
        [("Brown creeper", 0)],  # in no row
        [("a", 500), ("A", 1), ("mW", 3), ("MW", 3)],
        [("C lang", 500), ("C# lang", 400)],
        [("-", 500), ("+", 1)],
        [("-100", 500), ("100", 1)],
        [(3, 500), (4, 1)],
    ],
)
def test_other_names_do_not(others):
    assert found(FREQUENT, *others) == []


def test_names_in_other_capitals_need_not_be_so_rare():
    assert found(FREQUENT, ("Brown creeper", 40)) == [("Brown creeper", 40, *FREQUENT)]


def test_names_that_differ_only_in_capitals_are_similar_however_frequent_they_are():
    assert found(("cat", 50), ("CAT", 40), ("Dog", 30), ("dog", 30)) == [
        ("CAT", 40, "cat", 50),
        ("dog", 30, "Dog", 30),
    ]


@pytest.mark.parametrize("name", ["cafe\u0301", "caf\xe9\u200b", "\ufeffcaf\xe9", "ca\u200bf\xe9"])
def test_names_that_look_the_same_are_similar_and_shown_with_what_distinguishes_them(name):
    assert found(("caf\xe9", 50), (name, 40)) == [(name, 40, "caf\xe9", 50)]
    with pytest.warns(
        InputWarning, match=re.escape(f"{name!a} is in 1 row and resembles 'caf\\xe9' (2 rows)")
    ):
        Candidates.of([["caf\xe9", "tea"], ["caf\xe9"], [name]])
    assert found(("3", 9), ("3\u200b", 8)) == [("3\u200b", 8, "3", 9)]


SETS = [["brown creeper", "wood thrush"]] * 200 + [["Brown_creeper"]]
CELLS = ["|".join(row) for row in SETS]
PLAIN = ["brown creeper"] * 200 + ["wood thrush"] * 200 + ["Brown_creeper"]
READERS = {
    "lists": lambda: Candidates.of(SETS),
    "cells": lambda: Candidates.of(pd.Series(CELLS)),
    "exclusions": lambda: Candidates.of([*CELLS, "!wood thrush|wood thrush|brown creeper"]),
    "labels": lambda: read_labels(PLAIN),
    "votes": lambda: candidates_from_votes(np.arange(len(PLAIN)), ["ann"] * len(PLAIN), PLAIN),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_names_warns_once(reader):
    with pytest.warns(
        InputWarning,
        match=r"The class 'Brown_creeper' is in 1 row and resembles 'brown creeper' \(20[01] rows\)",
    ) as caught:
        READERS[reader]()
    assert len(caught) == 1


def test_names_that_were_given_are_not_questioned():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Candidates.of(SETS, classes=["Brown_creeper", "brown creeper", "wood thrush"])
        read_labels(PLAIN, ["Brown_creeper", "brown creeper", "wood thrush"])
