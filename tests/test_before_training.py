"""The estimated share of sets that lack the true label, and what the classifier does with it."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from ltpll import Candidates, PartialLabelClassifier
from ltpll.before_training import (
    check_truth_missing,
    estimate_missing,
    missing_parts,
    overall_share,
)
from ltpll.errors import InputError
from support.refusals import refusal

C = 5


def problem(share, n=400, seed=0):
    x, y = make_blobs(n, 4, centers=C, cluster_std=1.0, random_state=1)
    rng = np.random.default_rng(seed)
    sets = rng.random((n, C)) < 0.25
    sets[np.arange(n), y] = rng.random(n) >= share
    for row in np.flatnonzero(~sets.any(1)):
        sets[row, (y[row] + rng.integers(1, C)) % C] = True
    return x.astype(np.float32), y, Candidates.from_matrix(sets), ~sets[np.arange(n), y]


def quick(**options):
    how = {"epochs": 30, "device": "cpu", "threads": 1, **options}
    return PartialLabelClassifier("proden", "none", **how)


def test_the_share_is_found_without_true_labels():
    x, _, sets, lacks = problem(0.25)
    assert overall_share(estimate_missing(quick(), x, sets), sets) == pytest.approx(
        lacks.mean(), abs=0.05
    )


def test_nothing_is_found_where_every_set_holds_the_label():
    x, _, sets, _ = problem(0.0)
    assert estimate_missing(quick(epochs=10), x, sets) == [0.0] * (C + 1)
    auto, never = (quick(epochs=10, truth_missing=one).fit(x, sets) for one in ("auto", "never"))
    assert auto.truth_missing_ == 0
    np.testing.assert_array_equal(auto.predict_proba(x), never.predict_proba(x))


def test_labels_leave_their_sets_and_predictions_improve(tmp_path):
    x, y, sets, lacks = problem(0.3)
    closed, auto = (quick(epochs=20, truth_missing=one).fit(x, sets) for one in ("never", "auto"))
    assert (closed.transduced_.labels == y)[lacks].mean() == 0
    assert (auto.transduced_.labels == y)[lacks].mean() > 0.7
    assert (auto.transduced_.labels == y)[~lacks].mean() > 0.95
    assert (auto.predict(x) == y).mean() >= (closed.predict(x) == y).mean()
    auto.save(tmp_path / "c.safetensors")
    loaded = PartialLabelClassifier.load(tmp_path / "c.safetensors", device="cpu")
    assert loaded.truth_missing == "auto"
    assert loaded.truth_missing_ == auto.truth_missing_ == pytest.approx(lacks.mean(), abs=0.06)
    np.testing.assert_array_equal(loaded.transduce().labels, auto.transduce().labels)


def test_a_share_can_be_given():
    x, y, sets, lacks = problem(0.3)
    found = quick(truth_missing=0.3).fit(x, sets)
    assert found.truth_missing_ == 0.3
    assert (found.transduced_.labels == y)[lacks].mean() > 0.5


def test_few_rows_and_sets_of_what_occurs_together_stay_closed():
    x, _, sets, _ = problem(0.3, n=40)
    assert missing_parts(quick(), sets) == []
    assert estimate_missing(quick(), x, sets) == [0.0] * (C + 1)
    x, _, sets, _ = problem(0.3)
    together = Candidates.of(
        [sets.row(i // 4 * 4) for i in range(len(sets))], n_classes=C
    ).with_groups([i // 4 for i in range(len(sets))])
    assert estimate_missing(quick(), x, together) == [0.0] * (C + 1)


def test_answers_of_people_stay():
    x, y, sets, _ = problem(0.3)
    wrong = [(int(y[i]) + 1) % C for i in range(20)]
    found = quick(truth_missing=0.3).fit(
        x, sets.with_answers(np.arange(20), [[label] for label in wrong])
    )
    assert found.transduced_.labels[:20].tolist() == wrong
    assert (found.transduced_.labels[20:] == y[20:]).mean() > 0.8


@pytest.mark.parametrize("value", ["often", 1.0, -0.1, True, None, [], [0.1, 2], float("nan")])
def test_other_settings_are_refused(value):
    assert "truth_missing" in refusal(lambda: check_truth_missing(value))
    x, _, sets, _ = problem(0.0, n=40)
    with pytest.raises(InputError):
        quick(truth_missing=value).fit(x, sets)
