import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from ltpll import (
    Candidates,
    PartialLabelClassifier,
    PartialLabelTrainer,
    covering_rate,
    information_of_sets,
)
from ltpll.errors import InputError, UnknownNameError
from ltpll.extras import Mixup
from ltpll.methods import CORR, METHODS, PRODEN
from ltpll.models import build_model
from ltpll.rebalancers import RECORDS, OracleLA
from ltpll.synthetic import four_squares, uniform_candidates
from ltpll.training.checkpoint import read_checkpoint, write_checkpoint
from ltpll_research.set_origins import grouped_candidates
from support.refusals import refusal

NAMES = ["ant", "bee", "cat", "dog"]


def squares(n=60, ambiguity=0.4, seed=0):
    x, y = four_squares([n] * 4, seed=seed)
    return x, y, uniform_candidates(y, 4, ambiguity, seed=seed)


def quick(**options):
    return PartialLabelClassifier(**{"steps": 150, "device": "cpu", **options})


CHECKED = PartialLabelClassifier(method="proden", rebalancer="none", epochs=6, device="cpu")
CHECKS = [check for _, check in estimator_checks_generator(CHECKED)]


@pytest.mark.parametrize(
    "check",
    CHECKS,
    ids=lambda check: check.func.__name__ + "".join(f"-{v}" for v in check.keywords.values()),
)
def test_scikit_learns_own_checks_pass(check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(clone(CHECKED))


def test_what_float32_would_blur_is_learned_predicted_and_saved_as_well(tmp_path):
    x, _, candidates = squares()
    plain = quick(rebalancer="mean-target").fit(x, candidates)
    x = x.astype(np.float64)
    for moved in (
        x + 1e9,
        x * 1e300,
        pd.DataFrame(x + 1e9, columns=["a", "b"]),
        np.asfortranarray(x) + 1e9,
    ):
        classifier = quick(rebalancer="mean-target").fit(moved, candidates)
        np.testing.assert_allclose(
            classifier.predict_proba(moved), plain.predict_proba(x), atol=1e-3
        )
        classifier.save(tmp_path / "c.safetensors")
        for other in (
            PartialLabelClassifier.load(tmp_path / "c.safetensors", "cpu"),
            pickle.loads(pickle.dumps(classifier)),
        ):
            np.testing.assert_array_equal(
                other.predict_proba(moved), classifier.predict_proba(moved)
            )
            np.testing.assert_allclose(
                other.predict_proba(moved[3:4]), classifier.predict_proba(moved)[3:4], atol=1e-6
            )


def test_the_type_of_features_that_float32_holds_does_not_matter():
    x, _, candidates = squares()
    x = x.astype(np.float32)
    single, double = (
        quick(rebalancer="mean-target").fit(values, candidates)
        for values in (x, x.astype(np.float64))
    )
    np.testing.assert_array_equal(
        single.predict_proba(x), double.predict_proba(x.astype(np.float64))
    )


# ---- forms of y ----------------------------------------------------------------------------------


def forms(candidates):
    matrix = candidates.dense().numpy().astype(int)
    sets = [[NAMES[j] for j in np.flatnonzero(row)] for row in matrix]
    array = np.empty(len(sets), dtype=object)
    array[:] = sets
    return {
        "names in lists": sets,
        "names in sets": [set(row) for row in sets],
        "an array of lists": array,
        "strings": pd.Series(["|".join(row) for row in sets]),
        "a series of lists": pd.Series(sets),
        "a table": pd.DataFrame(matrix, columns=NAMES),
        "candidates": Candidates.of(sets),
    }


@pytest.mark.parametrize("form", list(forms(squares(n=5)[2])))
def test_every_form_of_candidates_trains_the_same_and_names_the_classes(form):
    x, _, candidates = squares()
    expected = quick(epochs=2).fit(x, candidates.dense().numpy())
    given = quick(epochs=2).fit(x, forms(candidates)[form])
    assert given.classes_.tolist() == NAMES
    np.testing.assert_allclose(given.predict_proba(x), expected.predict_proba(x), atol=1e-6)
    assert given.predict(x[:5]).tolist() == [NAMES[k] for k in expected.predict(x[:5])]


@pytest.mark.parametrize(
    "make", [np.asarray, sparse.csr_matrix, torch.as_tensor], ids=["numpy", "scipy", "torch"]
)
def test_matrices_number_the_classes(make):
    x, _, candidates = squares()
    fitted = quick(epochs=2).fit(x, make(candidates.dense().numpy().astype(int)))
    assert fitted.classes_.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_sparse_features_are_those_of_the_dense_matrix(make):
    x, _, candidates = squares()
    fitted = quick(epochs=2).fit(make(x), candidates)
    expected = quick(epochs=2).fit(x, candidates).predict_proba(x)
    np.testing.assert_array_equal(fitted.predict_proba(make(x)), expected)


def test_scaled_features_keep_their_sizes_also_in_a_saved_classifier(tmp_path):
    x, _, candidates = squares()
    x = np.asarray(x) * [1, 100]
    fitted = quick(epochs=2, views="scaled").fit(x, candidates)
    same = quick(epochs=2, views="scaled").fit(10 * x, candidates)
    np.testing.assert_allclose(same.predict_proba(10 * x), fitted.predict_proba(x), atol=1e-4)
    standardised = quick(epochs=2).fit(x, candidates)
    assert not np.allclose(standardised.predict_proba(x), fitted.predict_proba(x), atol=1e-2)
    fitted.save(tmp_path / "c.safetensors")
    again = PartialLabelClassifier.load(tmp_path / "c.safetensors", "cpu")
    np.testing.assert_allclose(again.predict_proba(x), fitted.predict_proba(x), atol=1e-6)


def test_columns_of_a_table_keep_their_order():
    x, y, candidates = squares(ambiguity=0.2)
    table = pd.DataFrame(
        candidates.dense().numpy().astype(int), columns=["dog", "ant", "cat", "bee"]
    )
    fitted = quick().fit(x, table)
    assert fitted.classes_.tolist() == ["dog", "ant", "cat", "bee"]
    assert (fitted.predict(x) == np.asarray(["dog", "ant", "cat", "bee"])[y]).mean() > 0.9
    assert fitted.score(x, table) > 0.9


def test_a_single_label_per_row_is_a_set_of_one():
    x, y, _ = squares()
    names = np.asarray(NAMES)[y]
    plain = quick(epochs=2).fit(x, names)
    sets = quick(epochs=2).fit(x, [[name] for name in names])
    np.testing.assert_allclose(plain.predict_proba(x), sets.predict_proba(x), atol=1e-6)
    assert (plain.transduce().labels == names).all()
    assert (plain.transduce().confidence == 1).all()
    assert (plain.transduce().runner_up == names).all()


# ---- learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_fits_predicts_and_cleans(method):
    x, y, candidates = squares(n=40, ambiguity=0.3)
    rebalancer = "none" if METHODS[method].why_no_rebalancer else "records"
    options = {"solar": {"ramp_epochs": 3}, "htc": {"ramp_epochs": 3}}.get(method)
    lr = {"lr": 1.0, "weight_decay": 0.0} if method == "lw" else {}
    fitted = quick(
        method=method, rebalancer=rebalancer, options=options and {method: options}, epochs=12, **lr
    ).fit(x, candidates)
    probabilities = fitted.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    assert (probabilities.argmax(1) == fitted.predict(x)).all()
    assert fitted.score(x, y) > 0.85
    cleaned = fitted.transduce()
    assert candidates.contains(torch.from_numpy(cleaned.labels)).all()
    assert candidates.contains(torch.from_numpy(cleaned.runner_up)).all()
    assert (cleaned.labels == y).mean() > 0.85
    assert ((cleaned.confidence > 0) & (cleaned.confidence <= 1 + 1e-6)).all()
    assert ((cleaned.margin >= -1e-6) & (cleaned.margin <= cleaned.confidence + 1e-6)).all()
    assert fitted.class_prior_.sum() == pytest.approx(1, abs=1e-4)
    assert fitted.class_prior_.shape == (4,)


def test_the_class_prior_without_a_rebalancer_is_the_mean_target():
    x, y = four_squares([20, 40, 80, 160], seed=0)
    fitted = quick(method="proden", rebalancer="none", epochs=20).fit(
        x, uniform_candidates(y, 4, 0.3, seed=0)
    )
    np.testing.assert_allclose(fitted.class_prior_, np.bincount(y) / len(y), atol=0.04)


@pytest.mark.parametrize("rebalancer", ["auto", "anchor", "mean-target", "records"])
def test_for_balanced_classes_the_estimated_prior_is_subtracted_from_predictions(
    rebalancer,
):
    x, _, candidates = squares()
    fitted = quick(rebalancer=rebalancer, epochs=3).fit(x, candidates)
    raw = fitted._predictor.outputs(x).logits[0].numpy()
    np.testing.assert_array_equal(fitted.decision_function(x), raw)
    fitted.set_params(goal="balanced")
    debiased = raw - np.log(fitted.class_prior_)
    np.testing.assert_allclose(
        fitted.decision_function(x) - debiased,
        np.broadcast_to((fitted.decision_function(x) - debiased)[:1, :1], raw.shape),
        atol=1e-3,
    )


def test_the_goal_does_not_affect_training():
    x, _, candidates = squares()
    one, other = (
        quick(goal=goal, epochs=3).fit(x, candidates) for goal in ("balanced", "accuracy")
    )
    np.testing.assert_array_equal(one.transduced_.confidence, other.transduced_.confidence)
    np.testing.assert_array_equal(
        one.set_params(goal="accuracy").predict_proba(x), other.predict_proba(x)
    )


def test_an_unknown_goal_is_refused():
    x, _, candidates = squares()
    with pytest.raises(InputError, match=r"choose .balanced. .* or .accuracy."):
        quick(goal="fairness", epochs=1).fit(x, candidates).predict(x)


def test_a_balanced_head_is_saved_with_the_classifier(tmp_path):
    x, _, candidates = squares()
    fitted = quick(extras=["mixup", "balanced-head"], goal="balanced", epochs=3).fit(x, candidates)
    assert not np.allclose(
        fitted.predict_proba(x), fitted.set_params(goal="accuracy").predict_proba(x)
    )
    fitted.set_params(goal="balanced").save(tmp_path / "classifier")
    loaded = PartialLabelClassifier.load(tmp_path / "classifier", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(x), fitted.predict_proba(x))
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(fitted)).predict_proba(x), fitted.predict_proba(x)
    )
    assert loaded.choice_ == fitted.choice_


