"""Folds for candidate sets: rare classes stay in every training part, groups stay together, and
scikit-learn can use the splitter."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import KFold, cross_validate

from ltpll import CandidateKFold, PartialLabelClassifier, covering_rate
from ltpll.candidates import Candidates
from ltpll.folds import fold_splits
from ltpll.synthetic import class_sizes
from support.refusals import refusal


def long_tailed_sets(seed=0, n_classes=40, largest=60, imbalance=30):
    """Sets of at most two classes, the smallest classes of which have two rows, in random order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(
        np.repeat(np.arange(n_classes), class_sizes(largest, n_classes, imbalance))
    )
    return [
        sorted({int(label), *([int(rng.integers(0, 5))] if rng.random() < 0.3 else [])})
        for label in labels
    ]


def lost(sets, splits, groups=None):
    """How often a class that occurs in at least two groups is missing from a training part."""
    groups = range(len(sets)) if groups is None else groups
    found = 0
    for c in set().union(*sets):
        where = {group for row, group in zip(sets, groups, strict=True) if c in row}
        if len(where) > 1:
            found += sum(not any(c in sets[i] for i in train) for train, _ in splits)
    return found


@pytest.mark.parametrize("n_splits", [2, 3, 5, 10])
def test_rare_classes_stay_in_every_training_part_where_plain_folds_lose_them(n_splits):
    ours = theirs = 0
    for seed in range(5):
        sets = long_tailed_sets(seed)
        ours += lost(sets, list(CandidateKFold(n_splits).split(sets, sets)))
        theirs += lost(sets, list(KFold(n_splits, shuffle=True, random_state=seed).split(sets)))
    assert ours == 0
    assert theirs > 0


def test_rare_classes_of_groups_stay_too():
    for seed in range(5):
        sets, rng = long_tailed_sets(seed), np.random.default_rng(seed)
        groups = rng.integers(0, 60, len(sets)).astype(str)
        splits = list(CandidateKFold(3, random_state=seed).split(None, sets, groups))
        assert lost(sets, splits, groups) == 0
        for train, test in splits:
            assert not set(groups[train]) & set(groups[test])


@settings(max_examples=60, deadline=None)
@given(
    sets=st.lists(st.sets(st.integers(0, 5), min_size=1, max_size=3), min_size=4, max_size=30).map(
        lambda rows: [*rows, {0, 1}]
    ),
    n_splits=st.integers(2, 4),
    seed=st.integers(0, 9),
)
def test_every_row_is_tested_once_and_folds_are_not_empty(sets, n_splits, seed):
    splits = list(CandidateKFold(n_splits, random_state=seed).split(sets, sets))
    assert len(splits) == n_splits
    assert sorted(np.concatenate([test for _, test in splits]).tolist()) == list(range(len(sets)))
    for train, test in splits:
        assert len(test) > 0
        assert sorted([*train, *test]) == list(range(len(sets)))


def test_a_class_of_two_rows_is_kept_whichever_classes_it_shares_them_with():
    # Each class has two rows, and neighbouring classes share one: the rows are a ring whose
    # neighbours need different folds.
    ring = [{i, (i + 1) % 8} for i in range(8)]
    for seed in range(20):
        assert lost(ring, list(CandidateKFold(3, random_state=seed).split(None, ring))) == 0


def test_folds_have_the_same_size_and_classes_their_share_of_each():
    sets = long_tailed_sets(n_classes=10, largest=500, imbalance=100)
    splits = list(CandidateKFold(5).split(sets, sets))
    assert np.ptp([len(test) for _, test in splits]) <= 1
    for c in range(10):
        in_folds = [sum(c in sets[i] for i in test) for _, test in splits]
        if sum(in_folds) < 100:  # larger ones are spread by chance
            assert np.ptp(in_folds) <= 3, c


def test_all_forms_of_sets_give_the_same_folds():
    sets = [[f"c{label:02d}" for label in row] for row in long_tailed_sets()]
    candidates = Candidates.of(sets)
    forms = [
        candidates,
        ["|".join(row) for row in sets],
        pd.Series(["|".join(row) for row in sets]),
        candidates.dense().numpy(),
    ]
    expected = [test.tolist() for _, test in CandidateKFold(3).split(None, sets)]
    for y in forms:
        assert [test.tolist() for _, test in CandidateKFold(3).split(None, y)] == expected
    assert [rows.tolist() for _, rows in fold_splits(candidates, 3, seed=0)] == expected


def test_the_groups_of_candidates_are_used_and_the_seed_counts():
    sets = long_tailed_sets()
    groups = np.arange(len(sets)) // 3
    known = Candidates.of(sets).with_groups(groups)
    folds = [test.tolist() for _, test in CandidateKFold(3).split(None, known)]
    assert folds == [test.tolist() for _, test in CandidateKFold(3).split(None, sets, groups)]
    assert folds != [
        test.tolist() for _, test in CandidateKFold(3, random_state=1).split(None, known)
    ]
    state = np.random.RandomState(0)
    drawn = [
        [test.tolist() for _, test in CandidateKFold(3, random_state=state).split(None, sets)]
        for _ in range(2)
    ]
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("routing", [False, True])
def test_scikit_learn_passes_groups_to_the_splitter(routing):
    sets, x = long_tailed_sets(n_classes=4), np.random.default_rng(0).normal(size=(1000, 2))
    groups = np.arange(len(sets)) // 4
    with sklearn.config_context(enable_metadata_routing=routing):
        given = {"params": {"groups": groups}} if routing else {"groups": groups}
        classifier = PartialLabelClassifier("proden", "none", epochs=1, device="cpu", threads=1)
        if routing:
            classifier.set_fit_request(groups=False)
        options = {"scoring": covering_rate, "cv": CandidateKFold(2), "return_indices": True}
        found = cross_validate(classifier, x[: len(sets)], sets, **options, **given)
    for train, test in zip(found["indices"]["train"], found["indices"]["test"], strict=True):
        assert not set(groups[train]) & set(groups[test])


def test_a_splitter_can_be_printed():
    assert repr(CandidateKFold(4, random_state=7)) == "CandidateKFold(n_splits=4, random_state=7)"
    assert CandidateKFold(4).get_n_splits() == 4


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: CandidateKFold(1), "n_splits"),
        (lambda: list(CandidateKFold(2).split(np.zeros((2, 1)))), "y is None"),
        (
            lambda: list(CandidateKFold(2).split(np.zeros((3, 1)), ["a|b", "b"])),
            "2 candidate sets for 3 rows",
        ),
        (
            lambda: list(CandidateKFold(3).split(None, ["a|b", "b"])),
            "2 rows cannot be divided into 3 folds",
        ),
        (
            lambda: list(CandidateKFold(2).split(None, ["a|b", "b"], ["x", "x"])),
            "1 group cannot be divided into 2 folds",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(call, words):
    assert words in refusal(call)
