"""The members of a committee: what each learns from, and how its classifier is kept."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from ltpll import Candidates, PartialLabelClassifier
from ltpll.committee import SoftForest
from ltpll.committee.members import (
    NetworkMember,
    SoftLabelMember,
    all_classes,
    classifier_of,
    content_of,
    default_members,
    few_columns,
    takes_weights,
)
from ltpll.rebalancers import RECORDS
from support.refusals import refusal

BASE = PartialLabelClassifier(steps=3, device="cpu")


def problem(n=60):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    x = (rng.normal(size=(n, 2)) + 2 * np.eye(3, 2)[y]).astype(np.float32)
    return x, y, Candidates.from_matrix((rng.random((n, 3)) < 0.3) | np.eye(3, dtype=bool)[y])


def test_the_usual_members_share_the_settings_of_the_base_and_are_named_differently():
    x, _, _ = problem()
    members = default_members(x, BASE, seed=7)
    networks = [one for one in members if isinstance(one, NetworkMember)]
    assert [one.name for one in members] == [
        *("linear model", "network", "network on bins", "network, RECORDS", "random forest")
    ]
    assert {one.classifier.steps for one in networks} == {3}
    assert [one.name for one in networks if one.lifts] == ["network, RECORDS"]
    assert [one.name for one in networks if one.bins] == ["network on bins"]
    assert [one.classifier.model for one in networks] == ["linear", "auto", "auto", "auto"]
    assert [one.classifier.rebalancer for one in networks[:3]] == ["auto"] * 3
    assert isinstance(networks[3].classifier.rebalancer, RECORDS)
    assert len({id(one.classifier) for one in networks}) == 4  # none is shared
    assert members[-1].classifier.seed == 7


def test_where_rows_share_sets_a_network_that_is_told_by_others_replaces_records():
    x, _, _ = problem()
    members = default_members(x, BASE, 0, grouped=True)
    names = [one.name for one in members]
    told = [one for one in members if isinstance(one, NetworkMember) and one.told]
    assert "network, RECORDS" not in names
    assert [(one.name, one.bins, one.lifts) for one in told] == [("network on groups", True, False)]
    assert told[0].classifier.rebalancer == "auto"


def test_numbers_are_read_in_bins_unless_there_are_too_many_columns_or_all_are_flags():
    rng = np.random.default_rng(0)
    numbers, flags = rng.normal(size=(50, 2)), rng.integers(0, 2, (50, 200))
    assert few_columns(numbers)
    assert few_columns(np.hstack([numbers, flags]))
    assert not few_columns(flags)
    assert not few_columns(rng.normal(size=(50, 129)))
    x, _, _ = problem()
    members = default_members(np.sign(x), BASE, 0)
    assert not any(getattr(one, "bins", False) for one in members)


@pytest.mark.parametrize("classifier", [LogisticRegression(), DecisionTreeClassifier()])
def test_soft_labels_train_a_classifier_as_weighted_copies_of_rows_do(classifier):
    x, _, _ = problem()
    soft = np.random.default_rng(1).dirichlet(np.ones(3), len(x))
    given = SoftLabelMember("own", classifier).fitted(x, soft)
    cells = [(i, c) for i in range(len(x)) for c in range(3) if soft[i, c] > 0.05]
    rows, labels = (list(one) for one in zip(*cells, strict=True))
    expected = type(classifier)().fit(x[rows], labels, sample_weight=[soft[one] for one in cells])
    np.testing.assert_allclose(given.predict_proba(x), expected.predict_proba(x), atol=1e-6)
    assert not hasattr(classifier, "classes_")  # a copy was fitted


def test_a_forest_of_the_committee_is_not_changed_by_training():
    x, y, _ = problem()
    forest = SoftForest(trees=2)
    fitted = SoftLabelMember("forest", forest).fitted(x, np.eye(3)[y])
    assert fitted.predict_proba(x).shape == (60, 3)
    assert not hasattr(forest, "n_classes")


def test_classes_that_a_classifier_has_not_seen_have_probability_zero():
    x, y, _ = problem()
    seen = GaussianNB().fit(x[y != 1], y[y != 1])
    found = all_classes(seen, x, 3)
    np.testing.assert_allclose(found[:, [0, 2]], seen.predict_proba(x), rtol=1e-6)
    assert not found[:, 1].any()


def test_only_classifiers_with_probabilities_and_weights_can_be_members():
    assert takes_weights(LogisticRegression())
    for other in (KNeighborsClassifier(), LogisticRegression, "forest", None):
        assert not takes_weights(other)


def test_a_network_is_kept_as_tensors_alone():
    x, _, sets = problem()
    fitted = PartialLabelClassifier(steps=3, device="cpu", rebalancer="mean-target").fit(x, sets)
    content = content_of(fitted)
    np.testing.assert_array_equal(
        classifier_of(content, "cpu").predict_proba(x), fitted.predict_proba(x)
    )
    for damaged in (
        {name: one for name, one in content.items() if name != "classifier-values"},
        {**content, "classifier-values": content["classifier-values"][:-9]},
        {**content, "classifier.class_prior": content["classifier.class_prior"][:-1]},
    ):
        refusal(lambda damaged=damaged: classifier_of(damaged, "cpu"))