def test_rows_that_share_their_sets_in_groups_are_held_at_the_average():
    candidates, labels = grouped_candidates(80, [5, 3, 2, 1], seed=0)
    groups = candidates.groups.numpy()
    order = np.random.default_rng(0).permutation(len(labels))
    x = np.eye(4)[labels] + 0.3 * np.random.default_rng(1).normal(size=(len(labels), 4))
    shuffled = Candidates.of([candidates.row(i) for i in order], n_classes=4)
    fitted = quick(epochs=2).fit(x[order], shuffled, groups=groups[order])
    assert "fixed at the average" in fitted.choice_
    with pytest.raises(InputError):
        quick(epochs=2).fit(x[order], shuffled, groups=groups[:5])


def test_a_feature_of_another_size_is_standardised_and_one_that_never_changes_is_left_alone():
    x, y, candidates = squares(ambiguity=0.2)
    scaled = np.column_stack([1e6 * x[:, 0] + 1e7, 1e-5 * x[:, 1], np.full(len(x), 7.0)])
    assert quick(epochs=10).fit(scaled, candidates).score(scaled, y) > 0.9


# ---- images --------------------------------------------------------------------------------------


def digit_images():
    digits = load_digits()
    keep = digits.target < 4
    images = np.kron(digits.images[keep], np.ones((2, 2)))  # 16 × 16
    y = digits.target[keep]
    return images, y, uniform_candidates(y, 4, 0.3, seed=0)


