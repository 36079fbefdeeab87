import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, KFold

from ltpll import (
    CandidateKFold,
    PartialLabelClassifier,
    covering_rate,
    information_of_sets,
)
from ltpll.methods import CORR
from ltpll.rebalancers import RECORDS
from support.refusals import refusal

SCORERS = [covering_rate, information_of_sets]


# ---- classes that were never a candidate in training ---------------------------------------------


class Known:
    """A classifier of a, b and c that gives every row the same probabilities."""

    def __init__(self, *probabilities, classes=("a", "b", "c")):
        self.classes_ = np.asarray(classes)
        self.probabilities = np.asarray(probabilities)

    def predict_proba(self, x):
        return np.tile(self.probabilities, (len(x), 1))

    def predict(self, x):
        return self.classes_[self.predict_proba(x).argmax(1)]


@pytest.mark.parametrize("seed", range(3))
def test_the_covering_rate_is_its_definition_in_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    sets = [{"a", "b", "c"} - set(rng.choice(["a", "b", "c"], 2)) for _ in range(50)]
    found = Known(*rng.random(3))
    covered = sum(str(found.predict([0])[0]) in one for one in sets)
    assert covering_rate(found, sets, sets) == pytest.approx(covered / 50)


def test_predictions_for_other_rows_are_refused():
    words = "Give one set per row, not 4 sets for 3 rows."
    assert refusal(lambda: covering_rate(Known(0.6, 0.3, 0.1), [0] * 3, ["a"] * 4)) == words


def test_unseen_classes_cannot_be_predicted():
    known, y = Known(0.6, 0.3, 0.1), [{"a", "b"}, {"a", "z"}, {"z"}, {"y", "z"}, {"b"}]
    assert covering_rate(known, y, y) == pytest.approx(2 / 5)


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize(
    "y",
    [
        ["a|z", "z", "b"],
        [{"a", "z"}, {"z"}, {"b"}],
        np.asarray([["a", "z"], ["z"], ["b"]], dtype=object),
    ],
    ids=["strings", "sets", "an array of lists"],
)
def test_unseen_classes_score_like_classes_that_are_never_predicted(scorer, y):
    """A 0/1 matrix has a column for every class, so there the class is known and has a probability
    of about zero."""
    matrix = np.asarray([[1, 0, 0, 1], [0, 0, 0, 1], [0, 1, 0, 0]])
    everything = Known(0.6, 0.3, 0.1, 1e-12, classes=("a", "b", "c", "z"))
    assert scorer(Known(0.6, 0.3, 0.1), y, y) == pytest.approx(
        scorer(everything, y, matrix), abs=1e-9
    )


def test_unseen_numbers_and_unseen_plain_labels_are_scored_too():
    numbers = Known(0.6, 0.3, 0.1, classes=(0, 1, 2))
    assert covering_rate(numbers, [0] * 2, [{0, 5}, {7}]) == pytest.approx(0.5)
    assert covering_rate(numbers, [0] * 2, [5, 5]) == 0  # a fold with one class, an unseen one
    assert covering_rate(Known(0.6, 0.3, 0.1), [0] * 2, ["a", "z"]) == pytest.approx(0.5)


def test_a_name_that_contains_the_separator_is_still_a_plain_label():
    known = Known(0.6, 0.3, 0.1, classes=("a|b", "c", "d"))
    assert covering_rate(known, [0] * 3, ["a|b", "c", "e"]) == pytest.approx(1 / 3)


def long_tail():
    """A long-tailed table as in the README; its rarest classes are candidates in two rows."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), [60, 30, 15, 8, 4, 2, 2, 2])
    sets = [f"c{c}" if rng.random() < 0.5 else f"c{c}|c{rng.integers(0, 3)}" for c in labels]
    return (labels[:, None] + rng.normal(0, 0.3, (len(labels), 2))).astype(np.float32), sets


@pytest.mark.parametrize("scoring", [*SCORERS, None], ids=["covering", "information", "score"])
def test_a_grid_search_on_a_long_tail_has_finite_scores_even_if_a_fold_takes_a_class_away(scoring):
    x, sets = long_tail()
    y, folds = (
        np.asarray(sets, dtype=object),
        KFold(3),
    )  # the rarest classes are the last rows, all in the last fold
    assert {"c5", "c6", "c7"}.isdisjoint("|".join(y[list(folds.split(x))[2][0]]).split("|"))
    classifier = PartialLabelClassifier(
        method=CORR(), rebalancer=RECORDS(momentum=0.99), epochs=2, device="cpu", threads=1
    )
    search = GridSearchCV(
        classifier, {"rebalancer__momentum": [0.9, 0.99]}, scoring=scoring, cv=folds, refit=False
    ).fit(x, sets)
    for k in range(3):
        assert np.isfinite(search.cv_results_[f"split{k}_test_score"]).all()


def test_the_splitter_of_the_readme_keeps_all_classes_in_training():
    x, sets = long_tail()
    known = []

    def scoring(estimator, inputs, candidates):
        known.append(len(estimator.classes_))
        return covering_rate(estimator, inputs, candidates)

    classifier = PartialLabelClassifier("proden", "none", epochs=1, device="cpu", threads=1)
    search = GridSearchCV(
        classifier, {"lr": [0.01, 0.1]}, scoring=scoring, cv=CandidateKFold(3), refit=False
    ).fit(x, sets)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert known == [8] * 6
