import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning

from ltpll.candidates import Candidates
from ltpll.candidates.labels import read_labels
from ltpll.errors import InputError, InputWarning
from ltpll.estimator import PartialLabelClassifier
from support.refusals import refusal


def rows(labels):
    return [
        [labels.classes[j] for j in labels.candidates.row(i)] for i in range(len(labels.candidates))
    ]


@pytest.mark.parametrize(
    ("y", "expected", "certain"),
    [
        (["b", "a", "b"], [["b"], ["a"], ["b"]], True),
        (np.asarray([5, 3, 5]), [[5], [3], [5]], True),
        (pd.Series([5, 3, 5]), [[5], [3], [5]], True),
        (pd.Series(["b", "a", "b"]), [["b"], ["a"], ["b"]], True),
        (pd.Series(["b|a", "a", "b"]), [["a", "b"], ["a"], ["b"]], False),
        (["b|a", "a", "b"], [["a", "b"], ["a"], ["b"]], False),
        (("b | a", "a", "b"), [["a", "b"], ["a"], ["b"]], False),
        (np.asarray(["b|a", "a", "b"]), [["a", "b"], ["a"], ["b"]], False),
        (np.asarray(["b|a", "a", "b"], dtype=object), [["a", "b"], ["a"], ["b"]], False),
        (pd.DataFrame({"label": ["b|a", "a"]}), [["a", "b"], ["a"]], False),
        (['["b", "a"]', "a", "['b']"], [["a", "b"], ["a"], ["b"]], False),
        (["b;a", "a", "c"], [["b;a"], ["a"], ["c"]], True),  # b is no label
        (["Rome, Italy", "Oslo, Norway"], [["Rome, Italy"], ["Oslo, Norway"]], True),
        (["[0, 10]", "[10, 20]"], [["[0, 10]"], ["[10, 20]"]], True),  # intervals
        (["[unknown]", "a"], [["[unknown]"], ["a"]], True),
        (["1", "0"], [["1"], ["0"]], True),
        ([["b", "a"], ["a"], ["b"]], [["a", "b"], ["a"], ["b"]], False),
        (
            [["b", "a"], ["a", "b"], ["b", "c"]],
            [["a", "b"], ["a", "b"], ["b", "c"]],
            False,
        ),  # of one length: sets all the same
        ([[0, 1], [1, 0], [1, 1]], [[0, 1], [0, 1], [1]], False),  # lists hold class numbers
        (np.asarray([[0, 1], [1, 0], [1, 1]]), [[1], [0], [0, 1]], False),  # an array is a matrix
        (pd.DataFrame({"b": [1, 0, 1], "a": [0, 1, 1]}), [["b"], ["a"], ["b", "a"]], False),
        (pd.DataFrame({"label": ["b", "a", "b"]}), [["b"], ["a"], ["b"]], True),
        (Candidates.of([["b", "a"], ["a"]]), [["a", "b"], ["a"]], False),
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


def test_a_column_of_cells_is_read_with_a_warning():
    with pytest.warns(DataConversionWarning):
        labels = read_labels(np.asarray([["b|a"], ["a"]]))
    assert rows(labels) == [["a", "b"], ["a"]]
    assert not labels.certain


@pytest.mark.parametrize("hold", [list, np.asarray, pd.Series])
def test_a_class_whose_name_holds_the_separator_is_a_plain_label_where_the_classes_are_known(hold):
    labels = read_labels(hold(["a|b", "c", "a|b"]), ("a|b", "c"))
    assert rows(labels) == [["a|b"], ["c"], ["a|b"]]
    assert labels.certain
    assert rows(read_labels(hold(["a|b", "c"]), ("a", "b", "c"))) == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        (
            ["a|b", "c|d"],
            ("a", "b", "c"),
            "Row 1 has the candidate 'd', which is not one of the 3 classes",
        ),
        (["a|b", None], None, "Row 1 has no candidate label"),
        (["a|b", "a", ""], None, "Row 2 has no candidate label"),
        (["a|b", 1], None, "Row 1 is 1, not a set or list of labels"),
        (
            ["a|b", "a;b"],
            None,
            "Row 1 has the candidate 'a;b', which looks like several labels separated by ';'",
        ),
        (["b", "d"], ("a", "b"), "'d', which is not one of the 2 classes"),
        (np.eye(3), ("a", "b"), "2 class names for 3 columns"),
        (np.zeros((2, 2, 2)), None, "one dimension"),
        (np.asarray([0.5, 1.5]), None, "continuous"),
    ],
)
def test_what_cannot_be_labels_is_refused(y, classes, message):
    assert message in refusal(lambda: read_labels(y, classes))


def test_sets_of_other_classes_are_refused():
    assert "2 classes, but 3" in refusal(
        lambda: read_labels(Candidates.of([["a"], ["b"]]), ("a", "b", "c")), InputError
    )


def test_an_estimator_learns_and_scores_strings_as_it_does_sets():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 60)
    x = np.eye(3)[truth] + rng.normal(scale=0.1, size=(60, 3))
    names = np.asarray(["cat", "dog", "fox"])
    sets = [sorted({names[c], names[(c + 1 + i % 2) % 3]}) for i, c in enumerate(truth)]
    cells = ["|".join(row) for row in sets]
    from_sets, from_cells = (
        PartialLabelClassifier(epochs=5, random_state=0).fit(x, y) for y in (sets, cells)
    )
    assert from_cells.classes_.tolist() == ["cat", "dog", "fox"]
    np.testing.assert_array_equal(from_cells.predict_proba(x), from_sets.predict_proba(x))
    predicted = from_cells.predict(x)
    assert from_cells.score(x, cells) == np.mean(
        [name in row for name, row in zip(predicted, sets, strict=True)]
    )
    assert from_cells.score(x, names[truth].tolist()) == np.mean(predicted == names[truth])


@pytest.mark.parametrize("kind", [list, np.asarray, pd.Series])
@pytest.mark.parametrize(
    ("y", "row"),
    [
        (["a; z", "a", "a; b", "b"], 2),  # a and b are labels elsewhere
        (["x", "a; b", "b; c", "c; a"], 1),  # all pieces recur
    ],
)
def test_strings_that_look_like_sets_with_another_separator_are_refused_as_in_a_table(kind, y, row):
    message = refusal(lambda: PartialLabelClassifier().fit(np.zeros((4, 2)), kind(y)))
    assert message.startswith(
        f"Row {row} has the candidate {y[row]!r}, which looks like several labels separated by ';'"
    )
    assert message.endswith("pass Candidates.of(y, separator=';').")
    assert len(Candidates.of(kind(y), separator=";")) == 4


def test_single_labels_some_of_whose_pieces_recur_are_warned_of():
    with pytest.warns(InputWarning, match="2 class names contain ','"):
        assert len(read_labels(["red, big", "red, small", "blue"]).classes) == 3