@pytest.mark.parametrize("kind", ["bytes", "floats"])
def test_images_are_learned(kind):
    images, y, candidates = digit_images()
    x = (
        (images * 15).astype(np.uint8)[..., None]
        if kind == "bytes"
        else images[:, None].astype(np.float64)
    )
    fitted = quick(epochs=6, views="paper" if kind == "bytes" else "auto").fit(
        x[:400], candidates.select(np.arange(400))
    )
    assert fitted.score(x[400:], y[400:]) > 0.75


def test_images_may_have_their_channels_first_or_last_and_grey_ones_are_coloured_ones():
    images, _, candidates = digit_images()
    levels = (images * 15).astype(np.uint8)[:50]
    forms = [
        np.repeat(levels[..., None], 3, axis=3),
        np.repeat(levels[:, None], 3, axis=1),
        levels[..., None],
        levels[:, None],
    ]
    fitted = [quick(epochs=1).fit(x, candidates.select(np.arange(50))) for x in forms]
    for other in fitted[1:]:
        for x in forms[:2]:  # in whichever layout the classifier was fitted
            np.testing.assert_array_equal(other.predict_proba(x), fitted[0].predict_proba(forms[0]))


def test_images_without_one_or_three_channels_are_refused():
    x = np.zeros((20, 5, 8, 8), dtype=np.uint8)
    assert "1 or 3 channels" in refusal(
        lambda: quick().fit(x, [[0, 1]] * 10 + [[1]] * 10), InputError
    )


