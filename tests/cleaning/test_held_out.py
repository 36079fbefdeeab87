"""Figures about held-out rows: those of scikit-learn, for both goals."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from ltpll.candidates import Candidates
from ltpll.cleaning.cleaning_job import held_out_figures
from ltpll.cleaning.dataset import Examples
from ltpll.estimator import PartialLabelClassifier
from ltpll.tables.read_tables import LabelTable


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    y = rng.choice(3, p=[0.7, 0.2, 0.1], size=160)
    x = (rng.normal(size=(160, 4)) + 1.2 * np.eye(3, 4)[y]).astype(np.float32)
    return x, Candidates.from_matrix((rng.random((160, 3)) < 0.3) | (np.arange(3) == y[:, None])), y


def examples_of(x, sets, n, labels=None):
    """Examples of which all but the first n are held out."""
    splits = np.where(np.arange(len(x)) < n, "train", "test").astype(object)
    ids = np.arange(len(x)).astype(str).astype(object)
    return Examples(LabelTable(ids, sets, labels, splits), x, [])


@pytest.mark.parametrize("goal", ["balanced", "accuracy"])
def test_both_goals_are_measured_and_the_chosen_one_comes_first(problem, goal):
    x, sets, y = problem
    known = np.where(np.arange(60) % 4, y[100:], -1)
    classifier = PartialLabelClassifier("proden", "mean-target", epochs=5, device="cpu")
    classifier.fit(x[:100], sets.select(np.arange(100)))
    held_out = sets.select(np.arange(100, 160))
    examples = examples_of(x, sets, 100, np.concatenate([y[:100], known]))
    test = held_out_figures(classifier.set_params(goal=goal), examples)["test"]
    assert classifier.goal == goal
    assert list(test["by_goal"]) == ["balanced", "accuracy"]
    for name, figures in test["by_goal"].items():
        predicted = classifier.set_params(goal=name).predict(x[100:])
        some = known >= 0
        assert figures == {
            "covering_rate": pytest.approx(
                np.mean([label in held_out.row(i) for i, label in enumerate(predicted)])
            ),
            "accuracy": pytest.approx(accuracy_score(known[some], predicted[some])),
            "balanced_accuracy": pytest.approx(
                balanced_accuracy_score(known[some], predicted[some])
            ),
        }
    assert test["by_goal"]["balanced"] != test["by_goal"]["accuracy"]
    assert test == {**test["by_goal"][goal], "by_goal": test["by_goal"]}


def test_without_true_labels_only_the_covering_rate_is_measured(problem):
    x, sets, _ = problem
    classifier = PartialLabelClassifier("proden", "none", epochs=1, device="cpu").fit(x, sets)
    test = held_out_figures(classifier, examples_of(x, sets, 140))["test"]
    assert test.keys() == {"covering_rate", "by_goal"}
    assert (
        test["by_goal"]["accuracy"]
        == test["by_goal"]["balanced"]
        == {"covering_rate": test["covering_rate"]}
    )


def test_without_held_out_rows_nothing_is_measured(problem):
    x, sets, _ = problem
    assert held_out_figures(None, examples_of(x, sets, len(x))) == {}
