"""Rare classes that resemble frequent ones are found as by a comparison of all pairs."""

from __future__ import annotations

import random
import re
import time
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
    return [
        (one.name, one.rows, one.frequent, one.frequent_rows) for one in similar_names(names, rows)
    ]


FREQUENT = ("brown creeper", 960)


@pytest.mark.parametrize(
    "name",
    [
        "brown creper",
        "brown creeperr",
        "brovn creeper",
        "borwn creeper",
        "Brown  Creeper",
        "brown_creeper",
    ],
)
def test_a_rare_name_that_differs_in_a_letter_or_capitals_resembles_the_frequent_one(name):
    assert found(FREQUENT, (name, 1), ("wood thrush", 300)) == [(name, 1, *FREQUENT)]


@pytest.mark.parametrize(
    "others",
    [
        [("brown creper", 3)],  # not rare
        [("brown crow", 1)],  # not similar
        [("brown creper", 0)],  # in no row
        [("class 1", 500), ("class 2", 1), ("class 11", 1)],
        [("type A blood", 500), ("type B blood", 1)],
        [("grade II", 500), ("grade III", 1)],
        [("cat", 500), ("bat", 1)],
        [("a", 500), ("A", 1), ("mW", 3), ("MW", 3)],
        [("a1", 500), ("a2", 1), ("3", 500), ("8", 1)],
        [("stage 2a tumor", 500), ("stage 2b tumor", 1)],
        [("grade iva", 500), ("grade ivb", 1)],
        [("low risk", 500), ("high risk", 1), ("very low risk", 1)],
        [("C lang", 500), ("C# lang", 400)],
        [("-", 500), ("+", 1)],
        [("-100", 500), ("100", 1)],
        [(3, 500), (4, 1)],
        [("hermit thrush", 9), ("hermit trush", 1)],  # not much more frequent
    ],
)
def test_other_names_do_not(others):
    assert found(FREQUENT, *others) == []


def test_names_in_other_capitals_need_not_be_so_rare():
    assert found(FREQUENT, ("Brown creeper", 40)) == [("Brown creeper", 40, *FREQUENT)]


def test_a_misspelled_name_is_found_in_a_small_table():
    assert found(("hermit thrush", 12), ("hermit trush", 1)) == [
        ("hermit trush", 1, "hermit thrush", 12)
    ]


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


def test_very_long_names_take_no_time():
    start = time.perf_counter()
    assert found(("a" * 200_000, 100), ("b" + "a" * 200_000, 1)) == []
    assert time.perf_counter() - start < 3


def distance(a, b):
    """The number of letters to insert, delete, replace or swap, by the textbook recursion."""
    table = np.add.outer(np.arange(len(a) + 1), np.arange(len(b) + 1))
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            table[i, j] = min(
                table[i - 1, j] + 1,
                table[i, j - 1] + 1,
                table[i - 1, j - 1] + (a[i - 1] != b[j - 1]),
            )
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                table[i, j] = min(table[i, j], table[i - 2, j - 2] + 1)
    return table[-1, -1]


def test_every_pair_at_a_distance_of_one_letter_is_found_and_none_beyond_two():
    rng = random.Random(0)
    frequent = ["".join(rng.choices("abcd", k=7)) for _ in range(40)]
    rare = [
        name
        for name in {"".join(rng.choices("abcd", k=rng.randint(6, 8))) for _ in range(150)}
        if name not in frequent
    ]
    frequent = list(dict.fromkeys(frequent))
    got = {
        one.name
        for one in similar_names([*frequent, *rare], [500] * len(frequent) + [1] * len(rare))
    }
    nearest = {name: min(distance(name, other) for other in frequent) for name in rare}
    assert (
        {name for name, steps in nearest.items() if steps <= 1}
        <= got
        <= {name for name, steps in nearest.items() if steps <= 2}
    )
    assert 0 < len(got) < len(rare)


def test_thousands_of_classes_take_no_time():
    names = [
        f"species {a}{b}{c}{d}"
        for a in "abcdefghij"
        for b in "abcdefghij"
        for c in "abcdefghij"
        for d in "abcdefgh"
    ]
    rows = np.where(np.arange(len(names)) % 2, 500, 1)
    start = time.perf_counter()
    assert len(similar_names(names, rows)) == len(names) // 2
    assert time.perf_counter() - start < 3  # comparing all pairs takes minutes


SETS = [["brown creeper", "wood thrush"]] * 200 + [["brown creper"]]
CELLS = ["|".join(row) for row in SETS]
PLAIN = ["brown creeper"] * 200 + ["wood thrush"] * 200 + ["brown creper"]
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
        match=r"The class 'brown creper' is in 1 row and resembles 'brown creeper' \(20[01] rows\)",
    ) as caught:
        READERS[reader]()
    assert len(caught) == 1


def test_names_that_were_given_are_not_questioned():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Candidates.of(SETS, classes=["brown creper", "brown creeper", "wood thrush"])
        read_labels(PLAIN, ["brown creper", "brown creeper", "wood thrush"])