# ---- models --------------------------------------------------------------------------------------


def test_a_custom_network_is_copied_and_a_function_builds_one():
    x, _, candidates = squares(ambiguity=0.2)
    own = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(16,))
    before = own.head.weight.clone()
    given = quick(model=own, epochs=2).fit(x, candidates)
    assert torch.equal(own.head.weight, before)
    assert given.model_ is not own
    asked = []

    def build(shape, n_classes):
        asked.append((shape, n_classes))
        return build_model("mlp", 0, n_inputs=2, n_classes=n_classes, hidden=(16,))

    built = quick(model=build, epochs=2).fit(x, candidates)
    assert asked == [((2,), 4)]
    np.testing.assert_allclose(built.predict_proba(x), given.predict_proba(x), atol=1e-6)


def test_a_small_table_of_correlated_columns_is_learned_as_well_as_by_a_linear_model():
    n, (x, y) = 500, load_digits(return_X_y=True)
    x = np.hstack(
        [x.cumsum(1), x.reshape(-1, 8, 8).cumsum(1).reshape(-1, 64)]
    )  # neighbouring columns are nearly equal
    rng = np.random.default_rng(0)
    order = rng.permutation(len(x))
    train, test = order[:n], order[n:]
    sets = rng.random((n, 10)) < 0.3
    sets[np.arange(n), y[train]] = True
    classifier = PartialLabelClassifier(rebalancer="mean-target", threads=1).fit(x[train], sets)
    # Expectation maximisation with logistic regression: each row once for each of its candidates.
    scaler, weights = StandardScaler().fit(x[train]), sets / sets.sum(1, keepdims=True)
    for _ in range(3):
        rows, labels = np.nonzero(weights > 1e-3)
        linear = LogisticRegression(C=0.1, max_iter=200).fit(
            scaler.transform(x[train[rows]]), labels, sample_weight=weights[rows, labels]
        )
        weights = linear.predict_proba(scaler.transform(x[train])) * sets
        weights /= weights.sum(1, keepdims=True)
    assert (
        classifier.score(x[test], y[test]) > linear.score(scaler.transform(x[test]), y[test]) - 0.01
    )
    assert (classifier.transduce().labels == y[train]).mean() > (
        weights.argmax(1) == y[train]
    ).mean() - 0.01
    assert classifier.history_[-1]["loss"] < 0.2


def test_a_common_factor_of_all_columns_does_not_make_training_diverge():
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    x = x + 30 * rng.normal(
        size=(len(x), 1)
    )  # such as the size or the brightness of what was measured
    sets = rng.random((len(x), 10)) < 0.3
    sets[np.arange(len(x)), y] = True
    classifier = PartialLabelClassifier(rebalancer="mean-target", threads=1).fit(
        x[:1400], sets[:1400]
    )
    assert classifier.score(x[1400:], y[1400:]) > 0.85


@pytest.mark.parametrize(
    ("n", "batch_size", "epochs"),
    [(30, 32, 500), (500, 32, 128), (5_000, 128, 52), (50_000, 512, 21), (500_000, 512, 10)],
)
def test_batches_and_epochs_follow_the_number_of_rows(n, batch_size, epochs):
    assert PartialLabelClassifier().schedule(n) == (epochs, batch_size)
    assert PartialLabelClassifier(epochs=3, batch_size=7).schedule(n) == (3, 7)


