import numpy as np
import pandas as pd
import pytest

from ltpll.candidates import Candidates
from ltpll.candidates.labels import read_labels
from ltpll.errors import InputError
from support.refusals import refusal


def rows(labels):
    return [[labels.classes[j] for j in labels.candidates.row(i)] for i in range(len(labels.candidates))]


@pytest.mark.parametrize(
    ("y", "expected", "certain"),
    [
        (["b", "a", "b"], [["b"], ["a"], ["b"]], True),
        (np.asarray([5, 3, 5]), [[5], [3], [5]], True),
        (pd.Series([5, 3, 5]), [[5], [3], [5]], True),
        (pd.Series(["b", "a", "b"]), [["b"], ["a"], ["b"]], True),
        (pd.Series(["b|a", "a", "b"]), [["a", "b"], ["a"], ["b"]], False),
        ([["b", "a"], ["a"], ["b"]], [["a", "b"], ["a"], ["b"]], False),
        ([["b", "a"], ["a", "b"], ["b", "c"]], [["a", "b"], ["a", "b"], ["b", "c"]], False),  # of one length: sets all the same
        ([[0, 1], [1, 0], [1, 1]], [[0, 1], [0, 1], [1]], False),  # lists hold class numbers
        (np.asarray([[0, 1], [1, 0], [1, 1]]), [[1], [0], [0, 1]], False),  # an array is a matrix
        (pd.DataFrame({"b": [1, 0, 1], "a": [0, 1, 1]}), [["b"], ["a"], ["b", "a"]], False),
        (pd.DataFrame({"label": ["b", "a", "b"]}), [["b"], ["a"], ["b"]], True),
        (Candidates.from_sets([["b", "a"], ["a"]]), [["a", "b"], ["a"]], False),
    ],
)
def test_every_form_is_read(y, expected, certain):
    labels = read_labels(y)
    assert rows(labels) == expected
    assert labels.certain is certain


def test_given_classes_fix_names_and_order():
    labels = read_labels(["b", "a"], ("c", "b", "a"))
    assert labels.classes.tolist() == ["c", "b", "a"]
    assert rows(labels) == [["b"], ["a"]]
    assert rows(read_labels([["a", "b"], ["c"]], ("c", "b", "a"))) == [["b", "a"], ["c"]]


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        (["b", "d"], ("a", "b"), "no class 'd'"),
        (np.eye(3), ("a", "b"), "2 class names for 3 columns"),
        (np.zeros((2, 2, 2)), None, "one dimension"),
        (np.asarray([0.5, 1.5]), None, "continuous"),
    ],
)
def test_what_cannot_be_labels_is_refused(y, classes, message):
    assert message in refusal(lambda: read_labels(y, classes))


def test_sets_of_other_classes_are_refused():
    assert "2 classes, but 3" in refusal(lambda: read_labels(Candidates.from_sets([["a"], ["b"]]), ("a", "b", "c")), InputError)