# ---- parts as objects ----------------------------------------------------------------------------


def test_a_part_is_given_by_name_or_as_an_object():
    x, _, candidates = squares()
    options = {"corr": {"weight": 0.5}, "records": {"momentum": 0.99}, "mixup": {"alpha": 2}}
    by_name = quick(
        method="corr", rebalancer="records", extras=["mixup"], options=options, steps=60
    ).fit(x, candidates)
    objects = quick(
        method=CORR(weight=0.5),
        rebalancer=RECORDS(momentum=0.99),
        extras=[Mixup(alpha=2)],
        steps=60,
    ).fit(x, candidates)
    assert np.array_equal(objects.predict_proba(x), by_name.predict_proba(x))
    assert not np.array_equal(
        quick(steps=60).fit(x, candidates).predict_proba(x), by_name.predict_proba(x)
    )


def test_fit_leaves_the_given_parts_alone_and_starts_from_fresh_ones_every_time():
    x, _, candidates = squares()
    method, rebalancer, extra = CORR(form="original", ramp_epochs=2), RECORDS(), Mixup()
    classifier = quick(method=method, rebalancer=rebalancer, extras=[extra], steps=60)
    first = classifier.fit(x, candidates).predict_proba(x)
    assert (classifier.method, classifier.rebalancer, classifier.extras) == (
        method,
        rebalancer,
        [extra],
    )
    assert not hasattr(rebalancer, "mean_feature")
    assert float(method.ramp) == 0
    assert np.array_equal(classifier.fit(x, candidates).predict_proba(x), first)
    assert np.array_equal(clone(classifier).fit(x, candidates).predict_proba(x), first)


def test_options_of_parts_are_parameters_of_the_classifier():
    classifier = quick(method=CORR(), rebalancer=RECORDS())
    deep = classifier.get_params()
    assert (deep["method__form"], deep["rebalancer__momentum"]) == ("records", 0.9)
    assert not any("__" in key for key in classifier.get_params(deep=False))
    copy = clone(classifier).set_params(method__form="original", rebalancer__momentum=0.5)
    assert (copy.method.form, copy.rebalancer.momentum) == ("original", 0.5)
    assert classifier.get_params() == deep  # a clone has its own parts
    assert "no option 'speed'" in refusal(lambda: copy.set_params(rebalancer__speed=1), InputError)
    with pytest.raises(ValueError, match="Invalid parameter 'speed'"):
        copy.set_params(speed__weight=1)


def test_a_grid_search_over_an_option_scores_each_value_as_a_classifier_with_that_value():
    x, _, candidates = squares(n=30)
    y, folds = forms(candidates)["an array of lists"], KFold(2, shuffle=True, random_state=0)
    values = [0.0, 0.9]
    grid = GridSearchCV(
        quick(rebalancer=RECORDS(momentum=0.3), steps=30),
        {"rebalancer__momentum": values},
        scoring=information_of_sets,
        cv=folds,
    )
    found = grid.fit(x, y).cv_results_["mean_test_score"]
    for score, momentum in zip(found, values, strict=True):
        alone = cross_val_score(
            quick(rebalancer=RECORDS(momentum=momentum), steps=30),
            x,
            y,
            scoring=information_of_sets,
            cv=folds,
        )
        assert score == pytest.approx(alone.mean(), abs=1e-12)
    assert found[0] != found[1]
    assert grid.best_estimator_.rebalancer.momentum == grid.best_params_["rebalancer__momentum"]


def test_a_classifier_with_objects_is_saved_with_their_options(tmp_path):
    x, y, candidates = squares(n=20)
    given = {
        "method": CORR(weight=0.5),
        "rebalancer": OracleLA(np.bincount(y)),
        "extras": [Mixup(alpha=2), "sfn"],
    }
    fitted = quick(**given, options={"sfn": {"weight": 0.1}}, steps=20).fit(x, candidates)
    fitted.save(tmp_path / "classifier")
    loaded = PartialLabelClassifier.load(tmp_path / "classifier", device="cpu")
    assert np.array_equal(loaded.predict_proba(x), fitted.predict_proba(x))
    assert loaded.method.get_params() == fitted.method.get_params()
    assert loaded.rebalancer.class_frequencies == np.bincount(y).tolist()
    assert (loaded.extras[0].alpha, loaded.extras[1], loaded.options) == (
        2,
        "sfn",
        {"sfn": {"weight": 0.1}},
    )


def test_a_part_that_is_not_registered_can_be_fitted_and_pickled_but_not_saved(tmp_path):
    x, _, candidates = squares(n=20)
    fitted = quick(method=Halved(), rebalancer=RECORDS(), steps=20).fit(x, candidates)
    assert "Halved is not registered" in refusal(
        lambda: fitted.save(tmp_path / "classifier"), InputError
    )
    assert np.array_equal(
        pickle.loads(pickle.dumps(fitted)).predict_proba(x), fitted.predict_proba(x)
    )


class Halved(PRODEN):
    name = "halved"

    def loss(self, outputs, targets, candidates):
        return super().loss(outputs, targets, candidates) / 2


# ---- scikit-learn conventions --------------------------------------------------------------------


def test_a_clone_is_unfitted_and_a_pickle_predicts_the_same():
    x, _, candidates = squares()
    fitted = quick(epochs=2, extras=("bcl",)).fit(x, candidates)
    assert not hasattr(clone(fitted), "classes_")
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(x), fitted.predict_proba(x))
    assert (again.transduce().labels == fitted.transduce().labels).all()
    assert clone(again).get_params() == fitted.get_params()


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_saved_classifier_predicts_and_cleans_the_same_without_unpickling_anything(
    method, tmp_path, monkeypatch
):
    x, _, candidates = squares(n=20)
    table = pd.DataFrame(x, columns=["width", "height"])
    rebalancer = "none" if METHODS[method].why_no_rebalancer else "records"
    fitted = quick(method=method, rebalancer=rebalancer, epochs=2, extras=("bcl",)).fit(
        table, forms(candidates)["names in lists"]
    )
    fitted.save(tmp_path / "classifier")
    monkeypatch.setattr(pickle, "Unpickler", None)
    loaded = PartialLabelClassifier.load(tmp_path / "classifier", device="cpu")
    assert np.array_equal(loaded.predict_proba(table), fitted.predict_proba(table))
    assert loaded.predict(table).tolist() == fitted.predict(table).tolist()
    for got, expected in zip(loaded.transduce(), fitted.transduce(), strict=True):
        assert np.array_equal(got, expected)
    assert np.array_equal(loaded.class_prior_, fitted.class_prior_)
    assert loaded.history_ == fitted.history_
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(table[["height", "width"]])


def test_a_saved_classifier_of_images_predicts_the_same(tmp_path):
    images, _, candidates = digit_images()
    x = (images * 15).astype(np.uint8)[..., None]
    fitted = quick(epochs=1).fit(x[:100], candidates.select(np.arange(100)))
    fitted.save(tmp_path / "classifier")
    assert np.array_equal(
        PartialLabelClassifier.load(tmp_path / "classifier", device="cpu").predict_proba(x[:50]),
        fitted.predict_proba(x[:50]),
    )


def test_what_cannot_be_saved_or_loaded_is_refused_in_a_sentence(tmp_path):
    x, _, candidates = squares(n=10)
    own = quick(model=build_model("mlp", 0, n_inputs=2, n_classes=4), epochs=1).fit(x, candidates)
    assert "pickle" in refusal(lambda: own.save(tmp_path / "own"), InputError)
    assert not (tmp_path / "own").exists()
    assert "no checkpoint" in refusal(
        lambda: PartialLabelClassifier.load(tmp_path / "nothing"), InputError
    )
    (tmp_path / "noise").write_bytes(b"noise")
    assert "damaged" in refusal(lambda: PartialLabelClassifier.load(tmp_path / "noise"), InputError)
    model = build_model("mlp", 0, n_inputs=2, n_classes=4)
    trainer = PartialLabelTrainer(model, METHODS["proden"](), epochs=1, device="cpu").fit(
        x, candidates
    )
    trainer.save(tmp_path / "training")
    assert "not one of a fitted classifier" in refusal(
        lambda: PartialLabelClassifier.load(tmp_path / "training"), InputError
    )


def test_it_works_at_the_end_of_a_pipeline():
    x, y, candidates = squares(ambiguity=0.2)
    pipeline = make_pipeline(StandardScaler(), quick(steps=300)).fit(x, candidates)
    assert pipeline.score(x, y) > 0.9


@pytest.mark.parametrize(
    "scoring",
    [covering_rate, information_of_sets, None],
    ids=["covering", "information", "score"],
)
def test_settings_are_chosen_by_candidate_sets_alone(scoring):
    x, _, candidates = squares(n=20, ambiguity=0.3)
    search = GridSearchCV(
        quick(epochs=4),
        {"lr": [1e-6, 0.1]},
        scoring=scoring,
        cv=KFold(2, shuffle=True, random_state=0),
    )
    for y in (candidates.dense().numpy().astype(int), forms(candidates)["an array of lists"]):
        assert search.fit(x, y).best_params_ == {"lr": 0.1}
    assert cross_val_score(quick(epochs=4), x, y, scoring=scoring, cv=KFold(2)).shape == (2,)


def test_names_of_features_are_kept_and_compared():
    x, _, candidates = squares()
    table = pd.DataFrame(x, columns=["width", "height"])
    fitted = quick(epochs=2).fit(table, candidates)
    assert fitted.feature_names_in_.tolist() == ["width", "height"]
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(table[["height", "width"]])


def test_the_seed_decides_everything():
    x, _, candidates = squares()

    def proba(state):
        return quick(epochs=2, random_state=state).fit(x, candidates).predict_proba(x)

    assert np.array_equal(proba(1), proba(1))
    assert not np.array_equal(proba(1), proba(2))
    assert np.array_equal(proba(np.random.RandomState(3)), proba(np.random.RandomState(3)))


def test_progress_can_be_watched():
    x, _, candidates = squares()
    seen = []
    fitted = quick(epochs=3, on_epoch=seen.append).fit(x, candidates)
    assert [record["epoch"] for record in seen] == [1, 2, 3]
    assert fitted.history_ == seen
    assert fitted.n_iter_ == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "prodden"}, "Did you mean 'proden'"),
        ({"rebalancer": "oracle-la"}, "class_frequencies"),
        ({"options": {"lw": {"beta": 2}}}, "options for 'lw'"),
        ({"method": "solar", "rebalancer": "records"}, "cannot be combined with the rebalancer"),
        ({"views": "paper"}, "8-bit images"),
        ({"model": "resnet19"}, "no model 'resnet19'"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_sentence(options, message):
    x, _, candidates = squares(n=10)
    with pytest.raises(InputError, match=message):
        quick(**options).fit(x, candidates)


def test_sample_weights_are_refused_by_name():
    x, _, candidates = squares(n=10)
    assert "no sample_weight" in refusal(
        lambda: quick().fit(x, candidates, sample_weight=np.ones(len(x))), InputError
    )


def test_an_oracle_takes_the_class_frequencies_as_an_option():
    x, y, candidates = squares(ambiguity=0.2)
    fitted = quick(
        rebalancer="oracle-la-posthoc",
        options={"oracle-la-posthoc": {"class_frequencies": np.bincount(y).tolist()}},
    )
    assert fitted.fit(x, candidates).score(x, y) > 0.85


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "c.safetensors"
    x = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    PartialLabelClassifier(method="proden", epochs=1, device="cpu").fit(
        x, ["a", "b", "c"] * 4
    ).save(path)
    return path


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        (
            lambda tensors, values: values.update(shape=[10**12], n_features_in=10**12),
            "does not have the shape (256, 1000000000000)",
        ),
        (lambda tensors, values: values.update(shape=[2.5]), "not one of a fitted classifier"),
        (
            lambda tensors, values: values.update(n_features_in=math.inf),
            "not one of a fitted classifier",
        ),
        (
            lambda tensors, values: values.update(classes=["a", "b"]),
            "does not have the shape (2, 256)",
        ),
        (
            lambda tensors, values: values.update(feature_names_in=["x"]),
            "not one of a fitted classifier",
        ),
        (
            lambda tensors, values: values["params"].update(method="nothing"),
            "There is no method 'nothing'",
        ),
        (
            lambda tensors, values: values["params"].update(
                method="pico", options={"pico": {"queue": 10**12}}
            ),
            "is damaged",
        ),
        (lambda tensors, values: values["params"].update(model={}), "is damaged"),
        (
            lambda tensors, values: values["params"].update(
                method={"name": "nothing", "params": {}}
            ),
            "There is no method 'nothing'",
        ),
        (
            lambda tensors, values: values["params"].update(
                method={"name": "pico", "params": {"queue": 10**12}}
            ),
            "is damaged",
        ),
        (
            lambda tensors, values: values["params"].update(
                method={"name": "corr", "params": {"form": "x"}}
            ),
            "CORR's form is 'x'",
        ),
        (
            lambda tensors, values: values["params"].update(
                rebalancer={"name": "records", "params": 3}
            ),
            "not one of a fitted classifier",
        ),
        (
            lambda tensors, values: values["params"].update(extras=[{}]),
            "not one of a fitted classifier",
        ),
        (lambda tensors, values: values.update(policy="x" * 5000), "There is no view policy 'xxx"),
        (lambda tensors, values: tensors.pop("views.mean"), "is damaged ('views.mean')"),
        (
            lambda tensors, values: tensors.update({"believed.0": tensors["believed.0"] + 7}),
            "labels are outside its classes",
        ),
        (
            lambda tensors, values: tensors.update({"believed.0": tensors["believed.0"].double()}),
            "its labels are not class numbers",
        ),
        (
            lambda tensors, values: tensors.update({"class_prior": tensors["class_prior"][:1]}),
            "other inputs or classes",
        ),
    ],
)
def test_a_saved_classifier_that_was_changed_is_refused(tmp_path, saved, change, fragment):
    tensors, values = read_checkpoint(saved)
    change(tensors, values)
    write_checkpoint(tmp_path / "c.safetensors", tensors, values)
    kind = UnknownNameError if "no method" in fragment else InputError
    assert fragment in refusal(
        lambda: PartialLabelClassifier.load(tmp_path / "c.safetensors", device="cpu"), kind
    )


def test_statistics_of_another_precision_or_shape_predict_the_same(tmp_path, saved):
    tensors, values = read_checkpoint(saved)
    tensors |= {name: tensors[name].double()[:, None] for name in ("views.mean", "views.std")}
    write_checkpoint(tmp_path / "c.safetensors", tensors, values)
    x = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)
    changed, whole = (
        PartialLabelClassifier.load(path, device="cpu").predict_proba(x)
        for path in (tmp_path / "c.safetensors", saved)
    )
    np.testing.assert_array_equal(changed, whole)


def test_a_small_table_of_many_features_does_not_diverge():
    """Features as a pretrained network gives them: positive, sparse and with long tails."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 200)
    x = (
        np.maximum(
            rng.normal(size=(200, 1280)) + 0.3 * rng.normal(size=(4, 1280))[y] - 1, 0
        ).astype(np.float32)
        ** 2
    )
    sets = uniform_candidates(y, 4, 0.3, seed=0)
    classifier = PartialLabelClassifier(rebalancer="none", epochs=20, threads=1).fit(x, sets)
    assert classifier.history_[-1]["loss"] < 1  # eight million with a learning rate of 0.05
    assert (classifier.transduced_.labels == y).mean() > 0.9
    assert classifier.history_[0]["lr"] == pytest.approx(0.005)
    few = PartialLabelClassifier(rebalancer="none", epochs=1, threads=1).fit(x[:, :128], sets)
    assert few.history_[0]["lr"] == pytest.approx(0.05)


def test_networks_of_the_package_have_channels_last_and_those_of_others_stay_as_they_are():
    x = np.random.default_rng(0).integers(0, 256, (20, 3, 8, 8), dtype=np.uint8)
    sets = uniform_candidates(np.arange(20) % 4, 4, 0.3, seed=0)
    own = build_model("small-cnn", 0, n_classes=4, n_channels=3, width=4)
    for model, expected in (("small-cnn", True), (own, False)):
        classifier = PartialLabelClassifier(model=model, epochs=1, device="cpu", threads=1)
        classifier.fit(x, sets)
        loaded = (
            PartialLabelClassifier.from_content(*classifier.content(), "cpu") if expected else None
        )
        for fitted in filter(None, (classifier, loaded)):
            weight = fitted.model_.encoder[3].weight
            assert weight.is_contiguous(memory_format=torch.channels_last) == expected
